/* collection_test.c - a collection deletes only what PROTOCOL P25 allows: with objects made by
 * hand, and after whole runs, where verify has to work with the rest. */
#include "toy_run.h"

#include "exchange/generations.h"
#include "log/fields.h"
#include "run/open.h"
#include "state/collection.h"
#include "store/kind.h"
#include "store/user_store.h"
#include "toy_store.h"

/* ---- by hand ---------------------------------------------------------------------------- */

typedef struct scene {
    dl_store *store;
    dl_runfile run;
    dl_state state;
    dl_collector collector;
    float w[4];
    dl_signer *signer[2]; /* of r0 and r9, in a run with keys */
} scene;

/* A closed run also lists LISTED names of r0's, which come first in a listing. */
enum { LISTED = 1500 };
static void take_keys(scene *s, dl_config *config, dl_policy policy)
{
    static char text[(LISTED + 2) * (DL_PUBLIC_TEXT + 8)];
    char key[2][DL_PUBLIC_TEXT];
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_signer_generate(&s->signer[i]));
        dl_public_text(key[i], dl_signer_public(s->signer[i]));
    }
    CHECK_OK(dl_config_set(config, "run.roster", dl_policy_names[policy], "test"));
    if (policy != DL_CLOSED) return;
    for (int i = 0; i < LISTED; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "a%d %s\n", i, key[0]);
    at += (size_t)snprintf(text + at, sizeof text - at, "r0 %s\nr9 %s\n", key[0], key[1]);
    CHECK(at < sizeof text);
    CHECK_OK(dl_config_set(config, "run.members", scratch_write("listed", text, at), "test"));
}

static scene *scene_of(const char *url, const char *retain, const char *patience, dl_policy policy)
{
    static const dl_generation r0 = {.replica = "r0"};
    scene *s = calloc(1, sizeof *s);
    dl_config config;
    dl_hash digest;
    const diloco_tensor w = {.name = "w", .data = s->w, .n_dims = 1, .shape = {4}};
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.retain", retain, "test"));
    CHECK_OK(dl_config_set(&config, "run.patience", patience, "test"));
    CHECK_OK(dl_config_set(&config, "run.heartbeat", "0.01", "test"));
    if (policy) take_keys(s, &config, policy);
    CHECK_OK(dl_store_open(&s->store, url, true));
    const dl_run_creation what = {.config = &config,
                                  .tensors = &w,
                                  .n_tensors = 1,
                                  .data_digest = "",
                                  .signer = s->signer[0]};
    CHECK_OK(dl_run_create_or_read(&s->run, &digest, s->store, &what));
    CHECK_OK(dl_state_init(&s->state, &s->run.manifest, dl_outer_find("nesterov"), 4, 1, 1));
    dl_state_rehash(&s->state, NULL);
    for (uint64_t e = 0; e < 10; e++) {
        dl_key key;
        dl_key_contribution(key, e, &r0);
        CHECK_OK(dl_store_create(s->store, key, &(dl_span){"c", 1}, 1, NULL, DL_NEVER));
        dl_key_entry(key, e);
        CHECK_OK(dl_store_create(s->store, key, &(dl_span){"l", 1}, 1, NULL, DL_NEVER));
    }
    return s;
}

static scene *scene_make(const char *url, const char *retain, const char *patience)
{
    return scene_of(url, retain, patience, DL_TRUSTED);
}

static void scene_end(scene *s)
{
    dl_collector_deinit(&s->collector);
    dl_signer_close(s->signer[0]);
    dl_signer_close(s->signer[1]);
    dl_state_deinit(&s->state);
    dl_runfile_deinit(&s->run);
    dl_store_close(s->store);
    free(s);
}

static void snapshot_at(scene *s, uint64_t entry)
{
    s->state.control.entry = entry;
    CHECK_OK(dl_snapshot_and_collect(&s->collector, s->store, &s->state, &s->run,
                                     &(dl_generation){.replica = "r0"}, s->signer[0], DL_NEVER));
}

static void beat(scene *s, const char *generation, const char *text)
{
    char key[64];
    snprintf(key, sizeof key, "hb/%s", generation);
    CHECK_OK(dl_store_put(s->store, key, text, strlen(text), DL_NEVER));
}

