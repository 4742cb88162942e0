/* snapshot_test.c - a joining replica gets the newest whole state, whatever damage the others have,
 * or theta0 if no snapshot is whole. An unreachable object does not count as damage. */
#include "check.h"
#include "log/fields.h"
#include "scratch.h"
#include "state/snapshot_parts.h"
#include "state/state.h"

#include <diloco/log.h>

#define RUN   "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"

static const diloco_tensor tensors[] = {
    {"embed", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {700, 3}, 0},
    {"scale", NULL, DILOCO_F32, DILOCO_FROZEN, 1, {5}, 0},
    {"counts", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {2}, 1},
};

static const dl_generation r0 = {"r0", 0}, r1 = {"r1", 2};

typedef struct scene {
    dl_runfile run;
    dl_hash run_digest;
    const dl_signer *signer; /* of entries; NULL: the run has no keys */
    dl_store *store;
    char url[PATH_MAX];
    dl_state state, back;
    char log[4096]; /* warnings, one after another */
} scene;

static void keep_line(void *user, diloco_log_level level, const char *line)
{
    scene *s = user;
    CHECK_INT(DILOCO_LOG_WARN, level);
    strncat(s->log, line, sizeof s->log - strlen(s->log) - 1);
}

/* Makes a state that contains the number of its entry. */
static void fill(dl_state *state, uint64_t entry)
{
    for (int f = 0; f < state->manifest->n_fragments; f++) {
        const dl_fragment_shape *shape = &state->manifest->fragments[f];
        dl_fragment_state *now = &state->now[f];
        for (size_t i = 0; i < shape->n_trained + shape->n_averaged; i++)
            now->theta[i] = (float)(entry * 10000 + i);
        for (size_t i = 0; i < shape->n_trained; i++)
            now->outer[0][i] = (float)i * (float)entry;
        for (size_t i = 0; i < shape->n_integers; i++)
            now->integers[i] = (int64_t)(entry - i);
        now->n_commits = entry / 2;
    }
    dl_state_rehash(state, NULL);
    state->control.entry = entry;
    state->control.prev = dl_hash_bytes(&entry, sizeof entry);
    state->control.n_aborts = entry % 3;
    state->control.lr = 0.7f;
    state->control.mu = 0.9f;
}

static void put_theta0(scene *s)
{
    dl_buf header;
    dl_span spans[16];
    dl_key key;
    size_t n;
    dl_digest_stream stream;
    fill(&s->state, 0);
    dl_buf_init(&header, 1 << 20);
    CHECK_OK(dl_state_image(&header, spans, 16, &n, &s->state, &s->run.config));
    dl_digest_begin(&stream);
    for (size_t i = 0; i < n; i++)
        dl_digest_add(&stream, spans[i].data, spans[i].len);
    s->run.theta0_file = dl_digest_end(&stream);
    s->run.theta0 = dl_state_digest_all(&s->state);
    dl_key_theta0(key, s->run.theta0_file);
    CHECK_OK(dl_store_create(s->store, key, spans, n, NULL, DL_NEVER));
    dl_buf_deinit(&header);
}

static void scene_begin(scene *s, const char *name)
{
    memset(s, 0, sizeof *s);
    snprintf(s->url, sizeof s->url, "%s", scratch_path(name));
    strcpy(s->run.id, RUN);
    s->run_digest = dl_hash_bytes("run.json", 8);
    dl_config_init(&s->run.config);
    CHECK_OK(dl_manifest_init(&s->run.manifest, tensors, 3, false));
    CHECK_OK(dl_store_open(&s->store, s->url, true));
    const dl_outer *outer = dl_outer_find("nesterov");
    CHECK_OK(dl_state_init(&s->state, &s->run.manifest, outer, 4, 2, 1));
    CHECK_OK(dl_state_init(&s->back, &s->run.manifest, outer, 4, 1, 1));
    put_theta0(s);
    diloco_log_set(keep_line, s, DILOCO_LOG_WARN);
}

static void scene_end(scene *s)
{
    diloco_log_set(NULL, NULL, DILOCO_LOG_WARN);
    dl_store_close(s->store);
    dl_state_deinit(&s->state);
    dl_state_deinit(&s->back);
    dl_runfile_deinit(&s->run);
}

