/* save_beside_test.c - when the private state of a replica is saved, and what waits for it. */
#include "toy_run.h"

#include "private_sync.h"
#include "run/driver_parts.h"
#include "run/handle.h"
#include "sanitized.h"

#include <errno.h>

static char folder[PATH_MAX], file[PATH_MAX + 32];

static toy toy_with(const char *name, const char *overlap)
{
    static char store[PATH_MAX], state[PATH_MAX];
    snprintf(store, sizeof store, "%s", scratch_path(name));
    snprintf(state, sizeof state, "%s.state", store);
    snprintf(folder, sizeof folder, "%s/r0", state);
    snprintf(file, sizeof file, "%s/local.safetensors", folder);
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", state);
    toy_set(&t, "server.diloco.overlap_steps", overlap);
    return t;
}

/* The folder of the private state is gone, so no save can be written. */
static double step_without_folder(toy *t, const diloco_run_info *now)
{
    char lock[PATH_MAX + 32];
    snprintf(lock, sizeof lock, "%s/lock", folder);
    unlink(lock);
    unlink(file);
    rmdir(folder);
    return toy_step(t, now);
}

static diloco_status count_key(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(int *)context;
    return DILOCO_OK;
}

static int n_objects(const toy *t, const char *prefix)
{
    int n = 0;
    dl_store *store;
    CHECK_OK(dl_store_open(&store, t->settings[0][1], false));
    CHECK_OK(dl_store_list(store, prefix, NULL, count_key, &n, DL_NEVER));
    dl_store_close(store);
    return n;
}

/* PROTOCOL P16.2 */
static void check_nothing_is_put(const char *name, const char *save_beside)
{
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    t.step = step_without_folder;
    toy_live(&t);
    CHECK(t.status != DILOCO_OK);
    CHECK_CONTAINS("local state", t.text);
    CHECK_INT(0, n_objects(&t, "c/"));
}

TEST(p16_no_contribution_is_put_before_the_state_is_saved)
{
    check_nothing_is_put("stopped", "false");
    check_nothing_is_put("beside", "true");
}

/* ---- a capture that fails */

typedef struct kept_file {
    size_t len;
    char bytes[1 << 16];
} kept_file;

static void keep_file(kept_file *out)
{
    FILE *f = fopen(file, "rb");
    out->len = f ? fread(out->bytes, 1, sizeof out->bytes, f) : 0;
    if (f) fclose(f);
}

/* Rounds of 3 steps, adopted one step later. The state of the first one is durable at step 5, since
 * its contribution was adopted. The second capture then finds no finite values. */
static double step_to_infinity(toy *t, const diloco_run_info *now)
{
    const double loss = toy_step(t, now);
    if (now->position == 5) {
        keep_file(t->user);
        t->w[0] = INFINITY;
    }
    return loss;
}

static void check_good_state_stays(const char *name, const char *save_beside)
{
    static kept_file good, now;
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    t.step = step_to_infinity;
    t.user = &good;
    toy_live(&t);
    CHECK_INT(DILOCO_ENUMERIC, t.status);
    keep_file(&now);
    CHECK(good.len > 0);
    CHECK_INT(good.len, now.len);
    CHECK_BYTES(good.bytes, now.bytes, good.len);
}

TEST(a_state_whose_capture_is_not_finite_does_not_replace_the_last_good_one)
{
    check_good_state_stays("infinite", "true");
    check_good_state_stays("infinite_in_place", "false");
}

