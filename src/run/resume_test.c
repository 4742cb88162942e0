/* resume_test.c - P16: a replica that is stopped cleanly and resumed trains the same bits, even
 * with contributions in flight. The residual of error feedback moves on by the sent values. Eager's
 * own momentum and weight are those of the earlier shares.
 *
 * Two replicas of unequal weight are stopped every few steps. They end with the same bits as two
 * that are never stopped. */
#include "toy_run.h"

#include "run/driver_parts.h"
#include "run/handle.h"
#include "sanitized.h"

#include <dlfcn.h>

enum { CREW = 2 };

static void crew_of(toy all[CREW], const char *store, const char *state, const char *const *options)
{
    static const char *const names[] = {"r0", "r1"};
    for (int r = 0; r < CREW; r++) {
        all[r] = toy_of(names[r], store);
        all[r].samples = r ? 5 : 2;
        toy_set(&all[r], "run.replicas", "2");
        toy_set(&all[r], "run.min_replicas", "2");
        toy_set(&all[r], "run.state_dir", state);
        toy_set(&all[r], "trainer.rounds", "9");
        toy_set(&all[r], "server.diloco.aggregation_weighting", "num_samples");
        for (size_t i = 0; options[i]; i += 2)
            toy_set(&all[r], options[i], options[i + 1]);
    }
}

/* Runs until the run is done, with a clean stop after stop_after steps of each generation. */
static void *run_in_parts(void *context)
{
    toy *t = context;
    do
        toy_live(t);
    while (!t->status && t->end.entry < t->end.entries);
    return NULL;
}

/* No generation saves at its end, so the next one resumes from the last due point. Its save is
 * finished and its contribution uploaded, which a kill could prevent. */
static void *live_and_be_killed(void *context)
{
    toy *t = context;
    do {
        uint64_t n = 0;
        t->status = toy_open(t);
        if (!t->status) t->status = diloco_run_join(t->run);
        while (!t->status && !diloco_run_done(t->run) && n++ < t->stop_after) {
            const diloco_run_info now = diloco_run_now(t->run);
            const diloco_step_report report = {.loss = toy_step(t, &now), .samples = t->samples};
            t->status = diloco_step(t->run, &report);
        }
        if (t->status) snprintf(t->text, sizeof t->text, "%s", diloco_error_text());
        toy_close(t);
    } while (!t->status && t->end.entry < t->end.entries);
    return NULL;
}

static void live_both_as(toy all[CREW], void *(*live)(void *))
{
    for (int r = 0; r < CREW; r++)
        CHECK_INT(0, pthread_create(&all[r].thread, NULL, live, &all[r]));
    for (int r = 0; r < CREW; r++)
        pthread_join(all[r].thread, NULL);
    for (int r = 0; r < CREW; r++)
        TOY_OK(all[r]);
}

static void live_both(toy all[CREW])
{
    live_both_as(all, run_in_parts);
}

/* Runs the same run twice: [0] without stops, [1] with those of the test. */
static void two_runs(toy whole[CREW], toy parts[CREW], const char *const *options)
{
    static int n;
    static char store[2][32], state[2][PATH_MAX]; /* the toys point to them, until the next two */
    for (int i = 0; i < 2; i++, n++) {
        char name[32];
        snprintf(name, sizeof name, "state%d", n);
        snprintf(store[i], sizeof store[i], "mem://resume%d", n);
        snprintf(state[i], sizeof state[i], "%s", scratch_path(name));
        toy_keep(store[i]);
        crew_of(i ? parts : whole, store[i], state[i], options);
    }
    live_both(whole);
}

static void check_same(const toy whole[CREW], const toy parts[CREW])
{
    for (int r = 0; r < CREW; r++) {
        CHECK(parts[r].end.resumed && parts[r].end.generation > 0);
        CHECK_BYTES(whole[r].theta, parts[r].theta, sizeof whole[r].theta);
        CHECK_BYTES(whole[r].w, parts[r].w, sizeof whole[r].w);
    }
}

