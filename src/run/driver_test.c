/* driver_test.c - runs with faults: a store that is unreachable, full, read-only, or holds a
 * malicious entry. Also tests that private values never leave a replica. */
#include "toy_run.h"

#include "base/json.h"
#include "base/safetensors.h"
#include "log/contribution.h"
#include "log/entry.h"
#include "log/zstd_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static diloco_verify_report verified(const char *store)
{
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    return report;
}

/* Returns whether the line says that this replica contributes to that entry. */
static bool contributes(const char *line, unsigned entry)
{
    char part[32];
    snprintf(part, sizeof part, "\"entry\":%u,", entry);
    return strstr(line, "\"event\":\"contribution\"") && strstr(line, part);
}

/* ---- an unreachable store -------------------------------------------------------------- */

typedef struct vanishing {
    const char *store, *away;
    pthread_t thread;
    bool done;
} vanishing;

static void *bring_back(void *context)
{
    const vanishing *v = context;
    usleep(300000);
    if (rename(v->away, v->store)) abort();
    return NULL;
}

static void vanish_at_entry_1(toy *t, diloco_run *run, const char *line)
{
    vanishing *v = t->user;
    (void)run;
    if (!v || v->done || !contributes(line, 1)) return;
    v->done = true;
    if (rename(v->store, v->away) || pthread_create(&v->thread, NULL, bring_back, v)) abort();
}

TEST(a_store_that_vanishes_and_returns_delays_a_run_and_nothing_else)
{
    toy all[2];
    vanishing v = {.store = scratch_path("vanishing"), .away = scratch_path("away")};
    toy_crew(all, 2, v.store, scratch_path("vanishing.state"));
    toy_keep_record(&all[0]);
    all[0].heard = vanish_at_entry_1;
    all[0].user = &v;
    toy_live_all(all, 2);
    pthread_join(v.thread, NULL);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK(v.done);
    CHECK_CONTAINS("\"code\":\"unreachable\"", all[0].record);
    CHECK_BYTES(all[0].w, all[1].w, sizeof all[0].w);
    CHECK_INT(4, verified(v.store).commits);
    free(all[0].record);
}

/* The store is unreachable from the first step of every round to its last. */
static double train_without_a_store(toy *t, const diloco_run_info *now)
{
    const vanishing *v = t->user;
    const uint64_t step = now->position % 5;
    if (step == 1 && rename(v->store, v->away)) abort();
    if (step == 4 && rename(v->away, v->store)) abort();
    return toy_step(t, now);
}

TEST(swm8_the_steps_of_a_round_need_no_store)
{
    vanishing v = {.store = scratch_path("unneeded"), .away = scratch_path("unneeded-away")};
    toy t = toy_of("r0", v.store);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.heartbeat", "60");
    toy_set(&t, "run.patience", "600");
    toy_set(&t, "trainer.local_steps_per_round", "5");
    t.step = train_without_a_store;
    t.user = &v;
    toy_keep_record(&t);
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(20, t.end.step);
    CHECK(!strstr(t.record, "\"unreachable\""));
    CHECK_INT(4, verified(v.store).commits);
    free(t.record);
}

static void vanish_for_good(toy *t, diloco_run *run, const char *line)
{
    vanishing *v = t->user;
    (void)run;
    if (!v->done && contributes(line, 1) && rename(v->store, v->away)) abort();
    v->done |= contributes(line, 1);
}

/* The time-out for a store that stays unreachable. Requests to a reachable store have that time,
 * too. */
static const char *const soon_given_up = "2";

