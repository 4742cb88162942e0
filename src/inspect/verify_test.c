/* verify_test.c - the readers of a run (inspect.h): their answers for a sound one, and that each
 * kind of damage is named. */
#include "toy_run.h"

#include "base/json.h"
#include "base/safetensors.h"
#include "log/fields.h"
#include <diloco/log.h>

#include <sys/stat.h>

enum { ENTRIES = 4, FILE_MAX = 1 << 20 };

/* A finished run of two replicas that keeps everything, made once. */
static toy crew[2];
static const char *sound(void)
{
    static const char *store;
    if (store) return store;
    store = scratch_path("sound");
    toy_crew(crew, 2, store, "none");
    toy_set_all(crew, 2, "run.retain", "all");
    toy_set_all(crew, 2, "run.snapshot_every", "0.001");
    toy_live_all(crew, 2);
    TOY_OK(crew[0]);
    TOY_OK(crew[1]);
    return store;
}

/* ---- their answers --------------------------------------------------------------------- */

typedef struct heard {
    uint64_t n, first, last;
} heard;

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    heard *h = user;
    CHECK_INT(ENTRIES, total);
    CHECK_INT(++h->n, done);
}

TEST(a_sound_run_verifies_from_its_beginning)
{
    diloco_verify_report report;
    heard h = {.n = 0};
    CHECK_OK(diloco_verify(&report, sound(), 2, on_progress, &h));
    CHECK_INT(ENTRIES, h.n);
    CHECK_INT(ENTRIES, report.entries);
    CHECK_INT(ENTRIES, report.chained);
    CHECK_INT(ENTRIES, report.replayed);
    CHECK_INT(ENTRIES, report.commits);
    CHECK_INT(0, report.aborts + report.voids + report.first_replayed);
    CHECK(report.complete);
    CHECK_INT(32, strlen(report.digest));
}

static diloco_status on_entry(void *user, const diloco_log_entry *e)
{
    heard *h = user;
    if (h->n++ == 0) h->first = e->entry;
    h->last = e->entry;
    CHECK(e->commit);
    CHECK_INT(2, e->n_members);
    CHECK_STR("r0.0000", e->members[0]);
    CHECK_STR("r1.0000", e->members[1]);
    CHECK_NEAR(0.5, (double)e->weights[1], 0);
    CHECK_INT(2, e->n_roster);
    CHECK_STR("r0", e->roster[0]);
    CHECK_INT(3 * (e->entry + 1), e->position);
    CHECK_INT(2 * (512 + 4 * TOY_N), e->bytes);
    CHECK_INT(32, strlen(e->prev));
    return DILOCO_OK;
}

static diloco_status stop_at_once(void *user, const diloco_log_entry *e)
{
    (void)user, (void)e;
    return DILOCO_ECLOSED;
}

TEST(the_log_is_walked_in_order_from_anywhere)
{
    heard h = {.n = 0};
    CHECK_OK(diloco_log_walk(sound(), 0, on_entry, &h));
    CHECK_INT(ENTRIES, h.n);
    h = (heard){.n = 0};
    CHECK_OK(diloco_log_walk(sound(), 2, on_entry, &h));
    CHECK_INT(2, h.first);
    CHECK_INT(3, h.last);
    CHECK_OK(diloco_log_walk(sound(), 9, on_entry, &h));
    CHECK_STATUS(DILOCO_ECLOSED, diloco_log_walk(sound(), 0, stop_at_once, NULL));
}

static void check_theta(uint64_t entries, uint64_t expected_entry, const float *w)
{
    void *bytes;
    size_t len;
    uint64_t entry;
    dl_st st;
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, sound(), entries));
    CHECK_INT(expected_entry, entry);
    CHECK_OK(dl_st_open(&st, bytes, len));
    const dl_st_tensor *t = dl_st_find(&st, "w");
    CHECK(t != NULL);
    CHECK_BYTES(w, st.data + t->begin, sizeof crew[0].w);
    dl_st_close(&st);
    diloco_free(bytes);
}

TEST(theta_is_read_as_it_was_after_any_number_of_entries)
{
    static const float zeros[TOY_N];
    check_theta(0, 0, zeros);
    (void)sound();
    check_theta(ENTRIES, ENTRIES, crew[0].w);
    check_theta(UINT64_MAX, ENTRIES, crew[0].w);
}