/* Writes log/<e-1>, whose result for that fragment is `result`. The state's prev is its digest. */
static void put_log_of(scene *s, const dl_generation *committer, uint32_t fragment, dl_hash result)
{
    dl_entry e;
    dl_key key;
    dl_buf text;
    CHECK_OK(dl_entry_init(&e, 1));
    strcpy(e.run, RUN);
    strcpy(e.abort.reason, "made for a test"); /* an abort needs no members */
    e.entry = s->state.control.entry - 1;
    e.fragment = fragment;
    e.committer = *committer;
    e.base = e.result = result;
    const dl_bans *bans = s->state.control.bans;
    if (bans) e.bans = (dl_entry_bans){.there = true, .digest = dl_bans_digest(bans)};
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    CHECK_OK(dl_entry_write(&text, &e, s->state.outer));
    const dl_statement what = dl_entry_statement(&e);
    if (s->signer) CHECK_OK(dl_sealed_sign(&text, 0, s->signer, &what));
    dl_key_entry(key, e.entry);
    CHECK_OK(dl_store_create(s->store, key, &(dl_span){text.data, text.len}, 1, NULL, DL_NEVER));
    s->state.control.prev = dl_hash_bytes(text.data, text.len);
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
}

static void put_log(scene *s, uint32_t fragment, dl_hash result)
{
    put_log_of(s, &r0, fragment, result);
}

static void put_snapshot_after(scene *s, uint64_t entry, const dl_generation *generation,
                               const dl_generation *committer)
{
    fill(&s->state, entry);
    put_log_of(s, committer, 1, s->state.now[1].digest);
    CHECK_OK(dl_snapshot_write(NULL, s->store, &s->state, &s->run, generation, NULL, DL_NEVER));
}

/* Writes a snapshot in the name of the entry's committer, as a run does. */
static void put_snapshot(scene *s, uint64_t entry, const dl_generation *generation)
{
    put_snapshot_after(s, entry, generation, generation);
}

static diloco_status read_newest(scene *s, uint64_t before)
{
    return dl_snapshot_read_newest(&s->back, s->store, &s->run, s->run_digest, before, NULL,
                                   DL_NEVER);
}

static diloco_status read_oldest(scene *s, uint64_t from)
{
    return dl_snapshot_read_oldest(&s->back, s->store, &s->run, s->run_digest, from, NULL,
                                   DL_NEVER);
}

/* Checks that `back` is the state that `fill` makes for that entry. */
static void check_back(scene *s, uint64_t entry)
{
    CHECK_INT(entry, s->back.control.entry);
    fill(&s->state, entry);
    CHECK(dl_hash_equal(dl_state_digest_all(&s->state), dl_state_digest_all(&s->back)));
    CHECK_BYTES(s->state.now[0].theta, s->back.now[0].theta, 2105 * sizeof(float));
}

/* Changes the file of an object without the store. */
static void spoil(scene *s, const char *key, long at, int flip)
{
    char path[PATH_MAX + DL_KEY_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", s->url, key);
    chmod(path, 0666);
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL);
    CHECK_INT(0, fseek(file, at, at < 0 ? SEEK_END : SEEK_SET));
    int c = fgetc(file);
    CHECK(c != EOF);
    CHECK_INT(0, fseek(file, -1, SEEK_CUR));
    CHECK(fputc(c ^ flip, file) != EOF);
    CHECK_INT(0, fclose(file));
}

