/* watch_signed_test.c - P11.4: in a run with keys a replica is as alive as what its key has signed.
 */
#include "exchange/exec_parts.h"
#include "exchange/generations.h"
#include "log/signed_beat.h"
#include "run/open.h"

#include "check.h"
#include "scratch.h"

#if DL_CRYPTO

enum { CREW = 3, N = 4 };

typedef struct world {
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    dl_store *store;
    float w[N];
    diloco_tensor tensor;
    dl_signer *signers[CREW];
    dl_generation generations[CREW];
    dl_exec *exec; /* r0's */
    dl_reply reply;
} world;

static void set(world *w, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&w->config, name, value, "test"));
}

/* A closed run of r0, r1 and r2, of which each has claimed a generation. */
static void make_world(world *w, const char *url)
{
    char members[CREW * (DL_PUBLIC_TEXT + 8)] = "", key[DL_PUBLIC_TEXT], name[16];
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    for (int i = 0; i < CREW; i++) {
        CHECK_OK(dl_signer_generate(&w->signers[i]));
        dl_public_text(key, dl_signer_public(w->signers[i]));
        snprintf(members + strlen(members), sizeof members - strlen(members), "r%d %s\n", i, key);
    }
    set(w, "run.store", url);
    set(w, "run.roster", "closed");
    set(w, "run.members", scratch_write("members", members, strlen(members)));
    w->tensor = (diloco_tensor){.name = "w", .data = w->w, .n_dims = 1, .shape = {N}};
    const dl_run_creation what = {.config = &w->config,
                                  .tensors = &w->tensor,
                                  .n_tensors = 1,
                                  .data_digest = "",
                                  .signer = w->signers[0]};
    CHECK_OK(dl_store_open(&w->store, url, true));
    CHECK_OK(dl_run_create_or_read(&w->file, &w->digest, w->store, &what));
    for (int i = 0; i < CREW; i++) {
        snprintf(name, sizeof name, "r%d", i);
        CHECK_OK(dl_run_claim_generation(&w->generations[i], w->store, name, &w->file,
                                         &w->file.config, w->signers[i]));
    }
    const dl_exec_args args = {.store = w->store,
                               .run = &w->file,
                               .self = w->generations[0],
                               .signer = w->signers[0],
                               .tensors = &w->tensor,
                               .n_tensors = 1,
                               .max_members = CREW,
                               .n_copies = 2,
                               .n_fetchers = 1};
    CHECK_OK(dl_exec_create(&w->exec, &args));
    CHECK_OK(dl_snapshot_read_newest(dl_exec_state(w->exec), w->store, &w->file, w->digest,
                                     UINT64_MAX, NULL, DL_NEVER));
}

