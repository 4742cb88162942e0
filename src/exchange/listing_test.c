/* listing_test.c - the requests that one listing of contributions makes in a run of keys, however
 * much junk a writer without a key has put under c/. */
#include "exchange/exec_parts.h"

#include "check.h"
#include "exchange/generations.h"
#include "run/open.h"
#include "scratch.h"

#if DL_CRYPTO

#include "toy_keys.h"

/* LOOKS_NAMED and LOOKS_OTHER of listing.c */
enum { N = 10, NAMED = 64, OTHER = 16, JUNK = 300 };

static void put_junk(dl_store *store, const char *key)
{
    CHECK_OK(dl_store_create(store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
}

/* A run that r0 has created and r1 has joined, and r0's exchange. r1 is in the roster. */
typedef struct world {
    dl_config config;
    dl_store *store;
    dl_runfile file;
    dl_signer *signers[2];
    dl_generation generations[2];
    dl_exec *exec;
} world;

static void make_world(world *w, const char *url)
{
    static float values[N];
    const diloco_tensor tensor = {.name = "w", .data = values, .n_dims = 1, .shape = {N}};
    dl_hash digest;
    dl_config_init(&w->config);
    CHECK_OK(dl_config_set(&w->config, "run.store", url, "test"));
    CHECK_OK(dl_config_set(&w->config, "run.roster", "open", "test"));
    w->store = store_of(url);
    for (int i = 0; i < 2; i++)
        w->signers[i] = signer_of(i ? "r1" : "r0");
    const dl_run_creation what = {.config = &w->config,
                                  .tensors = &tensor,
                                  .n_tensors = 1,
                                  .data_digest = "",
                                  .replica = "r0",
                                  .signer = w->signers[0]};
    CHECK_OK(dl_run_create_or_read(&w->file, &digest, w->store, &what));
    for (int i = 0; i < 2; i++)
        CHECK_OK(dl_run_claim_generation(&w->generations[i], w->store, i ? "r1" : "r0", &w->file,
                                         &w->file.config, w->signers[i]));
    const dl_exec_args args = {.store = w->store,
                               .run = &w->file,
                               .run_digest = digest,
                               .self = w->generations[0],
                               .tensors = &tensor,
                               .n_tensors = 1,
                               .max_members = 2,
                               .n_copies = 2,
                               .signer = w->signers[0],
                               .n_fetchers = 1};
    CHECK_OK(dl_exec_create(&w->exec, &args));
    CHECK(dl_roster_add(&dl_exec_state(w->exec)->control.roster, "r1", 0));
}

static void end_world(world *w)
{
    dl_exec_destroy(w->exec);
    dl_runfile_deinit(&w->file);
    dl_signer_close(w->signers[0]);
    dl_signer_close(w->signers[1]);
    dl_store_close(w->store);
}

/* Returns the reads after one listing, which is one request itself. */
static int reads_of_a_listing(world *w)
{
    const dl_request request = {.kind = DL_REQUEST_LIST, .entry = 0};
    dl_reply reply = {.status = DILOCO_OK};
    const dl_store_counters before = dl_store_counts(w->store);
    dl_exec_do(w->exec, &request, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK_INT(0, reply.list.n_listed);
    const dl_store_counters now = dl_store_counts(w->store);
    CHECK_INT(before.n_list + 1, now.n_list);
    return (int)(now.n_get - before.n_get);
}

TEST(junk_in_c_costs_at_most_80_reads_a_listing)
{
    world w;
    char key[64];
    make_world(&w, "mem://listing");
    CHECK_INT(0, reads_of_a_listing(&w));
    for (int i = 0; i < JUNK; i++) {
        snprintf(key, sizeof key, "c/0000000000/r1.%04d", i);
        put_junk(w.store, key);
        snprintf(key, sizeof key, "c/0000000000/a%03d.0000", i);
        put_junk(w.store, key);
    }
    CHECK_INT(1 + NAMED + OTHER, reads_of_a_listing(&w)); /* and the key of r1, once */
    int all = 1 + NAMED + OTHER;
    for (int n = 1; n > 0; all += n) {
        n = reads_of_a_listing(&w);
        CHECK(n <= NAMED + OTHER);
    }
    CHECK_INT(1 + 2 * JUNK, all); /* no object is read twice */
    end_world(&w);
}

TEST_MAIN(junk_in_c_costs_at_most_80_reads_a_listing)

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