static void cut(scene *s, const char *key, long len)
{
    char path[PATH_MAX + DL_KEY_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", s->url, key);
    chmod(path, 0666);
    CHECK_INT(0, truncate(path, len));
}

TEST(a_snapshot_reads_back_with_its_control_state)
{
    scene s;
    scene_begin(&s, "round");
    CHECK(dl_roster_add(&s.state.control.roster, "r10", 2));
    CHECK(dl_roster_add(&s.state.control.roster, "r9", 0));
    s.state.control.snapshot = 3;
    s.state.control.last = true;
    put_snapshot(&s, 5, &r1);
    CHECK_OK(read_newest(&s, UINT64_MAX));
    const dl_control *c = &s.back.control;
    CHECK(dl_hash_equal(s.state.control.prev, c->prev));
    check_back(&s, 5);
    CHECK_INT(2, c->n_aborts);
    CHECK_INT(5, c->snapshot); /* the snapshot itself is newer than the one that it knew */
    CHECK(c->lr == 0.7f && c->mu == 0.9f && c->last);
    CHECK_INT(2, c->roster.n);
    CHECK_STR("r9", c->roster.names[0]);
    CHECK_INT(2, c->roster.misses[1]);
    CHECK_INT(2, s.back.now[1].n_commits);
    CHECK_STR("", s.log);
    scene_end(&s);
}

TEST(the_newest_snapshot_at_or_before_an_entry_is_chosen_or_the_oldest_on_request)
{
    scene s;
    scene_begin(&s, "choice");
    put_snapshot(&s, 5, &r0);
    put_snapshot(&s, 12, &r1);
    put_snapshot_after(&s, 12, &r0, &r1);
    put_snapshot(&s, 9, &r1);
    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 12);
    CHECK_OK(read_newest(&s, 11));
    check_back(&s, 9);
    CHECK_OK(read_newest(&s, 5));
    check_back(&s, 5);
    CHECK_OK(read_oldest(&s, 0));
    check_back(&s, 5);
    CHECK_OK(read_oldest(&s, 6));
    check_back(&s, 9);
    CHECK_STATUS(DILOCO_ENOENT, read_oldest(&s, 13));
    CHECK_STR("", s.log);
    scene_end(&s);
}

TEST(without_a_snapshot_the_run_begins_at_theta0)
{
    scene s;
    scene_begin(&s, "theta0");
    fill(&s.back, 77);
    CHECK(dl_roster_add(&s.back.control.roster, "stale", 2));
    s.back.control.last = true;
    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 0);
    const dl_control *c = &s.back.control;
    CHECK(dl_hash_equal(s.run_digest, c->prev));
    CHECK(c->n_aborts == 0 && c->snapshot == 0 && c->roster.n == 0 && !c->last);
    CHECK_INT(4, c->roster.cap);
    CHECK(c->lr == (float)s.run.config.outer_lr && c->mu == (float)s.run.config.outer_mu);
    put_snapshot(&s, 5, &r0);
    CHECK_OK(read_newest(&s, 4));
    check_back(&s, 0);
    scene_end(&s);
}

TEST(a_damaged_snapshot_is_skipped_with_a_warning)
{
    static const struct {
        const char *file;
        long at;
    } damage[] = {{"state.safetensors", 3},    {"state.safetensors", 100},
                  {"state.safetensors", 5000}, {"state.safetensors", -1},
                  {"manifest.json", 0},        {"manifest.json", 60},
                  {"manifest.json", -40}};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        scene s;
        char name[32];
        dl_key key;
        snprintf(name, sizeof name, "damaged%zu", i);
        scene_begin(&s, name);
        put_snapshot(&s, 5, &r0);
        put_snapshot(&s, 9, &r1);
        dl_key_snapshot(key, 9, &r1, damage[i].file);
        spoil(&s, key, damage[i].at, 1);
        CHECK_OK(read_newest(&s, UINT64_MAX));
        check_back(&s, 5);
        CHECK_CONTAINS("snapshot of entry 9 by r1.0002 skipped", s.log);
        CHECK_STATUS(DILOCO_EPROTO, dl_snapshot_verify(s.store, 9, &r1, &s.run, DL_NEVER));
        CHECK_OK(dl_snapshot_verify(s.store, 5, &r0, &s.run, DL_NEVER));
        scene_end(&s);
    }
}

TEST(a_damaged_snapshot_of_another_than_the_committer_is_refused)
{
    scene s;
    dl_key key;
    scene_begin(&s, "strangers");
    put_snapshot_after(&s, 5, &r1, &r0);
    CHECK_OK(dl_snapshot_verify(s.store, 5, &r1, &s.run, DL_NEVER));
    dl_key_snapshot(key, 5, &r1, "state.safetensors");
    spoil(&s, key, 4000, 1);
    CHECK_STATUS(DILOCO_EREFUSED, dl_snapshot_verify(s.store, 5, &r1, &s.run, DL_NEVER));
    CHECK_CONTAINS("r1.0002 did not create the entry before it", diloco_error_text());
    scene_end(&s);
}