static void roster_of(scene *s, const char *first, const char *second)
{
    dl_roster *r = &s->state.control.roster;
    CHECK(r->cap >= 2);
    r->n = 2;
    snprintf(r->names[0], sizeof r->names[0], "%s", first);
    snprintf(r->names[1], sizeof r->names[1], "%s", second);
}

static diloco_status note_entry(void *context, const char *key, size_t len)
{
    char *out = context;
    uint64_t entry;
    (void)len;
    if (dl_key_entry_of(&entry, key) && !strstr(key, "state.safetensors"))
        sprintf(out + strlen(out), "%llu ", (unsigned long long)entry);
    return DILOCO_OK;
}

/* Returns the entries whose contributions, or snapshots, remain. */
static const char *left(scene *s, const char *prefix)
{
    static char text[256];
    text[0] = 0;
    CHECK_OK(dl_store_list(s->store, prefix, NULL, note_entry, text, DL_NEVER));
    return text;
}

TEST(objects_older_than_the_second_newest_snapshot_are_removed)
{
    scene *s = scene_make("mem://collect", "recent", "60");
    snapshot_at(s, 2);
    CHECK_STR("0 1 2 3 4 5 6 7 8 9 ", left(s, "c/"));
    snapshot_at(s, 4);
    CHECK_STR("2 3 4 5 6 7 8 9 ", left(s, "c/"));
    CHECK_STR("2 4 ", left(s, "snap/"));
    snapshot_at(s, 7);
    CHECK_STR("4 5 6 7 8 9 ", left(s, "c/"));
    CHECK_STR("4 7 ", left(s, "snap/"));
    scene_end(s);
}

TEST(retain_all_keeps_all)
{
    scene *s = scene_make("mem://retain", "all", "60");
    for (uint64_t e = 2; e < 9; e += 2)
        snapshot_at(s, e);
    CHECK_STR("0 1 2 3 4 5 6 7 8 9 ", left(s, "c/"));
    CHECK_STR("2 4 6 8 ", left(s, "snap/"));
    scene_end(s);
}

TEST(the_log_and_the_generations_are_never_collected)
{
    scene *s = scene_make("mem://log", "recent", "60");
    CHECK_OK(dl_store_create(s->store, "gen/r0.0000", &(dl_span){"g", 1}, 1, NULL, DL_NEVER));
    for (uint64_t e = 2; e < 9; e += 2)
        snapshot_at(s, e);
    dl_buf text;
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_store_get(s->store, &text, "log/0000000000.json", DL_NEVER));
    CHECK_OK(dl_store_get(s->store, &text, "gen/r0.0000", DL_NEVER));
    CHECK_OK(dl_store_get(s->store, &text, DL_KEY_RUN, DL_NEVER));
    dl_buf_deinit(&text);
    scene_end(s);
}

TEST(a_live_heartbeat_protects_its_entry_and_a_dead_one_only_for_a_time)
{
    scene *s = scene_make("mem://hearts", "recent", "1");
    beat(s, "r8.0000", "{\"entry\":0}"); /* an earlier generation: fenced, protects nothing */
    beat(s, "r8.0001", "{\"entry\":9}");
    beat(s, "r9.0000", "{\"beat\":1,\"entry\":1}");
    s->collector.now = DL_SECOND;
    snapshot_at(s, 2);
    snapshot_at(s, 4);
    CHECK_STR("1 2 3 4 5 6 7 8 9 ", left(s, "c/"));
    s->collector.now += DL_SECOND * 6 / 10;
    beat(s, "r9.0000", "{\"beat\":2,\"entry\":1}");
    snapshot_at(s, 5);
    s->collector.now +=
        DL_SECOND * 6 / 10; /* longer than patience since it was first seen, not since it changed */
    snapshot_at(s, 6);
    CHECK_STR("1 2 3 4 5 6 7 8 9 ", left(s, "c/"));
    s->collector.now += DL_SECOND * 4 / 10;
    snapshot_at(s, 7);
    CHECK_STR("6 7 8 9 ", left(s, "c/"));
    scene_end(s);
}