/* A stop between two due points saves, too. A resume then continues from the last good state. */
TEST(a_clean_stop_with_values_that_are_not_finite_keeps_the_last_good_state)
{
    static kept_file good, now;
    toy t = toy_with("infinite_stop", "0");
    t.step = step_to_infinity;
    t.user = &good;
    t.inner_lr = 0; /* infinity minus zero times infinity is a NaN */
    t.stop_after = 6;
    toy_set(&t, "trainer.local_steps_per_round", "5");
    toy_live(&t);
    CHECK_INT(DILOCO_ENUMERIC, t.status);
    CHECK_CONTAINS("local state: w[0] is ", t.text);
    keep_file(&now);
    CHECK(good.len > 0);
    CHECK_INT(good.len, now.len);
    CHECK_BYTES(good.bytes, now.bytes, good.len);
    t.stop_after = 0;
    t.step = NULL;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(t.end.entries, t.end.entry);
}

/* Two fragments. The capture of the first one does not see a bad value of the second. */
static double step_to_infinity_of_the_other(toy *t, const diloco_run_info *now)
{
    const double loss = toy_step(t, now);
    if (now->position == 11) {
        keep_file(t->user);
        t->w[TOY_N - 1] = INFINITY;
    }
    return loss;
}

static void check_all_fragments(const char *name, const char *save_beside)
{
    static kept_file good, now;
    toy t = toy_with(name, "1");
    t.fragments = 2;
    toy_set(&t, "trainer.local_steps_per_round", "6");
    toy_set(&t, "run.save_beside", save_beside);
    t.step = step_to_infinity_of_the_other;
    t.user = &good;
    toy_live(&t);
    CHECK_INT(DILOCO_ENUMERIC, t.status);
    CHECK_CONTAINS("local state: w.1[", t.text);
    keep_file(&now);
    CHECK(good.len > 0);
    CHECK_INT(good.len, now.len);
    CHECK_BYTES(good.bytes, now.bytes, good.len);
}

TEST(a_bad_value_of_a_fragment_that_is_not_due_keeps_the_last_good_state)
{
    check_all_fragments("infinite_other", "true");
    check_all_fragments("infinite_other_in_place", "false");
}

/* Count the saves that a run makes while it trains. */
static double step_and_count(toy *t, const diloco_run_info *now)
{
    if (!unlink(file)) ++*(int *)t->user;
    return toy_step(t, now);
}

static int n_saves(const char *name, const char *every)
{
    int n = 0;
    toy t = toy_with(name, "0");
    toy_set(&t, "run.save_every", every);
    t.step = step_and_count;
    t.user = &n;
    toy_live(&t);
    TOY_OK(t);
    return n;
}

TEST(save_every_skips_entries)
{
    CHECK_INT(3, n_saves("each", "1")); /* of 4: no step follows the last */
    CHECK_INT(2, n_saves("second", "2"));
    CHECK_INT(1, n_saves("first", "9"));
}

/* ---- a piece that is put together when it is saved */

static struct {
    int n_fills, n_direct; /* direct: to the place that was registered */
    bool fails;
    toy *toy;
} filled;

static unsigned char piece[sizeof((toy *)0)->moment];

/* The exchange may hold its lock for a moment. A save that holds it does so until the piece is
 * filled. */
static void check_lock_is_free(dl_driver *driver)
{
    enum { TRIES = 10000 };
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; pthread_mutex_trylock(&driver->thread.lock); i++) {
        if (i == TRIES) CHECK_FAIL("%s", "the exchange's lock is held while a piece is filled");
        nanosleep(&moment, NULL);
    }
    pthread_mutex_unlock(&driver->thread.lock);
}

static diloco_status fill_moment(void *user, void *to)
{
    CHECK(user == &filled);
    if (filled.fails) return DILOCO_EREFUSED;
    CHECK((uintptr_t)to % 64 == 0 || to == piece);
    check_lock_is_free(filled.toy->run->driver);
    filled.n_fills++;
    filled.n_direct += to == piece;
    memcpy(to, filled.toy->moment, sizeof filled.toy->moment);
    return DILOCO_OK;
}

static diloco_status register_piece(toy *t, diloco_run *run)
{
    filled.toy = t;
    return diloco_run_private_by(run, "packed", piece, sizeof piece, fill_moment, &filled);
}