TEST(the_settings_of_a_run_are_read_from_it)
{
    diloco_config *config = diloco_config_create();
    char value[64];
    CHECK_OK(diloco_run_config(config, sound()));
    CHECK_OK(diloco_config_get(config, "trainer.local_steps_per_round", value, sizeof value));
    CHECK_STR("3", value);
    CHECK_OK(diloco_config_get(config, "run.retain", value, sizeof value));
    CHECK_STR("all", value);
    CHECK_STR("run", diloco_config_origin(config, "run.retain"));
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_get(config, "run.retain", value, 3));
    CHECK_CONTAINS("3 bytes", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_get(config, "no.such", value, sizeof value));
    diloco_config_destroy(config);
}

TEST(where_no_run_is_every_reader_says_so)
{
    const char *empty = scratch_folder("empty");
    diloco_run_status status;
    diloco_verify_report report;
    diloco_config *config = diloco_config_create();
    void *bytes;
    size_t len;
    uint64_t entry;
    CHECK_STATUS(DILOCO_ENOENT, diloco_log_walk(empty, 0, on_entry, NULL));
    CHECK_CONTAINS("no run in", diloco_error_text());
    CHECK_STATUS(DILOCO_ENOENT, diloco_verify(&report, empty, 1, NULL, NULL));
    CHECK_STATUS(DILOCO_ENOENT, diloco_run_status_read(&status, empty, 0));
    CHECK_STATUS(DILOCO_ENOENT, diloco_run_config(config, empty));
    CHECK_STATUS(DILOCO_ENOENT, diloco_theta_read(&bytes, &len, &entry, empty, 0));
    CHECK(bytes == NULL);
    CHECK_STATUS(DILOCO_ENOENT, diloco_verify(&report, "/nonexistent/store", 1, NULL, NULL));
    diloco_config_destroy(config);
}

TEST(a_store_is_checked)
{
    diloco_store_report report;
    CHECK_OK(diloco_store_check(&report, sound()));
    CHECK_INT(1, report.winners);
    CHECK(report.create_ms > 0 && report.write_mb_per_s > 0);
}

TEST(missing_folder_is_not_made_to_be_checked)
{
    diloco_store_report report;
    const char *path = scratch_path("misspelt");
    CHECK_STATUS(DILOCO_ENOENT, diloco_store_check(&report, path));
    CHECK_CONTAINS("there is no folder", diloco_error_text());
    CHECK(access(path, F_OK) != 0);
    CHECK_INT(0, mkdir(path, 0777));
    CHECK_OK(diloco_store_check(&report, path));
}

/* ---- status ----------------------------------------------------------------------------- */

TEST(the_status_of_a_finished_run_counts_and_names_everyone)
{
    diloco_run_status s;
    CHECK_OK(diloco_run_status_read(&s, sound(), 0));
    CHECK_INT(ENTRIES, s.entries);
    CHECK_INT(ENTRIES, s.entries_total);
    CHECK_INT(ENTRIES, s.commits);
    CHECK_INT(0, s.aborts);
    CHECK_INT(ENTRIES, s.snapshot);
    CHECK_INT(TOY_N, s.parameters);
    CHECK(s.done);
    CHECK_INT(2, s.n_replicas);
    for (int r = 0; r < 2; r++) {
        CHECK_INT('0' + r, s.replicas[r]->replica[1]);
        CHECK(s.replicas[r]->ended && s.replicas[r]->seen && !s.replicas[r]->alive);
        CHECK(s.replicas[r]->host[0]);
    }
    CHECK(s.wait == NULL);
    diloco_run_status_free(&s);
}

/* Two replicas' asynchronous contributions, or two fragments, are two entries a round. */
TEST(half_of_a_run_is_not_complete)
{
    static const char *const doubled[][2] = {{"server.diloco.schedule", "async"},
                                             {"server.diloco.fragments", "2"}};
    for (int i = 0; i < 2; i++) {
        const char *store = i ? "mem://pieces" : "mem://async";
        toy t = toy_of("r0", store);
        diloco_verify_report report;
        diloco_run_status s;
        toy_keep(store);
        toy_set(&t, "run.replicas", i ? "1" : "2");
        toy_set(&t, "run.state_dir", "none");
        toy_set(&t, "trainer.local_steps_per_round", "2");
        toy_set(&t, "trainer.rounds", "6");
        toy_set(&t, doubled[i][0], doubled[i][1]);
        if (i) t.fragments = 2;
        t.stop_after = i ? 8 : 16;
        toy_live(&t);
        TOY_OK(t);
        CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
        const uint64_t n = report.entries;
        CHECK(n >= 6 && n < 11);
        CHECK(!report.complete);
        /* Nor does junk far ahead, which no replica has reached, make it longer. */
        dl_store *opened;
        CHECK_OK(dl_store_open(&opened, store, false));
        const dl_span junk = {"junk", 4};
        CHECK_OK(dl_store_create(opened, "log/0000000011.json", &junk, 1, NULL, DL_NEVER));
        dl_store_close(opened);
        CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
        CHECK_INT(n, report.entries);
        CHECK_OK(diloco_run_status_read(&s, store, 0));
        CHECK_INT(12, s.entries_total);
        CHECK(!s.done);
        diloco_run_status_free(&s);
    }
}