TEST(unreachable_store_ends_a_process_that_later_resumes)
{
    vanishing v = {.store = scratch_path("gone"), .away = scratch_path("gone-away")};
    toy t = toy_of("r0", v.store);
    toy_set(&t, "run.state_dir", scratch_path("gone.state"));
    toy_set(&t, "run.store_timeout", soon_given_up);
    t.heard = vanish_for_good;
    t.user = &v;
    toy_live(&t);
    CHECK_INT(DILOCO_EUNREACHABLE, t.status);
    CHECK_CONTAINS("gone", t.text);
    CHECK_INT(0, rename(v.away, v.store));
    toy_live(&t);
    TOY_OK(t);
    CHECK(t.end.resumed);
    CHECK_INT(12, t.end.step);
    CHECK_INT(4, verified(v.store).commits);
}

static void interrupt_and_vanish(toy *t, diloco_run *run, const char *line)
{
    vanish_for_good(t, run, line);
    if (strstr(line, "\"code\":\"unreachable\"")) diloco_run_interrupt(run);
}

TEST(an_interrupt_is_heard_while_the_store_is_away)
{
    vanishing v = {.store = scratch_path("int"), .away = scratch_path("int-away")};
    toy t = toy_of("r0", v.store);
    toy_set(&t, "run.state_dir", scratch_path("int.state"));
    t.heard = interrupt_and_vanish;
    t.user = &v;
    toy_live(&t); /* would wait ten minutes */
    CHECK_INT(DILOCO_EINTERRUPTED, t.status);
    CHECK_INT(0, rename(v.away, v.store));
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(12, t.end.step);
}

TEST(a_join_that_fails_takes_nothing_and_can_be_tried_again)
{
    const char *store = scratch_path("again"), *away = scratch_path("again-away");
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", scratch_path("again.state"));
    toy_set(&t, "run.store_timeout", soon_given_up);
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    CHECK_INT(0, rename(store, away));
    CHECK_STATUS(DILOCO_EUNREACHABLE, diloco_run_join(t.run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_step(t.run, NULL));
    CHECK_INT(0, rename(away, store));
    CHECK_OK(diloco_run_join(t.run)); /* the lock was released */
    CHECK_OK(toy_train(&t));
    toy_close(&t);
    (void)verified(store);
}

/* ---- a full disk, a read-only store ----------------------------------------------------- */

static bool mount_small(const char *folder)
{
    if (mkdir(folder, 0777)) abort();
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "tmpfs", 0, "size=32m")) {
        print_message("left out: a small file system cannot be mounted here (needs root)\n");
        return false;
    }
    return true;
}

/* Fills the rest of the disk before the contribution to entry 2. */
static double fill_at_entry_2(toy *t, const diloco_run_info *now)
{
    static const char zeros[1 << 16];
    const char *path = t->user;
    if (path && now->entry == 2) {
        const int fd = open(path, O_WRONLY | O_CREAT, 0666);
        if (fd < 0) abort();
        while (write(fd, zeros, sizeof zeros) > 0) {
        }
        close(fd);
        t->user = NULL;
    }
    return toy_step(t, now);
}

/* The fault at entry 1 (or 2); it is removed when the run has warned of it. */
static const char *trouble_in;

static bool complains(const char *line)
{
    return strstr(line, "\"code\":\"unreachable\"") != NULL;
}

static void free_space(toy *t, diloco_run *run, const char *line)
{
    (void)t, (void)run;
    if (complains(line) && unlink(trouble_in)) abort();
}

static void training_continues(toy *t, const char *store, const char *reason)
{
    toy_keep_record(t);
    toy_live(t);
    TOY_OK(*t);
    CHECK_CONTAINS(reason, t->record);
    CHECK_INT(4, verified(store).commits);
    free(t->record);
}

TEST(run_waits_for_a_full_disk_and_continues)
{
    char *filler;
    const char *store = scratch_path("refilled");
    toy t = toy_of("r0", store);
    if (!mount_small(store)) skip();
    CHECK(asprintf(&filler, "%s/.filler", store) > 0);
    toy_set(&t, "run.state_dir", scratch_path("refilled.state"));
    t.step = fill_at_entry_2;
    t.user = filler;
    t.heard = free_space;
    trouble_in = filler;
    training_continues(&t, store, "free some space");
    CHECK_INT(0, umount(store));
    free(filler);
}