/* The first step after a resume has the bytes that were filled. */
static double step_and_compare(toy *t, const diloco_run_info *now)
{
    if (now->resumed && !*(int *)t->user) {
        ++*(int *)t->user;
        CHECK_BYTES(t->moment, piece, sizeof piece);
    }
    return toy_step(t, now);
}

/* To the end of the run. */
static void resume_and_compare(toy *t)
{
    int n_compared = 0;
    memset(piece, 0, sizeof piece);
    t->stop_after = 0;
    t->step = step_and_compare;
    t->user = &n_compared;
    toy_live(t);
    TOY_OK(*t);
    CHECK_INT(1, n_compared);
}

static void check_fills(const char *name, const char *save_beside, bool direct)
{
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    toy_set(&t, "run.save_every", "2");
    t.prepare = register_piece;
    t.stop_after = 9; /* steps of 3 entries: the first and the third one are saved, and the end */
    filled.n_fills = filled.n_direct = 0;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(3, filled.n_fills);
    CHECK_INT(direct ? 3 : 0, filled.n_direct); /* the end has the memory of a copy, too */
    resume_and_compare(&t);
}

TEST(a_piece_is_filled_once_for_each_save_and_restored)
{
    check_fills("filled_beside", "true", false);
    check_fills("filled_in_place", "false", true);
}

static void check_failure(const char *name, const char *save_beside)
{
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    t.prepare = register_piece;
    filled.fails = true;
    toy_live(&t);
    filled.fails = false;
    CHECK_INT(DILOCO_EREFUSED, t.status);
    CHECK_INT(0, n_objects(&t, "c/"));
    CHECK(access(file, F_OK) != 0);
}

TEST(a_piece_that_cannot_be_filled_fails_the_step_and_saves_nothing)
{
    check_failure("unfilled_beside", "true");
    check_failure("unfilled_in_place", "false");
}

/* Ctrl-C in the caller's own code, once. */
static diloco_status fill_and_be_interrupted(void *user, void *to)
{
    if (++filled.n_fills == 2) return DILOCO_EINTERRUPTED;
    memcpy(to, filled.toy->moment, sizeof filled.toy->moment);
    return user == &filled ? DILOCO_OK : DILOCO_EREFUSED;
}

static diloco_status register_interrupted(toy *t, diloco_run *run)
{
    filled.toy = t;
    return diloco_run_private_by(run, "packed", piece, sizeof piece, fill_and_be_interrupted,
                                 &filled);
}

TEST(a_due_point_whose_save_was_interrupted_is_repeated)
{
    toy t = toy_with("interrupted_fill", "1");
    int n_interrupted = 0;
    t.prepare = register_interrupted;
    filled.n_fills = 0;
    t.status = toy_open(&t);
    if (!t.status) t.status = diloco_run_join(t.run);
    while (!t.status || t.status == DILOCO_EINTERRUPTED) {
        if (diloco_run_done(t.run)) break;
        n_interrupted += t.status != DILOCO_OK;
        t.status = t.status ? diloco_step(t.run, NULL) : toy_train(&t);
    }
    if (t.status) snprintf(t.text, sizeof t.text, "%s", diloco_error_text());
    toy_close(&t);
    TOY_OK(t);
    CHECK_INT(1, n_interrupted);
    CHECK_INT(t.end.entries, t.end.entry);
    CHECK_INT((int)t.end.entries + 1, filled.n_fills);
}

/* ---- a slow disk */