static void wait_for_heartbeat(const char *store, const char *generation)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/hb/%s", store, generation);
    while (access(path, F_OK))
        usleep(1000);
}

TEST(watching_heartbeats_distinguishes_live_replicas_from_dead_ones)
{
    diloco_run_status s;
    const char *store = scratch_path("watched");
    toy all[2];
    toy_crew(all, 2, store, "none");
    CHECK_OK(toy_open(&all[0]));
    CHECK_OK(diloco_run_join(all[0].run));
    CHECK_OK(toy_open(&all[1]));
    CHECK_OK(diloco_run_join(all[1].run));
    wait_for_heartbeat(store, "r0.0000");
    wait_for_heartbeat(store, "r1.0000");
    toy_close(&all[1]); /* without a word */
    CHECK_OK(diloco_run_status_read(&s, store, 0.5));
    while (s.n_replicas == 2 && !s.replicas[0]->alive && !s.replicas[1]->alive) {
        diloco_run_status_free(&s); /* this machine has kept r0 from its heartbeat for a while */
        CHECK_OK(diloco_run_status_read(&s, store, 0.5));
    }
    CHECK_INT(2, s.n_replicas);
    CHECK(s.replicas[0]->alive && !s.replicas[1]->alive);
    CHECK(s.replicas[1]->seen && !s.replicas[1]->ended && !s.done);
    CHECK_INT(0, s.entries);
    CHECK_INT(2, s.wait->n_awaited);
    diloco_run_status_free(&s);
    toy_close(&all[0]);
}

/* ---- damage ----------------------------------------------------------------------------- */

typedef struct original {
    char path[1024];
    char *bytes;
    size_t len;
} original;

static original keep(const char *key)
{
    original o = {.bytes = malloc(FILE_MAX)};
    snprintf(o.path, sizeof o.path, "%s/%s", sound(), key);
    FILE *f = fopen(o.path, "rb");
    if (!f) CHECK_FAIL("%s: not there", o.path);
    o.len = fread(o.bytes, 1, FILE_MAX, f);
    fclose(f);
    return o;
}

static void write_file(const char *path, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, len, f) == len && fclose(f) == 0);
}

static void restore(original *o)
{
    write_file(o->path, o->bytes, o->len);
    free(o->bytes);
}

/* verify names the damage, and is content again when it is mended. */
static void must_name(original *o, diloco_status expected, const char *part)
{
    diloco_verify_report report;
    CHECK_STATUS(expected, diloco_verify(&report, sound(), 1, NULL, NULL));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(!strstr(diloco_error_text(), "entry 2: entry 2 "));
    restore(o);
    CHECK_OK(diloco_verify(&report, sound(), 1, NULL, NULL));
}

static void cut(const original *o)
{
    CHECK_INT(0, truncate(o->path, (off_t)o->len - 5));
}

static void flip(const original *o, size_t at)
{
    char *copy = malloc(o->len);
    memcpy(copy, o->bytes, o->len);
    copy[at] ^= 8;
    write_file(o->path, copy, o->len);
    free(copy);
}

TEST(a_damaged_contribution_is_named_by_its_entry)
{
    const char *key = "c/0000000001/r1.0000";
    original o = keep(key);
    cut(&o);
    must_name(&o, DILOCO_EPROTO, "entry 1 ");
    o = keep(key);
    flip(&o, 100); /* its header */
    must_name(&o, DILOCO_EPROTO, "entry 1 ");
    o = keep(key);
    flip(&o, 600); /* its payload */
    must_name(&o, DILOCO_EPROTO, "entry 1 ");
    o = keep(key);
    original foreign = keep("c/0000000001/r0.0000");
    write_file(o.path, foreign.bytes, foreign.len);
    free(foreign.bytes);
    must_name(&o, DILOCO_EPROTO, "entry 1 ");
}