TEST(unreadable_live_heartbeat_protects_everything)
{
    scene *s = scene_make("mem://garbage", "recent", "60");
    beat(s, "r9.0000", "\x01\x02");
    for (uint64_t e = 2; e < 9; e += 2)
        snapshot_at(s, e);
    CHECK_STR("0 1 2 3 4 5 6 7 8 9 ", left(s, "c/"));
    scene_end(s);
}

/* Junk names under hb/, more than a collector has places for, and first in every listing. */
TEST(more_heartbeats_than_there_is_room_for_do_not_stop_collection)
{
    scene *s = scene_make("mem://crowded-heartbeats", "recent", "1");
    char generation[32];
    roster_of(s, "r0", "r7");
    for (int i = 0; i < 2 * DL_COLLECTOR_OTHERS; i++) {
        snprintf(generation, sizeof generation, "a%d.0000", i);
        beat(s, generation, "{\"entry\":9}");
    }
    s->collector.now = DL_SECOND;
    beat(s, "r7.0001", "{\"entry\":3,\"beat\":1}");
    snapshot_at(s, 4);
    snapshot_at(s, 8);
    CHECK_STR("3 4 5 6 7 8 9 ", left(s, "c/")); /* a member's heartbeat protects its entry */
    s->collector.now += 2 * DL_SECOND;
    beat(s, "r7.0001", "{\"entry\":8,\"beat\":2}");
    snapshot_at(s, 9);
    CHECK_STR("8 9 ", left(s, "c/"));
    scene_end(s);
}