/* While the gate is shut, no save of a private state is synced. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut;
    int n_held, n_synced, n_failing; /* n_failing: the first syncs fail */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_gate(bool shut)
{
    pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Replaces the C library's function. */
__attribute__((visibility("default"))) int fsync(int fd)
{
    if (is_private_state(fd, "local.safetensors")) {
        pthread_mutex_lock(&gate.lock);
        gate.n_held += gate.shut;
        while (gate.shut)
            pthread_cond_wait(&gate.changed, &gate.lock);
        const bool fails = gate.n_synced++ < gate.n_failing;
        pthread_mutex_unlock(&gate.lock);
        errno = EIO;
        if (fails) return -1;
    }
    return real_fsync(fd);
}

/* Two fragments are due at 6, 9, 12, …. With error feedback each is saved, and adopted 4 steps
 * later. The disk is slow from the first save until the step after the second one. The trainer gets
 * there only if it does not wait for the disk, because such a wait is interrupted. */
static double step_with_slow_disk(toy *t, const diloco_run_info *now)
{
    int *n_passed = t->user;
    atomic_bool *stop = &t->run->calls.stop;
    if (now->position == 8) atomic_store(stop, true);
    if (now->position == 9) {
        ++*n_passed;
        CHECK_INT(0, gate.n_synced); /* on this thread, which is the main one */
        atomic_store(stop, false);
        set_gate(false);
    }
    return toy_step(t, now);
}

static toy toy_of_two(const char *name)
{
    toy t = toy_with(name, "4");
    t.fragments = 2;
    toy_set(&t, "trainer.local_steps_per_round", "6");
    toy_set(&t, "server.diloco.codec", "topk");
    toy_set(&t, "server.diloco.error_feedback", "0.95");
    return t;
}

static bool has_once(const char *record, const char *text)
{
    const char *found = strstr(record, text);
    return found && !strstr(found + 1, text);
}

static void check_slow_disk(const char *name, int n_failing)
{
    char fast[32];
    int n_passed = 0;
    snprintf(fast, sizeof fast, "%s.fast", name);
    toy plain = toy_of_two(fast);
    toy_set(&plain, "run.save_beside", "false");
    toy_live(&plain);
    TOY_OK(plain);
    toy slow = toy_of_two(name);
    slow.step = step_with_slow_disk;
    slow.user = &n_passed;
    toy_keep_record(&slow);
    gate.n_synced = 0;
    gate.n_failing = n_failing;
    set_gate(true);
    slow.status = toy_open(&slow);
    if (!slow.status) slow.status = diloco_run_join(slow.run);
    if (!slow.status) slow.status = toy_train(&slow);
    if (slow.status) snprintf(slow.text, sizeof slow.text, "%s", diloco_error_text());
    set_gate(false);
    toy_close(&slow);
    TOY_OK(slow);
    CHECK_INT(1, n_passed);
    CHECK_BYTES(plain.theta, slow.theta, sizeof plain.theta);
    CHECK_BYTES(plain.w, slow.w, sizeof plain.w);
    CHECK(has_once(slow.record, "\"slow_disk\""));
    CHECK(has_once(slow.record, "a newer state is saved in its place") == (n_failing > 0));
    free(slow.record);
    gate.n_failing = 0;
}

TEST(a_due_point_does_not_wait_for_a_disk_that_still_writes_the_former_save)
{
    check_slow_disk("slow", 0);
}

/* Interrupts until `over` is set. If the calls have no effect for a long time, it opens the gate,
 * so that the test fails and does not hang. */
typedef struct interrupter {
    diloco_run *run;
    atomic_bool over;
} interrupter;

static void *interrupt_often(void *user)
{
    interrupter *i = user;
    for (int n = 0; !atomic_load(&i->over); n++) {
        diloco_run_interrupt(i->run);
        dl_clock_sleep(DL_MILLISECOND);
        if (n == 20000) set_gate(false);
    }
    return NULL;
}

/* A save beside training waits for the disk since the step at 6. */
static double step_and_save(toy *t, const diloco_run_info *now)
{
    if (now->position == 7) {
        pthread_t thread;
        interrupter i = {.run = t->run};
        atomic_bool *pending = &t->run->calls.stop;
        CHECK_INT(0, pthread_create(&thread, NULL, interrupt_often, &i));
        CHECK_STATUS(DILOCO_EINTERRUPTED, diloco_run_save(t->run));
        atomic_store(&i.over, true);
        CHECK_INT(0, pthread_join(thread, NULL));
        CHECK_INT(0, gate.n_synced);
        set_gate(false);
        diloco_run_interrupt(t->run);
        CHECK_OK(
            diloco_run_save(t->run)); /* an earlier interrupt is for the next call that waits */
        CHECK(atomic_exchange(pending, false));
        ++*(int *)t->user;
    }
    return toy_step(t, now);
}

TEST(a_save_by_the_caller_that_waits_for_the_disk_is_interrupted)
{
    int n_saved = 0;
    toy t = toy_of_two("interrupted_save");
    t.step = step_and_save;
    t.user = &n_saved;
    gate.n_synced = 0;
    set_gate(true);
    toy_live(&t);
    set_gate(false);
    TOY_OK(t);
    CHECK_INT(1, n_saved);
    CHECK_INT(t.end.entries, t.end.entry);
}

/* ---- little memory */

/* Half a kilobyte is enough for a part of a toy's copy: 64 times 3 of its 576 bytes. */
static atomic_bool scarce;

/* Replaces the C library's function. */
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*_Atomic real)(const char *, const char *);
    static char meminfo[] = "MemAvailable: 1 kB\n";
    if (!real) real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    if (atomic_load(&scarce) && !strcmp(path, "/proc/meminfo"))
        return fmemopen(meminfo, sizeof meminfo - 1, "r");
    return real(path, mode);
}

