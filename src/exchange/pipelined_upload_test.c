/* pipelined_upload_test.c - during a pipelined upload other entries are applied and adopted, and
 * training continues. Its errors are reported.
 *
 * Two replicas, two fragments, H = 6 and an overlap of 5 steps: entry 0 is captured at step 6 and
 * adopted at 11, entry 1 is captured at 9. A store of this test holds r0's upload for entry 1. */
#include "toy_run.h"

#include "toy_store.h"

enum { CREW = 2, ADOPTED_AT = 11, LONGEST_MS = 30000 };

static const char held_key[] = "c/0000000001/r0.0000", other_key[] = "c/0000000000/r1.0000";

static struct gate {
    atomic_bool holds;   /* r0's contribution to entry 1 waits until r0 has trained further */
    atomic_bool held;    /* it has begun */
    atomic_bool went_on; /* r0 took a step after it adopted entry 0 */
    atomic_bool late;    /* a wait ended without its condition */
    atomic_int n_unreachable;
    diloco_status unreachable_as;
    diloco_status failure;
} gate;

static void wait_for(const atomic_bool *what)
{
    for (int ms = 0; !atomic_load(what); ms++) {
        if (ms == LONGEST_MS) atomic_store(&gate.late, true);
        if (atomic_load(&gate.late)) return;
        dl_clock_sleep(DL_MILLISECOND);
    }
}

static diloco_status create(void *user, void *handle, const char *key,
                            const diloco_user_bytes *parts, size_t n, bool *taken, double timeout_s)
{
    const bool held = strcmp(key, held_key) == 0;
    if (held) atomic_store(&gate.held, true);
    if (held && gate.failure) return dl_fail(gate.failure, "no room, by the test");
    if (held && atomic_fetch_sub(&gate.n_unreachable, 1) > 0)
        return dl_fail(gate.unreachable_as, "gone, by the test");
    if (held && atomic_load(&gate.holds)) wait_for(&gate.went_on);
    if (strcmp(key, other_key) == 0 && atomic_load(&gate.holds)) wait_for(&gate.held);
    return user_store_create(user, handle, key, parts, n, taken, timeout_s);
}

static double step(toy *t, const diloco_run_info *now)
{
    if (!strcmp(t->name, "r0") && now->position >= ADOPTED_AT) atomic_store(&gate.went_on, true);
    return toy_step(t, now);
}

/* Runs both replicas to their ends, in a store of their own, with that exchange. */
static void run_both(const char *exchange, toy all[CREW], const char *place, bool holds,
                     uint64_t other_stops_after)
{
    char url[64], kept[64];
    diloco_user_store store = user_store();
    store.create = create;
    const diloco_user_parts parts = {.store = &store};
    snprintf(url, sizeof url, "user://mine/%s", place);
    snprintf(kept, sizeof kept, "mem://user.%s", place);
    toy_keep(kept);
    toy_crew(all, CREW, url, "none");
    toy_set_all(all, CREW, "trainer.local_steps_per_round", "6");
    toy_set_all(all, CREW, "server.diloco.overlap_steps", "5");
    toy_set_all(all, CREW, "run.min_replicas", "2");
    toy_set_all(all, CREW, "server.diloco.exchange", exchange);
    gate.holds = holds;
    gate.held = gate.went_on = false;
    for (int r = 0; r < CREW; r++) {
        all[r].parts = parts;
        all[r].fragments = 2;
        all[r].step = step;
        toy_keep_record(&all[r]);
    }
    all[1].stop_after = other_stops_after;
    toy_live_all(all, CREW);
    CHECK(!atomic_load(&gate.late));
}

static void live(toy all[CREW], const char *place, bool holds, uint64_t other_stops_after)
{
    run_both("allgather", all, place, holds, other_stops_after);
}

static void forget(toy all[CREW])
{
    for (int r = 0; r < CREW; r++)
        free(all[r].record);
}

/* Returns the line of a replica's record that has both. */
static size_t line_of(const toy *t, const char *event, const char *entry)
{
    char both[64];
    snprintf(both, sizeof both, "\"event\":\"%s\"", event);
    size_t n = 0;
    for (const char *at = t->record; *at; at = strchr(at, '\n') + 1, n++) {
        const size_t len = strcspn(at, "\n");
        const char *what = memmem(at, len, both, strlen(both));
        if (what && memmem(at, len, entry, strlen(entry))) return n;
    }
    CHECK_FAIL("%s has no line %s %s", t->name, event, entry);
    return 0;
}

static void check_beside(const char *exchange, const char *name)
{
    toy plain[CREW], all[CREW];
    char place[40];
    snprintf(place, sizeof place, "%s-as-ever", name);
    live(plain, place, false, 0);
    TOY_OK(plain[0]);
    snprintf(place, sizeof place, "%s-held", name);
    run_both(exchange, all, place, true, 0);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK(line_of(&all[0], "commit", "\"entry\":0,") <
          line_of(&all[0], "contribution", "\"entry\":1,"));
    CHECK_BYTES(plain[0].theta, all[0].theta, sizeof plain[0].theta);
    CHECK_BYTES(plain[0].w, all[0].w, sizeof plain[0].w);
    forget(plain), forget(all);
}

TEST(entry_is_applied_and_adopted_during_a_pipelined_upload)
{
    check_beside("allgather", "whole");
}

/* The upload of the table is held; the slices were uploaded before it. */
TEST(p19_entry_is_applied_and_adopted_during_a_pipelined_upload_of_slices)
{
    check_beside("sharded", "sliced");
}

static void check_retried(const char *name, diloco_status as)
{
    char answers[64];
    toy plain[CREW], all[CREW];
    snprintf(answers, sizeof answers, "%s-not", name);
    live(plain, answers, false, 0);
    gate.n_unreachable = 3;
    gate.unreachable_as = as;
    live(all, name, true, 0);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK(gate.n_unreachable < 0);
    CHECK_BYTES(plain[0].theta, all[0].theta, sizeof plain[0].theta);
    forget(plain), forget(all);
}

TEST(pipelined_upload_is_retried_if_the_store_does_not_answer)
{
    check_retried("unreachable", DILOCO_EUNREACHABLE);
}

/* Such as after a process was suspended in the call. */
TEST(pipelined_upload_is_retried_if_its_time_is_over)
{
    check_retried("late", DILOCO_ETIMEDOUT);
}

TEST(pipelined_upload_that_fails_ends_the_run_with_its_reason)
{
    toy all[CREW];
    gate.failure = DILOCO_EIO;
    live(all, "full", true, 9);
    gate.failure = DILOCO_OK;
    CHECK_INT(DILOCO_EIO, all[0].status);
    CHECK_CONTAINS("says: io", all[0].text);
    forget(all);
}

TEST_MAIN(entry_is_applied_and_adopted_during_a_pipelined_upload,
          p19_entry_is_applied_and_adopted_during_a_pipelined_upload_of_slices,
          pipelined_upload_is_retried_if_the_store_does_not_answer,
          pipelined_upload_is_retried_if_its_time_is_over,
          pipelined_upload_that_fails_ends_the_run_with_its_reason)