TEST(a_contribution_that_is_gone_is_named_by_its_entry)
{
    original o = keep("c/0000000002/r0.0000");
    CHECK_INT(0, unlink(o.path));
    must_name(&o, DILOCO_ENOENT, "entry 2");
}

static void note_theta0(void *user, diloco_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "theta0/")) snprintf(user, 512, "%s", line);
}

static diloco_status note_key(void *context, const char *key, size_t len)
{
    (void)len;
    memcpy(context, key, strlen(key) + 1);
    return DILOCO_ECLOSED;
}

TEST(without_theta0_the_replay_begins_at_the_oldest_snapshot_and_says_so)
{
    char key[DL_KEY_MAX + 1] = "", said[512] = "";
    dl_store *store;
    diloco_verify_report report;
    CHECK_OK(dl_store_open(&store, sound(), false));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_list(store, "theta0/", NULL, note_key, key, DL_NEVER));
    dl_store_close(store);
    original o = keep(key);
    CHECK_INT(0, unlink(o.path));
    diloco_log_set(note_theta0, said, DILOCO_LOG_WARN);
    CHECK_OK(diloco_verify(&report, sound(), 1, NULL, NULL));
    diloco_log_set(NULL, NULL, DILOCO_LOG_WARN);
    CHECK_INT(ENTRIES, report.chained);
    CHECK(report.first_replayed > 0);
    CHECK_INT(ENTRIES, report.first_replayed + report.replayed);
    CHECK_CONTAINS("the replay begins at the oldest snapshot", said);
    flip(&o, o.len - 2); /* damage is an error, whatever snapshots there are */
    must_name(&o, DILOCO_EPROTO, "theta0/");
}

TEST(a_damaged_or_missing_entry_is_named)
{
    original o = keep("log/0000000001.json");
    flip(&o, o.len / 2);
    must_name(&o, DILOCO_EPROTO, "entry 2: prev"); /* its bytes are not what the next one names */
    o = keep("log/0000000003.json");
    flip(&o, o.len / 2);
    must_name(&o, DILOCO_EPROTO, "entry 3 is void");
    o = keep("log/0000000003.json");
    cut(&o);
    must_name(&o, DILOCO_EPROTO, "entry 3 is void");
    o = keep("log/0000000002.json");
    CHECK_INT(0, unlink(o.path));
    must_name(&o, DILOCO_EPROTO, "entry 2 is missing");
    o = keep("log/0000000000.json");
    original foreign = keep("log/0000000001.json");
    write_file(o.path, foreign.bytes, foreign.len);
    free(foreign.bytes);
    must_name(&o, DILOCO_EPROTO, "entry 1: prev"); /* entry 0 is void, and the run has continued */
    o = keep("log/0000000003.json");
    foreign = keep("log/0000000001.json");
    write_file(o.path, foreign.bytes, foreign.len);
    free(foreign.bytes);
    must_name(&o, DILOCO_EPROTO, "entry 3 is void: it is a copy of entry 1");
}

static diloco_status on_void(void *user, const diloco_log_entry *e)
{
    if (e->entry == 3) {
        CHECK(!e->commit);
        CHECK_CONTAINS("void", e->reason);
        *(bool *)user = true;
    }
    return DILOCO_OK;
}

TEST(status_and_log_continue_after_an_unreadable_entry)
{
    diloco_run_status s;
    original o = keep("log/0000000003.json");
    bool seen = false;
    flip(&o, o.len / 2);
    CHECK_OK(diloco_log_walk(sound(), 0, on_void, &seen));
    CHECK(seen);
    CHECK_OK(diloco_run_status_read(&s, sound(), 0));
    CHECK_INT(3, s.commits);
    CHECK_INT(1, s.aborts);
    diloco_run_status_free(&s);
    restore(&o);
}

static diloco_status count_one(void *user, const diloco_log_entry *e)
{
    (void)e;
    ++*(int *)user;
    return DILOCO_OK;
}