TEST(a_full_disk_of_the_local_state_is_waited_for)
{
    char *filler;
    const char *store = scratch_path("roomy"), *small = scratch_path("small.state");
    toy t = toy_of("r0", store);
    if (!mount_small(small)) skip();
    CHECK(asprintf(&filler, "%s/.filler", small) > 0);
    toy_set(&t, "run.state_dir", small);
    t.step = fill_at_entry_2;
    t.user = filler;
    t.heard = free_space;
    trouble_in = filler;
    training_continues(&t, store, "No space left");
    CHECK_INT(0, umount(small));
    free(filler);
}

/* Retries after EBUSY: a heartbeat is being written. */
static void remount(const char *folder, unsigned long flags)
{
    while (mount("none", folder, NULL, MS_REMOUNT | flags, NULL))
        if (errno != EBUSY) abort();
}

static void make_read_only(toy *t, diloco_run *run, const char *line)
{
    (void)t, (void)run;
    if (contributes(line, 1)) remount(trouble_in, MS_RDONLY);
    if (complains(line)) remount(trouble_in, 0);
}

TEST(a_store_that_is_read_only_for_a_while_delays_a_run_and_nothing_else)
{
    const char *store = scratch_path("remounted");
    toy t = toy_of("r0", store);
    if (!mount_small(store)) skip();
    toy_set(&t, "run.state_dir", "none");
    t.heard = make_read_only;
    trouble_in = store;
    training_continues(&t, store, "read-only");
    CHECK_INT(0, umount(store));
}

/* Replaces the contributions' folder by a file, which is an I/O error of another kind. */
static void block_folder(toy *t, diloco_run *run, const char *line)
{
    char folder[512], away[512];
    (void)t, (void)run;
    snprintf(folder, sizeof folder, "%s/log", trouble_in);
    snprintf(away, sizeof away, "%s-away", trouble_in);
    if (contributes(line, 1) && (rename(folder, away) || creat(folder, 0666) < 0)) abort();
    if (complains(line) && (unlink(folder) || rename(away, folder))) abort();
}

TEST(an_io_error_of_a_folder_is_waited_for)
{
    const char *store = scratch_path("blocked");
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    t.heard = block_folder;
    trouble_in = store;
    training_continues(&t, store, "is in the way");
}

TEST(disk_that_stays_full_ends_the_process_without_loss)
{
    char *filler;
    const char *store = scratch_path("full");
    toy t = toy_of("r0", store), other = toy_of("r0", "mem://not-full");
    toy_keep("mem://not-full");
    toy_set(&other, "run.state_dir", "none");
    toy_live(&other);
    TOY_OK(other);
    if (!mount_small(store)) skip();
    CHECK(asprintf(&filler, "%s/.filler", store) > 0);
    toy_set(&t, "run.state_dir", scratch_path("full.state"));
    toy_set(&t, "run.store_timeout", soon_given_up);
    t.step = fill_at_entry_2;
    t.user = filler;
    toy_live(&t);
    CHECK_INT(DILOCO_EFULL, t.status);
    CHECK_CONTAINS("free some space", t.text);
    CHECK_INT(0, unlink(filler));
    toy_live(&t);
    TOY_OK(t);
    CHECK_BYTES(other.w, t.w, sizeof t.w);
    CHECK_STR(verified("mem://not-full").digest, verified(store).digest);
    CHECK_INT(0, umount(store));
    free(filler);
}

/* Returns how often the record has a warning of the store. */
static int count_complaints(const toy *t)
{
    int n = 0;
    for (const char *at = t->record; (at = strstr(at, "\"code\":\"unreachable\"")); at++)
        n++;
    return n;
}