/* At the first due point the exchange has computed nothing. Its arrays then need more memory. */
static double step_with_little_memory(toy *t, const diloco_run_info *now)
{
    const dl_local *local = t->run->local;
    if (now->position == 5) CHECK(!dl_local_is_reserved(local, 0));
    if (now->position >= 8) {
        CHECK(dl_local_is_reserved(local, 0) && dl_local_borrows(local, 0));
        CHECK(!dl_local_is_reserved(local, 1));
        ++*(int *)t->user;
    }
    return toy_step(t, now);
}

TEST(a_copy_borrows_memory_of_the_exchange_if_there_is_too_little)
{
    int n_passed = 0;
    toy plain = toy_with("enough", "1");
    plain.prepare = register_piece;
    toy_live(&plain);
    TOY_OK(plain);
    toy t = toy_with("little", "1");
    t.prepare = register_piece;
    t.step = step_with_little_memory;
    t.user = &n_passed;
    t.stop_after = 10;
    filled.n_fills = filled.n_direct = 0;
    atomic_store(&scarce, true);
    toy_live(&t);
    atomic_store(&scarce, false);
    TOY_OK(t);
    CHECK_INT(2, n_passed);
    CHECK_INT(4, filled.n_fills); /* of three due points, and of the end */
    CHECK_INT(1, filled.n_direct);
    resume_and_compare(&t);
    CHECK_BYTES(plain.theta, t.theta, sizeof plain.theta);
    CHECK_BYTES(plain.w, t.w, sizeof plain.w);
}

/* The second entry is computed, and its state is not finite. So the entry is an abort. */
static diloco_status step_out_of_bounds_once(void *user, const diloco_user_step *s)
{
    int *n_aborted = user;
    if (s->commits == 1 && *n_aborted == 0) return ++*n_aborted, DILOCO_ENUMERIC;
    for (size_t i = 0; i < s->n; i++)
        s->theta[i] -= s->learning_rate * s->g[i];
    return DILOCO_OK;
}

TEST(memory_in_which_an_aborted_entry_was_computed_is_lent_again)
{
    int n_aborted = 0;
    const diloco_user_outer outer = {.size = sizeof outer,
                                     .name = "sgd",
                                     .user = &n_aborted,
                                     .n_vectors = 1,
                                     .step = step_out_of_bounds_once};
    toy t = toy_with("aborted", "1");
    t.prepare = register_piece;
    t.parts.outer = &outer;
    filled.n_fills = filled.n_direct = 0;
    atomic_store(&scarce, true);
    toy_live(&t);
    atomic_store(&scarce, false);
    TOY_OK(t);
    CHECK_INT(1, n_aborted);
    CHECK_INT(4, filled.n_fills);
    CHECK_INT(1, filled.n_direct); /* of the first due point, where there is too little memory */
}