TEST(a_truncated_or_missing_state_is_skipped)
{
    scene s;
    dl_key key;
    scene_begin(&s, "truncated");
    put_snapshot(&s, 5, &r0);
    put_snapshot(&s, 9, &r1);
    put_snapshot(&s, 10, &r1);
    dl_key_snapshot(key, 9, &r1, "state.safetensors");
    cut(&s, key, 4000);
    dl_key_snapshot(key, 10, &r1, "state.safetensors");
    CHECK_OK(dl_store_delete(s.store, key, DL_NEVER));
    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_CONTAINS("snapshot of entry 10", s.log);
    CHECK_CONTAINS("snapshot of entry 9", s.log);
    CHECK_STATUS(DILOCO_ENOENT, dl_snapshot_verify(s.store, 10, &r1, &s.run, DL_NEVER));
    CHECK_STATUS(DILOCO_EPROTO, dl_snapshot_verify(s.store, 9, &r1, &s.run, DL_NEVER));
    CHECK_CONTAINS("snapshot of entry 9", diloco_error_text());
    scene_end(&s);
}

TEST(snapshot_without_its_manifest_does_not_count)
{
    scene s;
    dl_key key;
    scene_begin(&s, "halfway");
    put_snapshot(&s, 5, &r0);
    put_snapshot(&s, 9, &r1);
    dl_key_snapshot(key, 9, &r1, "manifest.json");
    CHECK_OK(dl_store_delete(s.store, key, DL_NEVER));
    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_STR("", s.log);
    CHECK_STATUS(DILOCO_ENOENT, dl_snapshot_verify(s.store, 9, &r1, &s.run, DL_NEVER));
    scene_end(&s);
}

TEST(snapshot_with_wrong_digests_is_skipped)
{
    scene s;
    scene_begin(&s, "lying");
    put_snapshot(&s, 5, &r0);
    fill(&s.state, 9);
    s.state.now[0].digest = dl_hash_bytes("another", 7); /* an error in the writer's memory */
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r1, NULL, DL_NEVER));
    CHECK_OK(dl_snapshot_verify(s.store, 9, &r1, &s.run, DL_NEVER));
    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_CONTAINS("fragment 0", s.log);
    scene_end(&s);
}

TEST(a_snapshot_that_does_not_follow_the_log_is_skipped)
{
    scene s;
    scene_begin(&s, "astray");
    put_snapshot(&s, 5, &r0);
    fill(&s.state, 6); /* no log/5 */
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    fill(&s.state, 9); /* another result than log/8's */
    put_log(&s, 0, dl_hash_bytes("another", 7));
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    fill(&s.state, 12); /* another prev than log/11 */
    put_log(&s, 0, s.state.now[0].digest);
    s.state.control.prev = dl_hash_bytes("another", 7);
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    fill(&s.state, 15); /* a fragment that the run does not have */
    put_log(&s, 2, s.state.now[0].digest);
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    fill(&s.state, 0); /* theta0 is no snapshot */
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));

    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_CONTAINS("log/0000000014.json is of fragment 2", s.log);
    CHECK_CONTAINS("prev is not the digest of log/0000000011.json", s.log);
    CHECK_CONTAINS("not the result of log/0000000008.json", s.log);
    CHECK_CONTAINS("snapshot of entry 6 by r0.0000 skipped", s.log);
    CHECK_OK(read_oldest(&s, 0));
    check_back(&s, 5);
    CHECK_CONTAINS("it follows no entry", s.log);
    scene_end(&s);
}