TEST(a_read_only_store_is_said_by_name)
{
    const char *store = scratch_path("read-only");
    toy t = toy_of("r0", store);
    if (!mount_small(store)) skip();
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.store_timeout", soon_given_up);
    t.stop_after = 1;
    toy_live(&t);
    TOY_OK(t);
    remount(store, MS_RDONLY);
    toy_keep_record(&t);
    toy_live(&t); /* the claim of a generation is the first that writes */
    CHECK_INT(DILOCO_EUNREACHABLE, t.status);
    CHECK_CONTAINS("write gen/r0.0001 in store ", t.text);
    CHECK_CONTAINS("Read-only file system: the store is read-only", t.text);
    CHECK_INT(1, count_complaints(&t));
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL)); /* a read needs no write access */
    CHECK_INT(0, umount(store));
    free(t.record);
}

static void make_writable(toy *t, diloco_run *run, const char *line)
{
    (void)t, (void)run;
    if (complains(line)) remount(trouble_in, 0);
}

TEST(restarted_replica_waits_for_a_store_that_is_read_only)
{
    const char *store = scratch_path("restarted");
    toy t = toy_of("r0", store);
    if (!mount_small(store)) skip();
    toy_set(&t, "run.state_dir", scratch_path("restarted.state"));
    t.stop_after = 4;
    toy_live(&t);
    TOY_OK(t);
    remount(store, MS_RDONLY);
    t.stop_after = 0;
    t.heard = make_writable;
    trouble_in = store;
    training_continues(&t, store, "read-only");
    CHECK(t.end.resumed);
    CHECK_INT(0, umount(store));
}

static void interrupt_a_join(toy *t, diloco_run *run, const char *line)
{
    (void)t;
    if (complains(line)) diloco_run_interrupt(run);
}

TEST(an_interrupt_is_heard_while_a_join_waits_for_the_store)
{
    const char *store = scratch_path("int-join"), *away = scratch_path("int-join-away");
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    t.heard = interrupt_a_join;
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_create(t.run));
    CHECK_INT(0, rename(store, away));
    CHECK_STATUS(DILOCO_EINTERRUPTED, diloco_run_join(t.run)); /* would wait ten minutes */
    CHECK_INT(0, rename(away, store));
    toy_close(&t);
}

/* ---- a committer that flips a bit (P7) -------------------------------------------------- */

static dl_entry read_entry(dl_store *store, uint64_t number, dl_hash *digest)
{
    dl_entry e;
    dl_key key;
    dl_buf text;
    dl_key_entry(key, number);
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    if (dl_entry_init(&e, 8) || dl_store_get(store, &text, key, DL_NEVER) ||
        dl_entry_read(&e, text.data, text.len, dl_outer_find("nesterov")))
        abort();
    *digest = dl_hash_bytes(text.data, text.len);
    dl_buf_deinit(&text);
    return e;
}

static dl_contribution read_facts(dl_store *store, uint64_t entry, const dl_generation *generation)
{
    dl_contribution c;
    dl_key key;
    dl_buf bytes;
    dl_key_contribution(key, entry, generation);
    dl_buf_init(&bytes, 1 << 20);
    if (dl_store_get(store, &bytes, key, DL_NEVER) ||
        dl_contribution_read_header(&c, bytes.data, bytes.len))
        abort();
    dl_buf_deinit(&bytes);
    return c;
}

/* Writes entry 0 with r0's contribution alone and one bit of the result wrong. */
static void write_forged_entry(const char *url)
{
    dl_store *store;
    dl_hash prev;
    dl_buf text;
    dl_key key;
    if (dl_store_open(&store, url, false)) abort();
    dl_entry e = read_entry(store, 0, &prev);
    const dl_generation r0 = {.replica = "r0"};
    const dl_contribution c = read_facts(store, 1, &r0);
    e.entry = 1;
    e.position = 6;
    e.prev = prev;
    e.base = e.result;
    e.result.bytes[3] ^= 16;
    e.n_members = 1;
    e.members[0].generation = r0;
    e.members[0].entry = 1;
    e.members[0].body = c.body;
    e.members[0].weight = 1;
    e.members[0].raw = 1;
    e.members[0].stats.loss = c.stats.loss;
    e.loss = c.stats.loss;
    e.committer = (dl_generation){.replica = "r1"};
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    dl_key_entry(key, 1);
    if (dl_entry_write(&text, &e, dl_outer_find("nesterov"))) abort();
    const dl_span span = {text.data, text.len};
    if (dl_store_create(store, key, &span, 1, NULL, DL_NEVER)) abort();
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
    dl_store_close(store);
}