/* The exchange computes entries meanwhile. */
static double step_after_a_save(toy *t, const diloco_run_info *now)
{
    CHECK_OK(diloco_run_save(t->run));
    return toy_step(t, now);
}

TEST(saves_by_the_caller_in_lent_memory_change_no_bits)
{
    toy plain = toy_with("unlent", "2");
    toy_set(&plain, "trainer.rounds", "12");
    plain.prepare = register_piece;
    toy_live(&plain);
    TOY_OK(plain);
    toy t = toy_with("lent", "2");
    toy_set(&t, "trainer.rounds", "12");
    t.prepare = register_piece;
    t.step = step_after_a_save;
    filled.n_fills = filled.n_direct = 0;
    atomic_store(&scarce, true);
    toy_live(&t);
    atomic_store(&scarce, false);
    TOY_OK(t);
    CHECK(filled.n_direct < filled.n_fills);
    CHECK_BYTES(plain.theta, t.theta, sizeof plain.theta);
    CHECK_BYTES(plain.w, t.w, sizeof plain.w);
}

/* r0 and r1 have due points at 3, 6, 9, …. r1 closes entry 1 before r0 captures for it. So r0 reads
 * it from the log while its own save of that due point has the memory in which it is to be
 * computed. The disk is slow until r1's step at 8. */
static struct late {
    const toy *first;
    atomic_int position; /* of r0 */
    atomic_bool over;    /* a wait has ended without its condition */
    int n_passed;
} late;

static bool has_position(int least)
{
    return atomic_load(&late.position) >= least;
}

static bool has_entries(int least)
{
    return n_objects(late.first, "log/") >= least;
}

static bool has_held(int least)
{
    pthread_mutex_lock(&gate.lock);
    const bool held = gate.n_held >= least;
    pthread_mutex_unlock(&gate.lock);
    return held;
}

static void wait_until(bool (*has)(int least), int least)
{
    for (int ms = 0; !has(least) && !atomic_load(&late.over); ms++) {
        if (ms == 30000) atomic_store(&late.over, true);
        dl_clock_sleep(DL_MILLISECOND);
    }
}

static double step_of_the_late_one(toy *t, const diloco_run_info *now)
{
    atomic_store(&late.position, (int)now->position);
    if (now->position == 5) {
        wait_until(has_entries, 2);
        set_gate(true);
    }
    return toy_step(t, now);
}

static double step_of_the_other(toy *t, const diloco_run_info *now)
{
    if (now->position == 2 || now->position == 5) wait_until(has_position, (int)now->position);
    if (now->position == 8) {
        wait_until(has_held, 1);
        dl_clock_sleep(50 * DL_MILLISECOND); /* r0's COMPUTE is likely to wait by then */
        late.n_passed += dl_driver_facts_now(late.first->run->driver).entry == 1;
        set_gate(false);
    }
    return toy_step(t, now);
}