static void check_resumes(const char *const *options)
{
    for (uint64_t after = 1; after <= 4; after++) {
        toy whole[CREW], parts[CREW];
        two_runs(whole, parts, options);
        parts[0].stop_after = after;
        parts[1].stop_after = 5 - after;
        live_both(parts);
        check_same(whole, parts);
    }
}

#define SPARSE                                                                                     \
    "server.diloco.codec", "topk", "server.diloco.codec_keep", "0.1",                              \
        "server.diloco.error_feedback", "0.95"

TEST(p16_residual_with_contributions_in_flight_is_saved)
{
    check_resumes((const char *const[]){"server.diloco.overlap_steps", "2", SPARSE, NULL});
    check_resumes((const char *const[]){"server.diloco.overlap_steps", "1",
                                        "server.diloco.compression", "zstd", SPARSE, NULL});
}

TEST(p16_the_residual_of_a_blocking_entry_is_kept)
{
    check_resumes((const char *const[]){"server.diloco.overlap_steps", "0", SPARSE, NULL});
}

TEST(p16_residual_survives_a_kill_without_overlap)
{
    for (uint64_t after = 4; after <= 6; after++) {
        toy whole[CREW], parts[CREW];
        two_runs(whole, parts, (const char *const[]){SPARSE, NULL});
        parts[0].stop_after = after;
        parts[1].stop_after = 10 - after;
        live_both_as(parts, live_and_be_killed);
        check_same(whole, parts);
    }
}

/* Each generation resumes from the save of a due point, which precedes the capture. */
TEST(p16_a_replica_killed_during_overlap_resumes_with_its_bits)
{
    for (uint64_t after = 4; after <= 6; after++) {
        toy whole[CREW], parts[CREW];
        two_runs(whole, parts, (const char *const[]){"server.diloco.overlap_steps", "2", NULL});
        parts[0].stop_after = after;
        parts[1].stop_after = 10 - after;
        live_both_as(parts, live_and_be_killed);
        check_same(whole, parts);
    }
}

/* The second step of this process reaches the due point; the other replica never does. */
static double step_and_interrupt(toy *t, const diloco_run_info *now)
{
    if (now->position % 3 == 2) diloco_run_interrupt(t->run);
    return toy_step(t, now);
}

/* The capture of the wait is repeated from the residual as it was before. */
TEST(p16_residual_of_a_replica_stopped_while_it_waits_is_saved)
{
    toy whole[CREW], parts[CREW];
    two_runs(whole, parts, (const char *const[]){SPARSE, NULL});
    parts[0].stop_after = parts[1].stop_after = 13;
    toy_live_all(parts, CREW);
    TOY_OK(parts[0]);
    TOY_OK(parts[1]);

    parts[0].step = step_and_interrupt;
    CHECK_STATUS(DILOCO_EINTERRUPTED, toy_live(&parts[0]));
    CHECK_INT(15, parts[0].end.position);

    parts[0].step = NULL;
    parts[0].stop_after = parts[1].stop_after = 0;
    live_both(parts);
    check_same(whole, parts);
}

TEST(p16_residual_of_a_round_in_flight_is_saved)
{
    check_resumes((const char *const[]){"server.diloco.overlap", "delayed", SPARSE, NULL});
}

TEST(p16_eager_resumes_with_its_own_momentum_and_weight)
{
    check_resumes((const char *const[]){"server.diloco.overlap", "eager", NULL});
    check_resumes((const char *const[]){"server.diloco.overlap", "eager", SPARSE, NULL});
}

/* ---- consistency of a save ---------------------------------------------------------------- */

#if !SANITIZED
static _Atomic(dl_driver *) watched;
static int n_moved, n_apart; /* under its lock, as the next two: the last values seen */
static uint64_t applied;
static dl_hash digest;

static void look(const dl_driver *d)
{
    const dl_hash now = dl_exec_state(d->a.exec)->now[0].digest;
    const bool moved = n_moved == 0 || !dl_hash_equal(now, digest);
    if (n_moved > 0 && moved && d->pace.applied == applied) n_apart++;
    n_moved += moved;
    applied = d->pace.applied;
    digest = now;
}