static void forge_at_entry_1(toy *t, diloco_run *run, const char *line)
{
    (void)run;
    if (contributes(line, 1)) write_forged_entry(t->user);
}

/* Keeps r1 from entry 1 until the forged entry is written, or r1 might commit the right one. */
static double step_after_forged_entry(toy *t, const diloco_run_info *now)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/log/0000000001.json", (const char *)t->user);
    while (now->entry == 1 && access(path, F_OK))
        usleep(1000);
    return toy_step(t, now);
}

TEST(every_replica_finds_a_flipped_bit_and_the_run_continues)
{
    toy all[2];
    const char *store = scratch_path("liar");
    toy_crew(all, 2, store, "none");
    all[0].heard = forge_at_entry_1; /* after its own upload */
    all[1].step = step_after_forged_entry;
    all[0].user = all[1].user = scratch_path("liar");
    for (int r = 0; r < 2; r++)
        toy_keep_record(&all[r]);
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        CHECK_CONTAINS("\"event\":\"dispute\"", all[r].record);
        CHECK_CONTAINS("entry 1 is void: its result is not what its members give", all[r].record);
        CHECK_BYTES(all[0].w, all[r].w, sizeof all[r].w);
        free(all[r].record);
    }
    diloco_verify_report report;
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_CONTAINS("entry 1 is void: its result", diloco_error_text());
    CHECK_INT(1, report.voids);
    CHECK_INT(3, report.commits);
    CHECK(report.complete);
}

/* ---- private values never leave ----------------------------------------------------------- */

enum { FILES_MAX = 512 };

typedef struct object {
    char key[DL_KEY_MAX + 1];
    unsigned char *bytes;
    size_t len;
} object;

typedef struct objects {
    object all[FILES_MAX];
    size_t n;
} objects;

static diloco_status note_key(void *context, const char *key, size_t len)
{
    objects *o = context;
    if (o->n == FILES_MAX) return DILOCO_EINVAL;
    snprintf(o->all[o->n].key, sizeof o->all[0].key, "%s", key);
    o->all[o->n++].len = len;
    return DILOCO_OK;
}

/* Adds the contents of compressed frames. */
static void unzip_record(dl_buf *bytes)
{
    dl_buf text;
    dl_buf_init(&text, 1 << 24);
    CHECK_OK(dl_unzip(&text, bytes->data, bytes->len));
    dl_buf_deinit(bytes);
    *bytes = text;
}

/* Reads every object in the store. */
static objects *read_all(const char *url)
{
    objects *o = calloc(1, sizeof *o);
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_list(store, "", NULL, note_key, o, DL_NEVER));
    for (size_t i = 0; i < o->n; i++) {
        dl_buf bytes;
        dl_buf_init(&bytes, 1 << 24);
        CHECK_OK(dl_store_get(store, &bytes, o->all[i].key, DL_NEVER));
        if (!strncmp(o->all[i].key, "rec/", 4)) unzip_record(&bytes);
        o->all[i].bytes = bytes.data;
        o->all[i].len = bytes.len;
    }
    dl_store_close(store);
    return o;
}

static void must_not_hold(const object *o, const void *bytes, size_t len, const char *what)
{
    if (memmem(o->bytes, o->len, bytes, len)) CHECK_FAIL("%s holds %s", o->key, what);
}