TEST(an_object_after_the_end_of_the_log_is_no_entry)
{
    static const char *const junk[] = {"log/0000000004.json", "log/0000000009.json"};
    diloco_verify_report report;
    diloco_run_status s;
    char path[2][1024];
    int n = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", sound(), junk[i]);
        write_file(path[i], "junk", 4);
    }
    CHECK_OK(diloco_verify(&report, sound(), 1, NULL, NULL));
    CHECK_INT(ENTRIES, report.entries);
    CHECK_OK(diloco_log_walk(sound(), 0, count_one, &n));
    CHECK_INT(ENTRIES, n);
    CHECK_OK(diloco_run_status_read(&s, sound(), 0));
    CHECK_INT(ENTRIES, s.entries);
    CHECK_INT(0, s.aborts);
    diloco_run_status_free(&s);
    void *theta;
    size_t len;
    uint64_t entry;
    CHECK_OK(diloco_theta_read(&theta, &len, &entry, sound(), UINT64_MAX));
    CHECK_INT(ENTRIES, entry);
    diloco_free(theta);
    for (int i = 0; i < 2; i++)
        CHECK_INT(0, unlink(path[i]));
}

static diloco_status note_first(void *context, const char *key, size_t len)
{
    (void)len;
    if (!strstr(key, "state.safetensors")) return DILOCO_OK;
    memcpy(context, key, strlen(key) + 1);
    return DILOCO_ECLOSED;
}

TEST(a_damaged_snapshot_is_named_and_a_joining_replica_uses_another)
{
    char key[DL_KEY_MAX + 1] = "", part[64];
    dl_store *store;
    CHECK_OK(dl_store_open(&store, sound(), false));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_list(store, "snap/", NULL, note_first, key, DL_NEVER));
    dl_store_close(store);
    snprintf(part, sizeof part, "snapshot of entry %d", atoi(key + strlen("snap/")));
    original o = keep(key);
    flip(&o, o.len - 2);
    check_theta(ENTRIES, ENTRIES, crew[0].w); /* from another, or from theta0 */
    must_name(&o, DILOCO_EPROTO, part);
    o = keep(key);
    cut(&o);
    check_theta(ENTRIES, ENTRIES, crew[0].w);
    must_name(&o, DILOCO_EPROTO, part);
}

/* Puts a manifest at snap/<entry>/<generation>/, of this text, verifies, and takes it away. */
static diloco_status verify_with(unsigned entry, const char *generation, const char *text,
                                 size_t len)
{
    char key[DL_KEY_MAX + 1];
    dl_store *store;
    diloco_verify_report report;
    CHECK_OK(dl_store_open(&store, sound(), false));
    snprintf(key, sizeof key, "snap/%010u/%s/manifest.json", entry, generation);
    CHECK_OK(dl_store_create(store, key, &(dl_span){text, len}, 1, NULL, DL_NEVER));
    const diloco_status status = diloco_verify(&report, sound(), 1, NULL, NULL);
    CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    dl_store_close(store);
    return status;
}

/* A sealed manifest of a format version that no program has yet. */
static void seal_version_9(dl_buf *out)
{
    dl_json json;
    size_t start;
    dl_sealed_begin(&json, &start, out, "diloco-snapshot");
    char *digit = strstr(dl_buf_str(out), "\"version\":1");
    CHECK(digit);
    digit[strlen("\"version\":")] = '9';
    CHECK_OK(dl_sealed_end(&json, start));
}

TEST(a_forged_snapshot_of_a_replica_that_did_not_commit_its_entry_is_passed_over)
{
    char key[DL_KEY_MAX + 1] = "";
    dl_store *store;
    CHECK_OK(dl_store_open(&store, sound(), false));
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_list(store, "snap/", NULL, note_first, key, DL_NEVER));
    dl_store_close(store);
    memcpy(strrchr(key, '/'), "/manifest.json", sizeof "/manifest.json");
    const original o = keep(key);
    dl_buf other;
    dl_buf_init(&other, 4096);
    seal_version_9(&other);
    for (unsigned e = 1; e <= ENTRIES; e++) {
        CHECK_OK(verify_with(e, "a9.0000", dl_buf_str(&other), other.len));
        CHECK_OK(verify_with(e, "a9.0000", "abc", 3));
        CHECK_OK(verify_with(e, "a9.0000", "", 0));
        CHECK_OK(verify_with(e, "r0.0007", (const char *)o.bytes, o.len)); /* a copy of another */
    }
    CHECK_OK(verify_with(0, "r0.0000", "abc", 3)); /* no entry comes before it */
    dl_buf_deinit(&other);
    free(o.bytes);
}