/* Replaces the C library's function: releasing the watched driver's lock lets another thread save.
 */
__attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static int (*_Atomic real)(pthread_mutex_t *);
    dl_driver *d = atomic_load(&watched);
    if (!real) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (d && lock == &d->thread.lock) look(d);
    return real(lock);
}

static double step_watched(toy *t, const diloco_run_info *now)
{
    atomic_store(&watched, t->run->driver);
    return toy_step(t, now);
}

static void *live_watched(void *context)
{
    toy *t = context;
    t->status = toy_open(t);
    if (!t->status) t->status = diloco_run_join(t->run);
    if (!t->status) t->status = toy_train(t);
    if (t->status) snprintf(t->text, sizeof t->text, "%s", diloco_error_text());
    if (t->step == step_watched) atomic_store(&watched, NULL);
    toy_close(t);
    return NULL;
}

/* If the state after entry e were saved with the pace before it, a resume would add a movement of
 * another state and adopt over it (P3). */
TEST(p16_saved_state_and_pace_are_consistent)
{
    toy all[CREW];
    toy_keep("mem://watched");
    crew_of(all, "mem://watched", "none",
            (const char *const[]){"server.diloco.overlap_steps", "2", NULL});
    all[0].step = step_watched;
    for (int r = 0; r < CREW; r++)
        CHECK_INT(0, pthread_create(&all[r].thread, NULL, live_watched, &all[r]));
    for (int r = 0; r < CREW; r++)
        pthread_join(all[r].thread, NULL);
    for (int r = 0; r < CREW; r++)
        TOY_OK(all[r]);
    CHECK(n_moved > 5);
    CHECK_INT(0, n_apart);
}
#else
TEST(p16_saved_state_and_pace_are_consistent)
{
    print_message("left out: what a save sees, under sanitizers (they have the locks)\n");
    skip();
}
#endif

static toy alone(const char *store, const char *rounds, const char *state)
{
    toy t = toy_of("r0", store);
    toy_keep(store);
    toy_set(&t, "run.state_dir", state);
    toy_set(&t, "trainer.rounds", rounds);
    return t;
}

/* A caller of the library gives the shared model and its own moments. Only the first of its
 * processes reads the other run. */
TEST(an_extension_that_is_killed_has_the_samples_and_bits_of_one_long_run)
{
    char state[3][PATH_MAX];
    for (int i = 0; i < 3; i++)
        snprintf(state[i], sizeof state[i], "%s", scratch_path((const char *[]){"a", "b", "c"}[i]));
    toy whole = alone("mem://whole", "8", state[0]), first = alone("mem://first", "4", state[1]);
    toy_live(&whole);
    toy_live(&first);
    TOY_OK(whole);
    TOY_OK(first);
    toy next = alone("mem://next", "4", state[2]);
    toy_set(&next, "trainer.init_from", "mem://first");
    toy_set(&next, "trainer.init_as", "extension");
    memcpy(next.w, first.theta, sizeof next.w);
    memcpy(next.moment, first.moment, sizeof next.moment);
    next.samples = 1;
    next.stop_after = 4; /* of rounds of three steps */
    live_and_be_killed(&next);
    TOY_OK(next);
    CHECK(next.end.generation > 1);
    CHECK_INT(whole.end.sample, next.end.sample);
    CHECK_BYTES(whole.theta, next.theta, sizeof whole.theta);
    CHECK_BYTES(whole.moment, next.moment, sizeof whole.moment);
}

TEST_MAIN(an_extension_that_is_killed_has_the_samples_and_bits_of_one_long_run,
          p16_saved_state_and_pace_are_consistent,
          p16_residual_with_contributions_in_flight_is_saved,
          p16_the_residual_of_a_blocking_entry_is_kept,
          p16_residual_survives_a_kill_without_overlap,
          p16_a_replica_killed_during_overlap_resumes_with_its_bits,
          p16_residual_of_a_replica_stopped_while_it_waits_is_saved,
          p16_residual_of_a_round_in_flight_is_saved,
          p16_eager_resumes_with_its_own_momentum_and_weight)