static void end_world(world *w)
{
    dl_exec_destroy(w->exec);
    for (int i = 0; i < CREW; i++)
        dl_signer_close(w->signers[i]);
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

/* Writes the heartbeat or the end of a generation, with that member's signature, under a name. */
static void put_signed(world *w, int by, const dl_heartbeat_kind *sign, const dl_generation *of,
                       uint64_t beat, const char *key)
{
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_heartbeat_writer writer;
    dl_heartbeat_begin(&writer, &text, sign, w->signers[by], w->file.id, of);
    dl_json_u64(&writer.json, "beat", beat);
    CHECK_OK(dl_heartbeat_end(&writer));
    CHECK_OK(dl_store_put(w->store, key, text.data, text.len, DL_NEVER));
}

static void beat(world *w, int i, uint64_t n)
{
    dl_key key;
    dl_key_heartbeat(key, &w->generations[i]);
    put_signed(w, i, &dl_heartbeat_alive, &w->generations[i], n, key);
}

/* Returns what a look sees of r<i>, or NULL. */
static const dl_seen *look(world *w, int i)
{
    const dl_request watch = {.kind = DL_REQUEST_WATCH};
    w->reply = (dl_reply){.status = DILOCO_OK};
    dl_exec_do(w->exec, &watch, &w->reply, DL_NEVER);
    CHECK_OK(w->reply.status);
    for (size_t k = 0; k < w->reply.watch.n_seen; k++)
        if (!strcmp(w->reply.watch.seen[k].generation.replica, w->generations[i].replica))
            return &w->reply.watch.seen[k];
    return NULL;
}

static void put_text(world *w, const char *key, const char *text)
{
    CHECK_OK(dl_store_put(w->store, key, text, strlen(text), DL_NEVER));
}

TEST(p11_only_a_heartbeat_of_its_key_shows_a_replica)
{
    world w;
    char big[8192];
    make_world(&w, "mem://signed-beats");
    CHECK(look(&w, 1) == NULL);
    put_text(&w, "hb/r1.0000", "{\"replica\":\"r1\",\"generation\":0,\"beat\":7}");
    CHECK(look(&w, 1) == NULL);
    memset(big, ' ', sizeof big);
    CHECK_OK(dl_store_put(w.store, "hb/r1.0000", big, sizeof big, DL_NEVER));
    CHECK(look(&w, 1) == NULL);
    put_signed(&w, 2, &dl_heartbeat_alive, &w.generations[1], 7, "hb/r1.0000"); /* r2's key */
    CHECK(look(&w, 1) == NULL);
    put_signed(&w, 1, &dl_heartbeat_ended, &w.generations[1], 7, "hb/r1.0000"); /* another kind */
    CHECK(look(&w, 1) == NULL);
    beat(&w, 1, 7);
    const dl_seen *seen = look(&w, 1);
    CHECK(seen && seen->generation.number == 0 && seen->beat == 8 && !seen->ended);
    put_signed(&w, 1, &dl_heartbeat_alive, &w.generations[1], 9, "hb/r1.0001"); /* a copy */
    seen = look(&w, 1);
    CHECK(seen && seen->generation.number == 0 && seen->beat == 8);
    put_text(&w, "hb/r1.0000", "junk"); /* no party can make it alive, but anyone can hide it */
    CHECK(look(&w, 1) == NULL);
    put_text(&w, "hb/zz.0000", "junk"); /* it is not named */
    CHECK(look(&w, 1) == NULL);
    CHECK_INT(0, w.reply.watch.n_seen);
    end_world(&w);
}

/* Names of later generations may be anyone's. */
TEST(p11_the_newest_generation_is_the_newest_that_has_signed_a_heartbeat)
{
    world w;
    char key[32];
    make_world(&w, "mem://signed-generations");
    beat(&w, 1, 3);
    CHECK_INT(0, look(&w, 1)->generation.number);
    for (int g = 10; g < 300; g += 10) {
        snprintf(key, sizeof key, "hb/r1.%04d", g);
        put_text(&w, key, "junk");
    }
    put_text(&w, "hb/r1.9999999", "junk");
    CHECK_INT(0, look(&w, 1)->generation.number);
    w.generations[1].number = 1; /* the lowest name is read at each look */
    beat(&w, 1, 0);
    CHECK_INT(1, look(&w, 1)->generation.number);
    w.generations[1].number = 155; /* in the middle it is drawn sooner or later */
    beat(&w, 1, 0);
    int looks = 0;
    while (look(&w, 1)->generation.number != 155)
        CHECK(looks++ < 10000);
    CHECK_INT(155, look(&w, 1)->generation.number); /* and kept */
    end_world(&w);
}

TEST(p11_only_an_end_of_its_key_ends_a_generation)
{
    world w;
    make_world(&w, "mem://signed-ends");
    beat(&w, 1, 3);
    put_text(&w, "end/r1.0000", "{}");
    CHECK(!look(&w, 1)->ended);
    put_signed(&w, 1, &dl_heartbeat_alive, &w.generations[1], 7, "end/r1.0000");
    CHECK(!look(&w, 1)->ended);
    put_signed(&w, 1, &dl_heartbeat_ended, &w.generations[1], 0, "end/r1.0000");
    CHECK(look(&w, 1)->ended);
    put_text(&w, "hb/r1.0000", "junk"); /* a hidden heartbeat does not hide the end */
    CHECK(look(&w, 1) && look(&w, 1)->ended);
    CHECK(look(&w, 2) == NULL);
    end_world(&w);
}

TEST_MAIN(p11_only_a_heartbeat_of_its_key_shows_a_replica,
          p11_the_newest_generation_is_the_newest_that_has_signed_a_heartbeat,
          p11_only_an_end_of_its_key_ends_a_generation)

#else

TEST(a_build_without_openssl_has_no_keys_to_sign_heartbeats)
{
    dl_signer *signer;
    CHECK_STATUS(DILOCO_EREFUSED, dl_signer_generate(&signer));
}

TEST_MAIN(a_build_without_openssl_has_no_keys_to_sign_heartbeats)

#endif