TEST(an_entry_that_others_close_is_computed_after_the_save_that_has_its_memory)
{
    toy all[2];
    late = (struct late){.first = &all[0]};
    toy_crew(all, 2, scratch_path("late"), "none");
    all[0].settings[all[0].n_settings - 1][1] = scratch_path("late.state");
    toy_set_all(all, 2, "server.diloco.overlap_steps", "2");
    toy_set_all(all, 2, "run.min_replicas", "1");
    toy_set_all(all, 2, "run.close_at", "1");
    toy_set_all(all, 2, "run.grace", "0");
    all[0].prepare = register_piece;
    all[0].step = step_of_the_late_one;
    all[1].step = step_of_the_other;
    filled.n_fills = filled.n_direct = gate.n_held = 0;
    atomic_store(&scarce, true);
    CHECK_INT(0, pthread_create(&all[1].thread, NULL, toy_thread, &all[1]));
    toy_live(&all[0]);
    CHECK_INT(0, pthread_join(all[1].thread, NULL));
    atomic_store(&scarce, false);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK(!atomic_load(&late.over));
    CHECK_INT(1, late.n_passed);
    CHECK(filled.n_direct < filled.n_fills);
    CHECK_BYTES(all[0].w, all[1].w, sizeof all[0].w);
}

/* ---- no memory for a second copy */

/* Of the trainer, whose thread takes the memory. */
static _Thread_local bool no_memory;

/* A sanitizer replaces this function itself. */
#if !SANITIZED
void *__libc_memalign(size_t alignment, size_t size);

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t size)
{
    return no_memory ? NULL : __libc_memalign(alignment, size);
}
#endif

/* The first save is at position 6. Any wait after the step at 8 is interrupted. */
static double step_without_memory(toy *t, const diloco_run_info *now)
{
    if (now->position == 6) no_memory = true;
    if (now->position == 8) atomic_store(&t->run->calls.stop, true);
    return toy_step(t, now);
}

TEST(a_due_point_without_memory_for_a_second_copy_warns_and_waits_for_the_disk)
{
    if (SANITIZED) {
        print_message("left out: a sanitizer takes the memory\n");
        skip();
    }
    toy t = toy_of_two("no_memory");
    t.step = step_without_memory;
    toy_keep_record(&t);
    gate.n_synced = 0;
    set_gate(true);
    t.status = toy_open(&t);
    if (!t.status) t.status = diloco_run_join(t.run);
    if (!t.status) t.status = toy_train(&t);
    CHECK_INT(DILOCO_EINTERRUPTED, t.status);
    CHECK_INT(9, diloco_run_now(t.run).position);
    no_memory = false;
    set_gate(false);
    t.step = NULL;
    t.status = diloco_step(t.run, NULL);
    if (!t.status) t.status = toy_train(&t);
    if (t.status) snprintf(t.text, sizeof t.text, "%s", diloco_error_text());
    toy_close(&t);
    TOY_OK(t);
    CHECK_INT(t.end.entries, t.end.entry);
    CHECK(has_once(t.record, "there is no memory for a second copy"));
    free(t.record);
}

TEST(a_save_that_fails_while_a_newer_copy_waits_is_a_warning_and_changes_no_bits)
{
    check_slow_disk("failing", 1);
}

TEST_MAIN(p16_no_contribution_is_put_before_the_state_is_saved,
          a_state_whose_capture_is_not_finite_does_not_replace_the_last_good_one,
          a_clean_stop_with_values_that_are_not_finite_keeps_the_last_good_state,
          a_bad_value_of_a_fragment_that_is_not_due_keeps_the_last_good_state,
          save_every_skips_entries, a_piece_is_filled_once_for_each_save_and_restored,
          a_piece_that_cannot_be_filled_fails_the_step_and_saves_nothing,
          a_due_point_whose_save_was_interrupted_is_repeated,
          a_due_point_does_not_wait_for_a_disk_that_still_writes_the_former_save,
          a_save_by_the_caller_that_waits_for_the_disk_is_interrupted,
          a_copy_borrows_memory_of_the_exchange_if_there_is_too_little,
          memory_in_which_an_aborted_entry_was_computed_is_lent_again,
          saves_by_the_caller_in_lent_memory_change_no_bits,
          an_entry_that_others_close_is_computed_after_the_save_that_has_its_memory,
          a_due_point_without_memory_for_a_second_copy_warns_and_waits_for_the_disk,
          a_save_that_fails_while_a_newer_copy_waits_is_a_warning_and_changes_no_bits)