static void forge_names(scene *s, uint64_t entry, int n)
{
    for (int i = 0; i < n; i++) {
        dl_key key;
        dl_generation of = {.number = (uint32_t)i};
        snprintf(of.replica, sizeof of.replica, "a");
        dl_key_snapshot(key, entry, &of, "manifest.json");
        CHECK_OK(dl_store_create(s->store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    }
}

static void check_next(scene *s, size_t room, uint64_t entry)
{
    dl_snapshot_name which;
    bool there;
    dl_snapshot_listing list = {.store = s->store,
                                .run = &s->run,
                                .until = DL_NEVER,
                                .before = UINT64_MAX,
                                .newest = true,
                                .room = room};
    CHECK_OK(dl_snapshot_list(&list));
    CHECK_OK(dl_snapshot_next(&there, &which, &list));
    CHECK(there && which.entry == entry && dl_generation_equal(&which.generation, &r0));
    dl_buf_deinit(&list.found);
}

static diloco_status count_call(void *context, uint64_t entry, const dl_generation *generation)
{
    uint64_t *last = context; /* one call for each entry, in order */
    CHECK(entry > *last && dl_generation_equal(generation, &r0));
    *last = entry;
    return DILOCO_OK;
}

static dl_time never(void)
{
    return DL_NEVER;
}

/* So a reader's time does not grow with the number of forged names, but for one listing. */
TEST(p6_of_many_names_each_entry_has_one_that_is_tried)
{
    scene s;
    uint64_t last = 0;
    size_t n_names;
    scene_begin(&s, "crowded-each");
    put_snapshot(&s, 3, &r0);
    put_snapshot(&s, 5, &r0);
    forge_names(&s, 3, 40);
    forge_names(&s, 5, 40);
    forge_names(&s, 9, 100);
    CHECK_OK(dl_snapshot_each(&n_names, s.store, &s.run, count_call, &last, never));
    CHECK_INT(5, last);
    CHECK_INT(182, n_names);
    scene_end(&s);
}

/* Anyone can create more names than a reader has room for, before the valid one and after it. */
TEST(p6_more_names_than_there_is_room_for_hide_no_snapshot)
{
    scene s;
    scene_begin(&s, "crowded");
    put_snapshot(&s, 3, &r0);
    put_snapshot(&s, 5, &r0);
    forge_names(&s, 3, 40);
    forge_names(&s, 5, 40);
    forge_names(&s, 9, 100);
    check_next(&s, 32, 5);
    scene_end(&s);
}

/* With few names for each of several entries, too, only the creators' are tried. */
TEST(p6_names_for_later_entries_hide_no_snapshot)
{
    scene s;
    scene_begin(&s, "later");
    put_snapshot(&s, 5, &r0);
    for (uint64_t e = 5; e < 15; e++) {
        dl_key key;
        dl_key_entry(key, e);
        CHECK_OK(dl_store_create(s.store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
        forge_names(&s, e + 1, 7);
    }
    check_next(&s, 32, 5);
    scene_end(&s);
}

/* Counts r1, with `body` as the last byte of its digest, and rejects r0. */
static void count(scene *s, unsigned char body)
{
    dl_entry e;
    CHECK_OK(dl_entry_init(&e, 2));
    e.commit = true;
    e.members[e.n_members++] = (dl_member){.generation = r1, .body = {.bytes = {body}}};
    e.rejected[e.n_rejected++] = (dl_rejected){.generation = r0, .reason = "norm"};
    dl_bans_apply(s->state.control.bans, 4, &e);
    dl_entry_deinit(&e);
}

TEST(p27_snapshot_has_the_strikes_and_counts_of_its_entry)
{
    scene s;
    scene_begin(&s, "strikes");
    CHECK_OK(dl_config_set(&s.run.config, "check.repeat", "3", "test"));
    CHECK_OK(dl_config_set(&s.run.config, "check.ban_after", "9", "test"));
    CHECK_OK(dl_bans_create(&s.state.control.bans, &s.run.config, 4));
    CHECK_OK(dl_bans_create(&s.back.control.bans, &s.run.config, 4));
    count(&s, 1);
    count(&s, 2);
    put_snapshot(&s, 5, &r0);
    fill(&s.state, 7);
    put_log(&s, 1, s.state.now[1].digest);
    count(&s, 3); /* of which that entry does not know */
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_CONTAINS("its bans are not those after log/0000000006.json", s.log);
    const dl_bans *bans = s.back.control.bans;
    CHECK_INT(2, bans->n_counted);
    CHECK(dl_bans_has_counted(bans, "r1", (dl_hash){.bytes = {2}}));
    CHECK_INT(2, dl_bans_strikes(bans, "r0"));
    scene_end(&s);
}

/* Copies the snapshot's two objects to another entry's names. */
static void copy_object(scene *s, uint64_t from, uint64_t to, const char *file)
{
    dl_key key;
    dl_buf bytes;
    dl_buf_init(&bytes, 1 << 20);
    dl_key_snapshot(key, from, &r0, file);
    CHECK_OK(dl_store_get(s->store, &bytes, key, DL_NEVER));
    dl_key_snapshot(key, to, &r0, file);
    CHECK_OK(dl_store_create(s->store, key, &(dl_span){bytes.data, bytes.len}, 1, NULL, DL_NEVER));
    dl_buf_deinit(&bytes);
}

TEST(a_foreign_snapshot_is_skipped)
{
    scene s;
    scene_begin(&s, "foreign");
    put_snapshot(&s, 5, &r0);
    copy_object(&s, 5, 6, "state.safetensors");
    copy_object(&s, 5, 6, "manifest.json"); /* under another's name */
    fill(&s.state, 9);
    dl_runfile other_run = s.run; /* borrows */
    memcpy(other_run.id, OTHER, sizeof other_run.id);
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &other_run, &r0, NULL, DL_NEVER));

    dl_manifest model; /* as many tensors and fragments, another name */
    diloco_tensor other[3];
    dl_state state;
    memcpy(other, tensors, sizeof other);
    other[0].name = "embedding";
    CHECK_OK(dl_manifest_init(&model, other, 3, false));
    CHECK_OK(dl_state_init(&state, &model, s.state.outer, 4, 1, 1));
    fill(&state, 10);
    CHECK_OK(dl_snapshot_write(NULL, s.store, &state, &s.run, &r0, NULL, DL_NEVER));

    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_CONTAINS("another snapshot's manifest", s.log);
    CHECK_CONTAINS(OTHER, s.log);
    CHECK_CONTAINS("another model", s.log);
    CHECK_STATUS(DILOCO_EPROTO, dl_snapshot_verify(s.store, 9, &r0, &s.run, DL_NEVER));
    CHECK_STATUS(DILOCO_EPROTO, dl_snapshot_verify(s.store, 10, &r0, &s.run, DL_NEVER));
    dl_state_deinit(&state);
    dl_manifest_deinit(&model);
    scene_end(&s);
}

TEST(a_roster_larger_than_there_is_room_for_is_skipped)
{
    scene s;
    dl_state small;
    scene_begin(&s, "roster");
    CHECK(dl_roster_add(&s.state.control.roster, "a", 0));
    CHECK(dl_roster_add(&s.state.control.roster, "b", 0));
    put_snapshot(&s, 5, &r0);
    CHECK_OK(dl_state_init(&small, &s.run.manifest, s.state.outer, 1, 1, 1));
    CHECK_OK(
        dl_snapshot_read_newest(&small, s.store, &s.run, s.run_digest, UINT64_MAX, NULL, DL_NEVER));
    CHECK_INT(0, small.control.entry);
    CHECK_CONTAINS("more than 1 replicas", s.log);
    dl_state_deinit(&small);
    scene_end(&s);
}

TEST(a_damaged_theta0_is_an_error)
{
    scene s;
    dl_key key;
    scene_begin(&s, "theta0-damaged");
    dl_key_theta0(key, s.run.theta0_file);
    spoil(&s, key, -4, 1); /* the lowest bit of a number */
    CHECK_STATUS(DILOCO_EPROTO, read_newest(&s, UINT64_MAX));
    CHECK_CONTAINS("its digest is not its name", diloco_error_text());
    spoil(&s, key, -4, 1);
    s.run.theta0 = dl_hash_bytes("another", 7);
    CHECK_STATUS(DILOCO_EPROTO, read_newest(&s, UINT64_MAX));
    CHECK_CONTAINS("run.json", diloco_error_text());
    CHECK_OK(dl_store_delete(s.store, key, DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, read_newest(&s, UINT64_MAX));
    CHECK_CONTAINS(key, diloco_error_text());
    scene_end(&s);
}

TEST(a_store_that_cannot_be_asked_is_not_damage)
{
    scene s;
    scene_begin(&s, "aborted");
    put_snapshot(&s, 5, &r0);
    dl_store_abort(s.store);
    CHECK_STATUS(DILOCO_ECLOSED, read_newest(&s, UINT64_MAX));
    CHECK_STATUS(DILOCO_ECLOSED,
                 dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_ECLOSED, dl_snapshot_verify(s.store, 5, &r0, &s.run, DL_NEVER));
    CHECK_STR("", s.log);
    scene_end(&s);
}

TEST(writing_twice_is_a_retry_and_writing_another_is_refused)
{
    scene s;
    scene_begin(&s, "twice");
    put_snapshot(&s, 5, &r0);
    put_snapshot(&s, 5, &r0);
    s.state.now[0].theta[0] += 1;
    CHECK_STATUS(DILOCO_EEXIST,
                 dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, NULL, DL_NEVER));
    CHECK_OK(dl_snapshot_verify(s.store, 5, &r0, &s.run, DL_NEVER));
    scene_end(&s);
}

/* A committer's snapshot, an untrusted peer's, and the committer's under another number. */
TEST(only_a_committers_snapshot_is_one_where_objects_are_signed)
{
    scene s;
    dl_signer *owner, *untrusted;
    if (!DL_CRYPTO) skip();
    CHECK_OK(dl_signer_make(scratch_path("owner.pem")));
    CHECK_OK(dl_signer_make(scratch_path("stranger.pem")));
    CHECK_OK(dl_signer_open(&owner, scratch_path("owner.pem")));
    CHECK_OK(dl_signer_open(&untrusted, scratch_path("stranger.pem")));
    scene_begin(&s, "signed");
    s.signer = owner;
    s.run.identity.policy = DL_OPEN;
    s.run.identity.committers = malloc(sizeof(dl_public));
    s.run.identity.committers[0] = *dl_signer_public(owner);
    s.run.identity.n_committers = 1;

    fill(&s.state, 5);
    put_log(&s, 1, s.state.now[1].digest);
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r0, owner, DL_NEVER));
    CHECK_OK(dl_snapshot_verify(s.store, 5, &r0, &s.run, DL_NEVER));
    fill(&s.state, 9);
    put_log(&s, 1, s.state.now[1].digest);
    CHECK_OK(dl_snapshot_write(NULL, s.store, &s.state, &s.run, &r1, untrusted, DL_NEVER));
    CHECK_STATUS(DILOCO_EREFUSED, dl_snapshot_verify(s.store, 9, &r1, &s.run, DL_NEVER));
    CHECK_CONTAINS("may not write snapshots", diloco_error_text());
    copy_object(&s, 5, 6, "state.safetensors");
    copy_object(&s, 5, 6, "manifest.json"); /* signed, but under another number */
    CHECK_STATUS(DILOCO_EREFUSED, dl_snapshot_verify(s.store, 6, &r0, &s.run, DL_NEVER));

    CHECK_OK(read_newest(&s, UINT64_MAX));
    check_back(&s, 5);
    CHECK_CONTAINS("may not write snapshots", s.log);
    scene_end(&s);
    dl_signer_close(owner);
    dl_signer_close(untrusted);
}

TEST_MAIN(p6_more_names_than_there_is_room_for_hide_no_snapshot,
          p6_of_many_names_each_entry_has_one_that_is_tried,
          p6_names_for_later_entries_hide_no_snapshot,
          only_a_committers_snapshot_is_one_where_objects_are_signed,
          a_snapshot_reads_back_with_its_control_state,
          the_newest_snapshot_at_or_before_an_entry_is_chosen_or_the_oldest_on_request,
          without_a_snapshot_the_run_begins_at_theta0, a_damaged_snapshot_is_skipped_with_a_warning,
          a_damaged_snapshot_of_another_than_the_committer_is_refused,
          a_truncated_or_missing_state_is_skipped, snapshot_without_its_manifest_does_not_count,
          snapshot_with_wrong_digests_is_skipped,
          p27_snapshot_has_the_strikes_and_counts_of_its_entry,
          a_snapshot_that_does_not_follow_the_log_is_skipped, a_foreign_snapshot_is_skipped,
          a_roster_larger_than_there_is_room_for_is_skipped, a_damaged_theta0_is_an_error,
          a_store_that_cannot_be_asked_is_not_damage,
          writing_twice_is_a_retry_and_writing_another_is_refused)