typedef struct warnings {
    char last[512];
    int n;
} warnings;

static void note_warning(void *user, diloco_log_level level, const char *text)
{
    warnings *w = user;
    (void)level;
    snprintf(w->last, sizeof w->last, "%s", text);
    w->n++;
}

/* Names beyond the log's end, which anyone can create: one warning for all of them. */
TEST(many_forged_names_of_snapshots_are_counted_in_one_warning)
{
    warnings said = {.n = 0};
    diloco_verify_report report;
    dl_store *store;
    dl_key key;
    CHECK_OK(dl_store_open(&store, sound(), false));
    for (uint32_t i = 0; i < 200; i++) {
        const dl_generation of = {.replica = "a", .number = i};
        dl_key_snapshot(key, 9999999999, &of, "manifest.json");
        CHECK_OK(dl_store_create(store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    }
    diloco_log_set(note_warning, &said, DILOCO_LOG_WARN);
    CHECK_OK(diloco_verify(&report, sound(), 1, NULL, NULL));
    CHECK_OK(diloco_verify_from_snapshot(&report, sound(), 1, NULL, NULL));
    diloco_log_set(NULL, NULL, DILOCO_LOG_WARN);
    CHECK_INT(2, said.n);
    CHECK_CONTAINS("200 names in snap/ were passed over", said.last);
    for (uint32_t i = 0; i < 200; i++) {
        const dl_generation of = {.replica = "a", .number = i};
        dl_key_snapshot(key, 9999999999, &of, "manifest.json");
        CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    }
    dl_store_close(store);
}

/* ---- damage during the run ------------------------------------------------------------ */

/* The store damages r0's contribution to entry 1 as soon as it is there. */
static void damage_own(toy *t, diloco_run *run, const char *line)
{
    char path[1024];
    (void)run;
    if (!strstr(line, "\"event\":\"contribution\"") || !strstr(line, "\"entry\":1,")) return;
    snprintf(path, sizeof path, "%s/c/0000000001/r0.0000", (const char *)t->user);
    if (truncate(path, 530)) abort();
}

/* Not before r0's is damaged, or the entry would close with it whole. */
static double step_behind_damage(toy *t, const diloco_run_info *now)
{
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/c/0000000001/r0.0000", (const char *)t->user);
    while (now->entry == 1 && (stat(path, &st) || st.st_size != 530))
        usleep(1000);
    return toy_step(t, now);
}

TEST(a_damaged_contribution_is_refused_and_the_run_continues)
{
    toy all[2];
    char *store = scratch_path("damages");
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "run.deadline", "0.1");
    for (int r = 0; r < 2; r++) {
        toy_keep_record(&all[r]);
        all[r].user = store;
    }
    all[0].heard = damage_own;
    all[1].step = step_behind_damage;
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        CHECK_CONTAINS("\"event\":\"reject\",\"entry\":1,\"replica\":\"r0.0000\"", all[r].record);
        CHECK_BYTES(all[0].w, all[r].w, sizeof all[r].w);
        free(all[r].record);
    }
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    CHECK_INT(ENTRIES, report.commits + report.aborts);
    CHECK(report.aborts >= 1);
}

TEST_MAIN(a_sound_run_verifies_from_its_beginning, the_log_is_walked_in_order_from_anywhere,
          theta_is_read_as_it_was_after_any_number_of_entries,
          the_settings_of_a_run_are_read_from_it, where_no_run_is_every_reader_says_so,
          a_store_is_checked, missing_folder_is_not_made_to_be_checked,
          the_status_of_a_finished_run_counts_and_names_everyone, half_of_a_run_is_not_complete,
          watching_heartbeats_distinguishes_live_replicas_from_dead_ones,
          a_damaged_contribution_is_named_by_its_entry,
          a_contribution_that_is_gone_is_named_by_its_entry,
          without_theta0_the_replay_begins_at_the_oldest_snapshot_and_says_so,
          a_damaged_or_missing_entry_is_named, status_and_log_continue_after_an_unreadable_entry,
          an_object_after_the_end_of_the_log_is_no_entry,
          a_damaged_snapshot_is_named_and_a_joining_replica_uses_another,
          a_forged_snapshot_of_a_replica_that_did_not_commit_its_entry_is_passed_over,
          many_forged_names_of_snapshots_are_counted_in_one_warning,
          a_damaged_contribution_is_refused_and_the_run_continues)