/* Checks that a safetensors object holds w and its outer momentum, and nothing else. */
static void check_tensors(const object *o)
{
    dl_st st;
    CHECK_OK(dl_st_open(&st, o->bytes, o->len));
    CHECK_INT(2, st.n);
    CHECK(dl_st_find(&st, "w") && dl_st_find(&st, "diloco.momentum.w"));
    dl_st_close(&st);
}

static bool is_of_known_kind(const char *key)
{
    static const char *const kinds[] = {"run.json", "gen/", "hb/", "end/", "log/", "snap/", "rec/"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!strncmp(key, kinds[i], strlen(kinds[i]))) return true;
    return false;
}

/* The inner moments after each step. */
typedef struct moments {
    float at[64][TOY_N];
    size_t n;
} moments;

static double step_and_keep_moments(toy *t, const diloco_run_info *now)
{
    moments *m = t->user;
    const double loss = toy_step(t, now);
    if (m->n < 64) memcpy(m->at[m->n++], t->moment, sizeof t->moment);
    return loss;
}

TEST(every_byte_in_the_store_is_of_the_manifest_and_nothing_private_is_among_them)
{
    static const char secret[64] =
        "these sixty-four bytes belong to this replica, and to it alone!";
    static moments kept[2];
    toy all[2];
    const char *store = scratch_path("private");
    toy_crew(all, 2, store, scratch_path("private.state"));
    toy_set_all(all, 2, "run.snapshot_every", "0.001");
    toy_set_all(all, 2, "run.retain", "all");
    for (int r = 0; r < 2; r++) {
        memcpy(all[r].secret, secret, sizeof secret);
        all[r].step = step_and_keep_moments;
        all[r].user = &kept[r];
    }
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    objects *o = read_all(store);
    size_t n_contrib = 0, n_images = 0;
    for (size_t i = 0; i < o->n; i++) {
        const object *one = &o->all[i];
        for (size_t at = 0; at + 8 <= sizeof secret - 1; at++)
            must_not_hold(one, secret + at, 8, "private bytes");
        for (int r = 0; r < 2; r++)
            for (size_t k = 1; k < kept[r].n; k++) /* at 0 the moment is the movement itself */
                for (size_t e = 0; e + 2 <= TOY_N; e += 2)
                    must_not_hold(one, &kept[r].at[k][e], 8, "inner moments");
        if (!strncmp(one->key, "c/", 2)) {
            CHECK_INT(DL_CONTRIBUTION_HEADER + TOY_N * 4, one->len);
            n_contrib++;
        } else if (strstr(one->key, ".safetensors")) {
            check_tensors(one);
            n_images++;
        } else {
            CHECK(is_of_known_kind(one->key));
            /* text alone: the model's numbers are not in it */
            for (size_t b = 0; b < one->len; b++)
                CHECK(one->bytes[b] == '\n' || one->bytes[b] >= ' ');
        }
        free(one->bytes);
    }
    CHECK_INT(8, n_contrib);
    CHECK(n_images >= 2);
    free(o);
}

TEST_MAIN(swm8_the_steps_of_a_round_need_no_store,
          a_store_that_vanishes_and_returns_delays_a_run_and_nothing_else,
          unreachable_store_ends_a_process_that_later_resumes,
          an_interrupt_is_heard_while_the_store_is_away,
          a_join_that_fails_takes_nothing_and_can_be_tried_again,
          run_waits_for_a_full_disk_and_continues, a_full_disk_of_the_local_state_is_waited_for,
          a_store_that_is_read_only_for_a_while_delays_a_run_and_nothing_else,
          an_io_error_of_a_folder_is_waited_for, disk_that_stays_full_ends_the_process_without_loss,
          a_read_only_store_is_said_by_name, restarted_replica_waits_for_a_store_that_is_read_only,
          an_interrupt_is_heard_while_a_join_waits_for_the_store,
          every_replica_finds_a_flipped_bit_and_the_run_continues,
          every_byte_in_the_store_is_of_the_manifest_and_nothing_private_is_among_them)
