/* listing_test.c - the requests and the result of one listing of contributions in a run of keys,
 * however many objects others have put under c/. */
#include "exchange/exec_parts.h"

#include "check.h"
#include "exchange/generations.h"
#include "run/open.h"
#include "scratch.h"

#if DL_CRYPTO

#include "toy_keys.h"

/* LOOKS_NAMED and LOOKS_OTHER of listing.c */
enum { N = 10, NAMED = 64, OTHER = 16, JUNK = 300, LISTED = 20 };

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

static const char *list_of(int listed)
{
    static char text[(LISTED + 2) * (DL_PUBLIC_TEXT + 8)];
    char key[DL_PUBLIC_TEXT];
    size_t at = 0;
    for (int i = 0; i < listed + 2; i++) {
        public_of(key, i == listed + 1 ? "r1" : "r0");
        at += (size_t)(i < listed
                           ? snprintf(text + at, sizeof text - at, "a%03d %s\n", i, key)
                           : snprintf(text + at, sizeof text - at, "r%d %s\n", i - listed, key));
    }
    return scratch_write("listed", text, at);
}

/* `listed`: names of a closed list before r0 and r1, of r0's key. */
static void make_world(world *w, const char *url, const char *roster, int listed)
{
    static float values[N];
    const diloco_tensor tensor = {.name = "w", .data = values, .n_dims = 1, .shape = {N}};
    dl_hash digest;
    dl_config_init(&w->config);
    CHECK_OK(dl_config_set(&w->config, "run.store", url, "test"));
    CHECK_OK(dl_config_set(&w->config, "run.roster", roster, "test"));
    if (!strcmp(roster, "closed"))
        CHECK_OK(dl_config_set(&w->config, "run.members", list_of(listed), "test"));
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
    if (!strcmp(roster, "invited"))
        CHECK_OK(dl_config_set(&w->file.config, "run.invitation", invite(url, "r0", 3600), "test"));
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
static int reads_of_a_listing(world *w, size_t n_listed)
{
    const dl_request request = {.kind = DL_REQUEST_LIST, .entry = 0};
    dl_reply reply = {.status = DILOCO_OK};
    const dl_store_counters before = dl_store_counts(w->store);
    dl_exec_do(w->exec, &request, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK_INT(n_listed, reply.list.n_listed);
    const dl_store_counters now = dl_store_counts(w->store);
    CHECK_INT(before.n_list + 1, now.n_list);
    return (int)(now.n_get - before.n_get);
}

/* A listing reads the key of r1 once, in `reads_of_r1` reads. It reads at most `others` objects of
 * names that no entry waits for: none whose name a closed list does not have. */
static void check_junk(const char *roster, int reads_of_r1, int others)
{
    world w;
    char key[64];
    snprintf(key, sizeof key, "mem://listing-%s", roster);
    make_world(&w, key, roster, 0);
    CHECK_INT(0, reads_of_a_listing(&w, 0));
    for (int i = 0; i < JUNK; i++) {
        snprintf(key, sizeof key, "c/0000000000/r1.%04d", i);
        put_junk(w.store, key);
        snprintf(key, sizeof key, "c/0000000000/a%03d.0000", i);
        put_junk(w.store, key);
    }
    int all = reads_of_r1 + NAMED + others;
    CHECK_INT(all, reads_of_a_listing(&w, 0));
    for (int n = 1; n > 0; all += n) {
        n = reads_of_a_listing(&w, 0);
        CHECK(n <= NAMED + others);
    }
    CHECK_INT(reads_of_r1 + (others ? 2 : 1) * JUNK, all); /* no object is read twice */
    end_world(&w);
}

TEST(junk_in_c_costs_at_most_80_reads_a_listing)
{
    check_junk("open", 1, OTHER);
    check_junk("invited", 3, OTHER); /* and its invitation and admission */
    check_junk("closed", 0, 0);
}

/* An empty contribution to entry 0 that r0's or r1's key has signed. */
static void announce(world *w, const char *replica, uint32_t generation, int by)
{
    dl_key key;
    unsigned char object[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
    dl_contribution facts = {.codec = "f32", .body = dl_digest_bytes("", 0)};
    memcpy(facts.run, w->file.id, sizeof facts.run);
    snprintf(facts.generation.replica, sizeof facts.generation.replica, "%s", replica);
    facts.generation.number = generation;
    CHECK_OK(dl_contribution_sign(object, &facts, w->signers[by], NULL, 0));
    dl_key_contribution(key, 0, &facts.generation);
    CHECK_OK(dl_store_create(w->store, key, &(dl_span){object, sizeof object}, 1, NULL, DL_NEVER));
}

static bool lists(world *w, const char *replica)
{
    const dl_request request = {.kind = DL_REQUEST_LIST, .entry = 0};
    dl_reply reply = {.status = DILOCO_OK};
    dl_exec_do(w->exec, &request, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    for (size_t i = 0; i < reply.list.n_listed; i++)
        if (!strcmp(reply.list.listed[i].generation.replica, replica)) return true;
    return false;
}

/* The exchange has four slots. A key may have any number of the list's names. */
TEST(p9_13_members_of_a_long_list_take_no_slot_from_the_roster)
{
    world w;
    char name[16];
    make_world(&w, "mem://long-list", "closed", LISTED);
    for (int i = 0; i < LISTED; i++) {
        snprintf(name, sizeof name, "a%03d", i);
        announce(&w, name, 0, 0);
    }
    CHECK(!lists(&w, "r1"));
    announce(&w, "r1", 0, 1);
    CHECK(lists(&w, "r1"));
    CHECK(lists(&w, "r1"));
    end_world(&w);
}

/* A world in which two entries' worth of checks come before r1's object: `put` makes them under a
 * name of the roster that sorts before r1. */
static void make_crowd(world *w, const char *url, void (*put)(world *w, uint32_t generation))
{
    make_world(w, url, "closed", LISTED);
    CHECK(dl_roster_add(&dl_exec_state(w->exec)->control.roster, "a000", 0));
    for (uint32_t i = 0; i < 2 * NAMED; i++)
        put(w, i);
    announce(w, "r1", 0, 1);
}

static void add_signed(world *w, uint32_t generation)
{
    announce(w, "a000", generation, 0);
}

static void add_unsigned(world *w, uint32_t generation)
{
    char key[64];
    snprintf(key, sizeof key, "c/0000000000/a000.%04u", (unsigned)generation);
    put_junk(w->store, key);
}

/* A replica that starts again and again has a valid object of each generation. */
TEST(p9_14_checks_of_old_generations_are_kept)
{
    world w;
    make_crowd(&w, "mem://generations", add_signed);
    int n = 0;
    while (!lists(&w, "r1") && n < 3)
        n++;
    CHECK(n < 3);
    for (int reads = 1; reads > 0; n++)
        CHECK((reads = reads_of_a_listing(&w, 3)) <= NAMED);
    CHECK(n < 5);
    end_world(&w);
}

TEST(p9_14_one_object_of_each_replica_is_checked_first)
{
    world w;
    make_crowd(&w, "mem://crowded", add_unsigned);
    CHECK(lists(&w, "r1"));
    end_world(&w);
}

TEST_MAIN(junk_in_c_costs_at_most_80_reads_a_listing,
          p9_13_members_of_a_long_list_take_no_slot_from_the_roster,
          p9_14_checks_of_old_generations_are_kept,
          p9_14_one_object_of_each_replica_is_checked_first)

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
