/* sim_goodput.c - how much of the hardware's time becomes steps that count, where chips fail.
 *
 * The setting of Decoupled DiLoCo (arXiv:2604.21428): CHIPS chips in N equal learners, and every
 * chip fails once a year in the mean. A failure stops the learner that the chip belongs to for
 * REPAIR_S seconds, in which it gets another chip and reads its state. The process loses its
 * memory; its next generation resumes from the state saved at a due point. A failure of a learner
 * that is being repaired restarts the repair.
 *
 *     goodput = steps that commits counted * seconds a step / (learners * seconds of the run)
 *
 * A step of a fragment counts for that fragment alone, so the steps of all members of all commits
 * are divided by the number of fragments. The steps between a due point and the adoption of its
 * entry count with the next contribution. The adoption replaces their result for that one fragment
 * (algorithm 1 of the paper with alpha = 0). Lost are: repairs, steps since the last
 * contribution that counted, steps that did not fill an interval, and waiting for entries. All
 * times are virtual: a result depends on the seed, and not on the machine. */
#include "sim.h"

#include <math.h>
#include <string.h>

static const double YEAR = 365.25 * 24 * 3600;
enum { H = 24, FRAGMENTS = SIM_FRAGMENTS, OVERLAP = 2 };

static void set(sim *s, const char *name, const char *value)
{
    if (dl_config_set(&s->config, name, value, "sim")) DIE(s, "%s", diloco_error_text());
}

void sim_goodput_configure(sim *s)
{
    char n[32], rounds[32], deadline[32];
    snprintf(n, sizeof n, "%zu", s->n);
    snprintf(rounds, sizeof rounds, "%d", ENTRIES / FRAGMENTS);
    dl_config_init(&s->config);
    s->n_fragments = FRAGMENTS;
    set(s, "run.replicas", n);
    set(s, "run.state_dir", "none");
    set(s, "run.patience", "120");
    /* An entry waits for all that are not silent, but training never waits for an entry. */
    snprintf(deadline, sizeof deadline, "%g", 0.75 * OVERLAP * s->calm.step_s);
    set(s, "run.on_missing", "commit_partial");
    set(s, "run.deadline", deadline);
    set(s, "trainer.rounds", rounds);
    set(s, "trainer.batch_size", "1");
    set(s, "trainer.local_steps_per_round", "24");
    set(s, "server.diloco.overlap_steps", "2");
    set(s, "server.diloco.exchange", s->kind.topology);
    if (dl_schedule_of(&s->schedule, &s->config, FRAGMENTS)) DIE(s, "%s", diloco_error_text());
}

/* A failure of any of its chips, by an exponential distribution. */
void sim_goodput_plan_failure(replica *r)
{
    const sim *s = r->sim;
    r->fault.fail_at = INFINITY;
    if (s->calm.chips > 0)
        r->fault.fail_at =
            s->now - log1p(-sim_uniform(r->sim, 0, 1)) * YEAR * (double)s->n / s->calm.chips;
}

void sim_goodput_fail(replica *r)
{
    sim *s = r->sim;
    if (r->now.alive) sim_crash(r);
    r->time.next = s->now + s->calm.repair_s;
    sim_goodput_plan_failure(r);
}

static double steps_that_count(sim *s)
{
    double steps = 0;
    dl_buf text;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    for (uint64_t e = 0; e < ENTRIES; e++) {
        dl_buf_clear(&text);
        if (dl_entry_get(&text, s->store, e, DL_NEVER) ||
            dl_entry_read(&s->truth.entry, text.data, text.len, dl_outer_find("nesterov")))
            DIE(s, "%s", diloco_error_text());
        for (size_t i = 0; s->truth.entry.commit && i < s->truth.entry.n_members; i++)
            steps += fmin((double)s->truth.entry.members[i].stats.steps + OVERLAP, H);
    }
    dl_buf_deinit(&text);
    return steps / FRAGMENTS;
}

void sim_goodput_measure(sim *s)
{
    const double began = SIM_QUIET, seconds = s->calm.grew_at - began;
    const double ideal = (double)(ENTRIES / FRAGMENTS) * H * s->calm.step_s;
    s->calm.goodput = steps_that_count(s) * s->calm.step_s / ((double)s->n * seconds);
    printf(
        "%.0f chips, %zu learners, a failure of a learner every %.0f s, repaired in %.0f s, "
        "%.1f s a step: %llu failures in %.0f s; goodput %.2f %%; the log grew at %.2f %% of its "
        "pace\n",
        s->calm.chips, s->n, s->calm.chips > 0 ? YEAR * (double)s->n / s->calm.chips : 0.0,
        s->calm.repair_s, s->calm.step_s, (unsigned long long)s->count.crashes, seconds,
        100 * s->calm.goodput, 100 * ideal / seconds);
}
