/* generations_test.c - claims of a run with keys, where a listing may leave out what is newest. */
#include "exchange/generations.h"

#include "check.h"
#include "run/open.h"
#include "scratch.h"
#include "stale_store.h"

#if DL_CRYPTO

#include "toy_keys.h"

typedef struct world {
    dl_config config;
    dl_runfile file;
    dl_store *store;
    stale *stale;
    dl_signer *signer;
} world;

/* An open run in which r0 has the generations 0 and 42. */
static void make_world(world *w, const char *url)
{
    static float values[3];
    const diloco_tensor tensor = {.name = "w", .data = values, .n_dims = 1, .shape = {3}};
    dl_generation first, next;
    dl_hash digest;
    dl_config_init(&w->config);
    CHECK_OK(dl_config_set(&w->config, "run.store", url, "test"));
    CHECK_OK(dl_config_set(&w->config, "run.roster", "open", "test"));
    w->store = stale_open(&w->stale, url);
    w->signer = signer_of("r0");
    const dl_run_creation what = {.config = &w->config,
                                  .tensors = &tensor,
                                  .n_tensors = 1,
                                  .data_digest = "",
                                  .replica = "r0",
                                  .signer = w->signer};
    CHECK_OK(dl_run_create_or_read(&w->file, &digest, w->store, &what));
    CHECK_OK(dl_run_claim_generation(&first, w->store, "r0", &w->file, &w->config, w->signer));
    CHECK_INT(0, first.number);
    CHECK_OK(dl_run_claim_next(&next, w->store, &first, 42, &w->file, w->signer));
    CHECK_INT(42, next.number);
}

static void end_world(world *w)
{
    dl_signer_close(w->signer);
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

static diloco_status claim(dl_generation *out, const world *w)
{
    return dl_run_claim_generation(out, w->store, "r0", &w->file, &w->config, w->signer);
}

static diloco_status confirm(dl_generation *claimed, const world *w)
{
    return dl_run_confirm_claim(claimed, w->store, &w->file, w->signer);
}

/* It has left 1 to 41 out. */
TEST(p6_claim_with_a_stale_listing_is_after_all_earlier_ones)
{
    world w;
    dl_generation claimed;
    make_world(&w, "mem://stale");
    w.stale->hidden = "r0.0042";
    w.stale->n_stale = 1;
    CHECK_OK(claim(&claimed, &w));
    CHECK_OK(confirm(&claimed, &w));
    CHECK_INT(43, claimed.number);
    end_world(&w);
}

TEST(p6_claim_that_a_listing_does_not_show_yet_uses_no_second_number)
{
    world w;
    dl_generation claimed;
    make_world(&w, "mem://late");
    CHECK_OK(claim(&claimed, &w));
    w.stale->hidden = "r0.0043";
    w.stale->n_stale = 2;
    for (int n = 0; n < 2; n++) {
        CHECK_STATUS(DILOCO_EUNREACHABLE, confirm(&claimed, &w));
        CHECK_CONTAINS("r0.0043", diloco_error_text());
    }
    CHECK_OK(confirm(&claimed, &w));
    CHECK_INT(43, claimed.number);
    end_world(&w);
}

TEST_MAIN(p6_claim_with_a_stale_listing_is_after_all_earlier_ones,
          p6_claim_that_a_listing_does_not_show_yet_uses_no_second_number)

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