/* Anyone can create names. */
TEST(p25_names_of_snapshots_cost_a_collection_one_listing_and_few_reads)
{
    scene *s = scene_make("mem://many-names", "recent", "60");
    snapshot_at(s, 4);
    for (uint64_t e = 5; e < 405; e++) {
        dl_key key;
        dl_key_snapshot(key, e, &(dl_generation){.replica = "zz"}, "manifest.json");
        CHECK_OK(dl_store_create(s->store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    }
    const dl_store_counters before = dl_store_counts(s->store);
    snapshot_at(s, 500);
    const dl_store_counters after = dl_store_counts(s->store);
    CHECK(after.n_list - before.n_list <= 16);
    CHECK(after.n_get - before.n_get <= 128);
    CHECK_STR("4 5 6 7 8 9 ", left(s, "c/")); /* as far as this process has verified */
    scene_end(s);
}

/* ---- runs with keys */

#if DL_CRYPTO

/* r9's heartbeat of that generation, signed by r0's key or its own. */
static void beat_signed(scene *s, int by, const char *replica, uint32_t number, uint64_t n,
                        uint64_t entry)
{
    dl_key key;
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_heartbeat_writer w;
    dl_generation of = {.number = number};
    snprintf(of.replica, sizeof of.replica, "%s", replica);
    dl_heartbeat_begin(&w, &text, &dl_heartbeat_alive, s->signer[by], s->run.id, &of);
    dl_json_u64(&w.json, "beat", n);
    dl_json_u64(&w.json, "entry", entry);
    CHECK_OK(dl_heartbeat_end(&w));
    dl_key_heartbeat(key, &of);
    CHECK_OK(dl_store_put(s->store, key, text.data, text.len, DL_NEVER));
}

/* r0 has created the run, and r9 has begun its name. */
static scene *scene_of_keys(const char *url, dl_policy policy)
{
    dl_generation r9;
    scene *s = scene_of(url, "recent", "1", policy);
    CHECK_OK(dl_run_claim_generation(&r9, s->store, "r9", &s->run, &s->run.config, s->signer[1]));
    s->collector.now = DL_SECOND;
    return s;
}

static const dl_policy with_keys[] = {DL_OPEN, DL_CLOSED};

/* Returns the contributions that two snapshots leave, of which the second one collects. */
static const char *left_after_two(scene *s)
{
    snapshot_at(s, 4);
    snapshot_at(s, 8);
    return left(s, "c/");
}

TEST(p25_heartbeat_that_its_key_has_not_signed_protects_nothing)
{
    for (int p = 0; p < 2; p++) {
        scene *s = scene_of_keys(p ? "mem://forged1" : "mem://forged0", with_keys[p]);
        beat(s, "r9.0000", "{\"entry\":1,\"beat\":1}");
        beat_signed(s, 0, "r9", 1, 5, 1); /* by r0 */
        CHECK_STR("4 5 6 7 8 9 ", left_after_two(s));
        scene_end(s);
    }
}

TEST(p25_forged_later_generation_does_not_hide_a_slow_replica)
{
    for (int p = 0; p < 2; p++) {
        scene *s = scene_of_keys(p ? "mem://later1" : "mem://later0", with_keys[p]);
        beat_signed(s, 1, "r9", 0, 5, 2);
        beat(s, "r9.9999999", "{\"entry\":8,\"beat\":1}");
        CHECK_STR("2 3 4 5 6 7 8 9 ", left_after_two(s));
        scene_end(s);
    }
}

/* An old heartbeat that is written again is no change. */
TEST(p25_signed_heartbeat_protects_its_entry_until_patience_after_its_last_change)
{
    for (int p = 0; p < 2; p++) {
        scene *s = scene_of_keys(p ? "mem://signed1" : "mem://signed0", with_keys[p]);
        beat_signed(s, 1, "r9", 0, 5, 2);
        CHECK_STR("2 3 4 5 6 7 8 9 ", left_after_two(s));
        beat(s, "r9.0000", "junk"); /* hides it */
        s->collector.now += DL_SECOND * 6 / 10;
        snapshot_at(s, 9);
        CHECK_STR("2 3 4 5 6 7 8 9 ", left(s, "c/"));
        beat_signed(s, 1, "r9", 0, 4, 1);
        s->collector.now += DL_SECOND * 6 / 10;
        snapshot_at(s, 10);
        CHECK_STR("9 ", left(s, "c/"));
        scene_end(s);
    }
}

TEST(p25_heartbeat_of_a_member_counts_in_a_list_of_thousands)
{
    char name[16];
    scene *s = scene_of_keys("mem://long-list", DL_CLOSED);
    for (int i = 0; i < LISTED; i++) {
        snprintf(name, sizeof name, "a%d", i);
        beat_signed(s, 0, name, 0, 1, 9);
    }
    beat_signed(s, 1, "r9", 0, 5, 2);
    CHECK_STR("2 3 4 5 6 7 8 9 ", left_after_two(s));
    scene_end(s);
}

/* Names of replicas without a key do not keep the places that they had. */
TEST(p25_replica_that_has_signed_nothing_keeps_no_place)
{
    char generation[32];
    scene *s = scene_of_keys("mem://places", DL_OPEN);
    for (int i = 0; i < DL_COLLECTOR_OTHERS; i++) {
        snprintf(generation, sizeof generation, "a%d.0000", i);
        beat(s, generation, "{\"entry\":9}");
    }
    snapshot_at(s, 3);
    snapshot_at(s, 4);
    for (int i = 0; i < DL_COLLECTOR_OTHERS; i++) {
        dl_key key;
        snprintf(key, sizeof key, "hb/a%d.0000", i);
        CHECK_OK(dl_store_delete(s->store, key, DL_NEVER));
    }
    beat_signed(s, 1, "r9", 0, 5, 5);
    snapshot_at(s, 7);
    snapshot_at(s, 9);
    CHECK_STR("5 6 7 8 9 ", left(s, "c/"));
    scene_end(s);
}

TEST(p25_collections_read_a_members_key_once)
{
    scene *s = scene_of_keys("mem://key-once", DL_OPEN);
    beat_signed(s, 1, "r9", 0, 5, 5);
    snapshot_at(s, 4);
    snapshot_at(s, 6);
    const uint64_t before = dl_store_counts(s->store).n_get;
    snapshot_at(s, 8);
    /* the new snapshot's manifest and image, and the heartbeat */
    CHECK_INT(3, dl_store_counts(s->store).n_get - before);
    scene_end(s);
}

#else

static void needs_keys(void)
{
    CHECK(!DL_CRYPTO);
}
TEST(p25_heartbeat_that_its_key_has_not_signed_protects_nothing)
{
    needs_keys();
}
TEST(p25_forged_later_generation_does_not_hide_a_slow_replica)
{
    needs_keys();
}
TEST(p25_signed_heartbeat_protects_its_entry_until_patience_after_its_last_change)
{
    needs_keys();
}
TEST(p25_heartbeat_of_a_member_counts_in_a_list_of_thousands)
{
    needs_keys();
}
TEST(p25_replica_that_has_signed_nothing_keeps_no_place)
{
    needs_keys();
}
TEST(p25_collections_read_a_members_key_once)
{
    needs_keys();
}

#endif

TEST(a_damaged_snapshot_does_not_count_as_the_second)
{
    scene *s = scene_make("mem://second", "recent", "60");
    snapshot_at(s, 2);
    snapshot_at(s, 4);
    memset(&s->collector, 0, sizeof s->collector); /* another replica collects next */
    CHECK_OK(dl_store_put(s->store, "snap/0000000004/r0.0000/state.safetensors", "damaged", 7,
                          DL_NEVER));
    snapshot_at(s, 6);
    CHECK_STR("2 3 4 5 6 7 8 9 ", left(s, "c/"));
    CHECK_STR("2 4 6 ", left(s, "snap/"));
    scene_end(s);
}

/* Another writer's. */
TEST(a_manifest_of_another_format_version_does_not_end_a_collection)
{
    dl_buf text;
    dl_json json;
    size_t start;
    scene *s = scene_make("mem://version", "recent", "60");
    dl_buf_init(&text, 4096);
    dl_sealed_begin(&json, &start, &text, "diloco-snapshot");
    char *digit = strstr(dl_buf_str(&text), "\"version\":1");
    CHECK(digit);
    digit[strlen("\"version\":")] = '9';
    CHECK_OK(dl_sealed_end(&json, start));
    CHECK_OK(dl_store_put(s->store, "snap/0000000007/zz.0000/manifest.json", text.data, text.len,
                          DL_NEVER));
    snapshot_at(s, 4);
    snapshot_at(s, 8);
    CHECK_STR("4 5 6 7 8 9 ", left(s, "c/"));
    dl_buf_deinit(&text);
    scene_end(s);
}

/* ---- asynchronous runs ------------------------------------------------------------------- */

static void put_entry(scene *s, uint64_t entry, const char *counts, uint64_t base)
{
    static dl_entry e;
    dl_key key;
    dl_buf text;
    dl_entry_deinit(&e);
    CHECK_OK(dl_entry_init(&e, 4));
    e.commit = true;
    e.entry = entry;
    e.n_members = 1;
    e.members[0] = (dl_member){.raw = 1, .weight = 1};
    strcpy(e.members[0].generation.replica, counts);
    e.members[0].entry = base;
    strcpy(e.committer.replica, counts);
    strcpy(e.run, s->run.id);
    e.next.lr = e.next.mu = 0.5f;
    CHECK(dl_roster_add(&e.roster, counts, (uint32_t)base + 1));
    dl_buf_init(&text, 65536);
    CHECK_OK(dl_entry_write(&text, &e, dl_outer_find("nesterov")));
    dl_key_entry(key, entry);
    CHECK_OK(dl_store_put(s->store, key, text.data, text.len, DL_NEVER));
    dl_buf_deinit(&text);
}

/* r0's contributions to bases below 3 have counted. r7's to base 1 has not, and still may. */
TEST(p25_collection_keeps_only_objects_that_an_asynchronous_entry_may_name)
{
    scene *s = scene_make("mem://unnamed", "recent", "60");
    dl_key key;
    CHECK_OK(dl_config_set(&s->run.config, "server.diloco.schedule", "async", "test"));
    dl_key_contribution(key, 1, &(dl_generation){.replica = "r7"});
    CHECK_OK(dl_store_create(s->store, key, &(dl_span){"c", 1}, 1, NULL, DL_NEVER));
    CHECK(dl_roster_add(&s->state.control.roster, "r0", 7));
    put_entry(s, 4, "r0", 2);
    snapshot_at(s, 5);
    snapshot_at(s, 7);
    CHECK_STR("1 3 4 5 6 7 8 9 ", left(s, "c/"));
    scene_end(s);
}

/* A malicious member may create an entry that no replica applies; contributions that have not
 * counted remain. */
TEST(p25_a_void_entrys_roster_lets_nothing_go_that_may_count)
{
    scene *s = scene_make("mem://void", "recent", "60");
    CHECK_OK(dl_config_set(&s->run.config, "server.diloco.schedule", "async", "test"));
    CHECK(dl_roster_add(&s->state.control.roster, "r0", 2));
    put_entry(s, 4, "r0", 1000);
    snapshot_at(s, 5);
    snapshot_at(s, 7);
    CHECK_STR("2 3 4 5 6 7 8 9 ", left(s, "c/"));
    scene_end(s);
}

/* ---- snapshots that the store confirms ---------------------------------------------------- */

static void wrap(scene *s, bool vouch)
{
    CHECK_OK(dl_store_faulty(&s->store, s->store, (dl_faults){.vouch = vouch}));
}

static uint64_t n_read(const scene *s)
{
    return dl_store_counts(s->store).n_get;
}

TEST(p25_confirmed_snapshot_is_not_read_back)
{
    for (int vouch = 0; vouch < 2; vouch++) {
        scene *s = scene_make(vouch ? "mem://vouched" : "mem://unsaid", "recent", "60");
        wrap(s, vouch);
        snapshot_at(s, 2);
        CHECK_INT(vouch ? 0 : 2, n_read(s)); /* its manifest and its image */
        snapshot_at(s, 4);
        CHECK_INT(vouch ? 0 : 4, n_read(s));
        CHECK_STR("2 3 4 5 6 7 8 9 ", left(s, "c/")); /* and it counts as verified */
        scene_end(s);
    }
}

static float *changing;

/* A store that changes the state after its manifest was made. */
static diloco_status create_changed(void *user, void *handle, const char *key,
                                    const diloco_user_bytes *parts, size_t n, bool *taken,
                                    double timeout_s)
{
    if (strstr(key, "state.safetensors")) *changing += 1;
    return user_store_create(user, handle, key, parts, n, taken, timeout_s);
}

TEST(p25_confirmed_snapshot_that_differs_from_its_manifest_is_found)
{
    char name[DL_STORE_USER_NAME];
    diloco_user_store changed = user_store();
    changed.create = create_changed;
    CHECK_OK(dl_store_add_user(name, &changed));
    scene *s = scene_make("user://mine/changed", "recent", "60");
    changing = s->state.now[0].theta;
    wrap(s, true);
    s->state.control.entry = 2;
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_snapshot_and_collect(&s->collector, s->store, &s->state, &s->run,
                                         &(dl_generation){.replica = "r0"}, NULL, DL_NEVER));
    CHECK_INT(0, s->collector.verified_entry);
    scene_end(s);
    dl_store_drop_user("mine");
}

/* ---- a writer that is faster than a collection -------------------------------------------- */

static struct {
    int n, most;
    bool always; /* or until a contribution is gone */
    bool contribution_gone;
} forging;

static void put_name(void *handle, const char *letter, int i)
{
    dl_key key;
    dl_generation of = {.number = 0};
    snprintf(of.replica, sizeof of.replica, "%s%06d", letter, i);
    dl_key_snapshot(key, 1, &of, "manifest.json");
    CHECK_OK(dl_store_create(handle, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
}

/* Each deletion of a name in snap/ is followed by a later name there. */
static diloco_status remove_and_forge(void *user, void *handle, const char *key, double timeout_s)
{
    forging.contribution_gone |= !strncmp(key, "c/", 2);
    if (!strncmp(key, "snap/", 5) && (forging.always || !forging.contribution_gone) &&
        forging.n < forging.most)
        put_name(handle, "z", forging.n++);
    return user_store_remove(user, handle, key, timeout_s);
}

static scene *begin_forging(const char *url, int most, bool always)
{
    char name[DL_STORE_USER_NAME];
    diloco_user_store store = user_store();
    store.remove = remove_and_forge;
    memset(&forging, 0, sizeof forging);
    forging.most = most;
    forging.always = always;
    CHECK_OK(dl_store_add_user(name, &store));
    scene *s = scene_make(url, "recent", "60");
    for (int i = 0; i < 100; i++)
        put_name(s->store, "y", i);
    snapshot_at(s, 4);
    return s;
}

TEST(p25_names_that_come_faster_than_they_are_deleted_keep_no_contribution)
{
    scene *s = begin_forging("user://mine/forging", 70000, false);
    snapshot_at(s, 8);
    CHECK(forging.n < forging.most);
    CHECK_STR("4 5 6 7 8 9 ", left(s, "c/"));
    CHECK_STR("4 8 ", left(s, "snap/"));
    scene_end(s);
    dl_store_drop_user("mine");
}

TEST(p25_collection_ends_for_a_newer_snapshot_which_continues_it)
{
    scene *s = begin_forging("user://mine/always", 140000, true);
    atomic_store(&s->collector.newer, true);
    snapshot_at(s, 8);
    CHECK(forging.n < forging.most);
    CHECK_STR("4 5 6 7 8 9 ", left(s, "c/"));
    forging.most = 0;
    atomic_store(&s->collector.newer, false);
    put_name(s->store, "a", 0); /* before the place where the last one ended */
    snapshot_at(s, 9);
    CHECK_STR("8 9 ", left(s, "snap/"));
    scene_end(s);
    dl_store_drop_user("mine");
}

/* ---- after whole runs ------------------------------------------------------------------- */

static atomic_uint n_commits;          /* in the record */
static atomic_bool was_slow, given_up; /* a deletion has waited for another one, or in vain */

/* The first deletion takes until another entry is committed, or 20 s. */
static diloco_status remove_slowly(void *user, void *handle, const char *key, double timeout_s)
{
    const unsigned before = atomic_load(&n_commits);
    for (int i = 0; i < 4000 && !atomic_load(&was_slow) && !atomic_load(&given_up); i++) {
        if (atomic_load(&n_commits) > before) atomic_store(&was_slow, true);
        if (i == 3999) atomic_store(&given_up, true);
        usleep(5000);
    }
    return user_store_remove(user, handle, key, timeout_s);
}

static void count_commits(toy *t, diloco_run *run, const char *line)
{
    (void)t, (void)run;
    if (strstr(line, "\"event\":\"commit\"")) atomic_fetch_add(&n_commits, 1);
}

/* A run of 200 entries over that store, with a snapshot at each. */
static void live_over(const diloco_user_store *store, const char *url, const char *kept)
{
    char name[DL_STORE_USER_NAME];
    CHECK_OK(dl_store_add_user(name, store));
    toy t = toy_of("r0", url);
    toy_keep(kept);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.snapshot_every", "0.001");
    toy_set(&t, "run.single_committer", "r0");
    toy_set(&t, "trainer.rounds", "200");
    t.step_us = 500;
    t.heard = count_commits;
    toy_live(&t);
    TOY_OK(t);
    dl_store_drop_user("mine");
}

/* Other writers may have created any number of names that a collection deletes. */
TEST(p25_run_goes_on_during_a_collection_that_takes_long)
{
    diloco_user_store slow = user_store();
    slow.remove = remove_slowly;
    live_over(&slow, "user://mine/slow", "mem://user.slow");
    CHECK(atomic_load(&was_slow));
}

static atomic_uint n_snapshots;
static atomic_int asked;         /* listings of snap/ by collections that may delete */
static void *_Atomic slow;       /* the handle of the one that was slow */
static atomic_bool slow_deletes; /* it has deleted an object */

static diloco_status create_counted(void *user, void *handle, const char *key,
                                    const diloco_user_bytes *parts, size_t n, bool *taken,
                                    double timeout_s)
{
    const diloco_status status = user_store_create(user, handle, key, parts, n, taken, timeout_s);
    if (!status && strstr(key, "manifest.json")) atomic_fetch_add(&n_snapshots, 1);
    return status;
}

/* One listing of a collection takes until two more snapshots are written, or 20 s. */
static diloco_status list_slowly(void *user, void *handle, const char *prefix, const char *after,
                                 diloco_user_found_fn found, void *context, double timeout_s)
{
    const unsigned before = atomic_load(&n_snapshots);
    if (!strcmp(prefix, "snap/") && before >= 3 && atomic_fetch_add(&asked, 1) == 0) {
        for (int i = 0; i < 4000 && atomic_load(&n_snapshots) < before + 2; i++)
            usleep(5000);
        if (atomic_load(&n_snapshots) >= before + 2) atomic_store(&slow, handle);
    }
    return user_store_list(user, handle, prefix, after, found, context, timeout_s);
}

static diloco_status remove_by_slow(void *user, void *handle, const char *key, double timeout_s)
{
    if (handle == atomic_load(&slow)) atomic_store(&slow_deletes, true);
    return user_store_remove(user, handle, key, timeout_s);
}

/* It would delete nothing if each snapshot ended it. */
TEST(p25_collection_that_takes_longer_than_snapshots_come_deletes)
{
    diloco_user_store store = user_store();
    store.create = create_counted;
    store.list = list_slowly;
    store.remove = remove_by_slow;
    live_over(&store, "user://mine/slow-listing", "mem://user.slow-listing");
    CHECK(atomic_load(&slow) && atomic_load(&slow_deletes));
}

static diloco_verify_report verify_run(const char *store, const char *retain)
{
    toy all[2];
    diloco_verify_report report;
    toy_keep(store);
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "run.retain", retain);
    toy_set_all(all, 2, "run.snapshot_every", "0.001");
    toy_set_all(all, 2, "trainer.rounds", "30");
    all[0].step_us = all[1].step_us = 2000; /* so that heartbeats name later entries */
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_INT(30, report.entries);
    CHECK_INT(30, report.chained);
    CHECK_INT(30, report.first_replayed + report.replayed);
    CHECK(report.complete);
    return report;
}

TEST(verify_works_after_collection_and_from_the_beginning_without)
{
    const diloco_verify_report recent = verify_run("mem://recent", "recent"),
                               all = verify_run("mem://all", "all");
    CHECK(recent.first_replayed > 0);
    CHECK_INT(0, all.first_replayed);
    CHECK_STR(all.digest, recent.digest);
}

/* The same objects as after a slow replica uploads a snapshot when others have collected. */
TEST(verify_skips_a_snapshot_whose_contributions_were_deleted)
{
    diloco_verify_report report = verify_run("mem://straggler", "recent");
    const uint64_t first = report.first_replayed;
    dl_store *store;
    CHECK_OK(dl_store_open(&store, "mem://straggler", false));
    for (int i = 0; i < 2; i++) {
        dl_key key;
        const dl_generation generation = {.replica = {'r', (char)('0' + i)}};
        dl_key_contribution(key, first, &generation);
        CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    }
    CHECK_OK(diloco_verify(&report, "mem://straggler", 1, NULL, NULL));
    CHECK(report.first_replayed > first);
    CHECK_INT(30, report.first_replayed + report.replayed);
    dl_store_close(store);
}

TEST_MAIN(objects_older_than_the_second_newest_snapshot_are_removed, retain_all_keeps_all,
          more_heartbeats_than_there_is_room_for_do_not_stop_collection,
          the_log_and_the_generations_are_never_collected,
          a_live_heartbeat_protects_its_entry_and_a_dead_one_only_for_a_time,
          unreadable_live_heartbeat_protects_everything,
          p25_names_of_snapshots_cost_a_collection_one_listing_and_few_reads,
          p25_heartbeat_that_its_key_has_not_signed_protects_nothing,
          p25_forged_later_generation_does_not_hide_a_slow_replica,
          p25_signed_heartbeat_protects_its_entry_until_patience_after_its_last_change,
          p25_heartbeat_of_a_member_counts_in_a_list_of_thousands,
          a_damaged_snapshot_does_not_count_as_the_second,
          a_manifest_of_another_format_version_does_not_end_a_collection,
          p25_collection_keeps_only_objects_that_an_asynchronous_entry_may_name,
          p25_a_void_entrys_roster_lets_nothing_go_that_may_count,
          p25_confirmed_snapshot_is_not_read_back,
          p25_confirmed_snapshot_that_differs_from_its_manifest_is_found,
          p25_run_goes_on_during_a_collection_that_takes_long,
          p25_collection_that_takes_longer_than_snapshots_come_deletes,
          p25_names_that_come_faster_than_they_are_deleted_keep_no_contribution,
          p25_collection_ends_for_a_newer_snapshot_which_continues_it,
          p25_replica_that_has_signed_nothing_keeps_no_place,
          p25_collections_read_a_members_key_once,
          verify_works_after_collection_and_from_the_beginning_without,
          verify_skips_a_snapshot_whose_contributions_were_deleted)
