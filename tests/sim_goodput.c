/* sim_goodput.c - how much of the hardware's time becomes steps that count, where chips fail.
 *
 * The setting of Decoupled DiLoCo (arXiv:2604.21428): CHIPS chips in N equal learners, and every
 * chip fails once a year in the mean. A failure stops the learner that the chip belongs to for
 * REPAIR_S seconds, in which it gets another chip and reads its state. The process loses its
 * memory; its next generation resumes from the state saved at a due point. A failure of a learner
 * that is being repaired restarts the repair.
 *
 *     goodput = steps that count * seconds a step / (learners * seconds of the run)
 *
 * A step counts for a fragment if a commit counts the contribution that has it. The steps between
 * a due point and the adoption of its entry count with the next contribution. The adoption replaces
 * their result for that one fragment (algorithm 1 of the paper with alpha = 0). sim_loss.c says
 * what the rest of the time was spent on. All times are virtual: a result depends on the seed, and
 * not on the machine. Options of the command line replace those set here. */
#include "sim.h"

#include <math.h>
#include <string.h>

static const double YEAR = 365.25 * 24 * 3600;

static void set(sim *s, const char *name, const char *value)
{
    if (dl_config_set(&s->config, name, value, "sim")) DIE(s, "%s", diloco_error_text());
}

/* The options of the command line. */
static void set_given(sim *s)
{
    for (char **given = s->calm.options; given && *given; given++) {
        char name[64];
        const char *value = strchr(*given, '=') + 1;
        snprintf(name, sizeof name, "%.*s", (int)(value - 1 - *given), *given);
        set(s, name, value);
    }
}

void sim_goodput_configure(sim *s)
{
    char n[32], fragments[32], rounds[32], deadline[32];
    snprintf(n, sizeof n, "%zu", s->n);
    dl_config_init(&s->config);
    set(s, "run.replicas", n);
    set(s, "run.state_dir", "none");
    set(s, "run.patience", "120");
    set(s, "run.on_missing", "commit_partial");
    set(s, "trainer.batch_size", "1");
    set(s, "trainer.local_steps_per_round", "24");
    set(s, "server.diloco.overlap_steps", "2");
    set(s, "server.diloco.exchange", s->kind.topology);
    snprintf(fragments, sizeof fragments, "%d", MAX_FRAGMENTS);
    set(s, "server.diloco.fragments", fragments);
    set_given(s);
    /* An entry waits for all that are not silent, but training never waits for an entry. */
    const double overlap_s = (double)s->config.overlap_steps * s->calm.step_s;
    snprintf(deadline, sizeof deadline, "%g", 0.75 * overlap_s);
    set(s, "run.deadline", deadline);
    set_given(s);
    s->n_fragments = (size_t)s->config.fragments;
    if (!s->n_fragments || MAX_FRAGMENTS % s->n_fragments != 0)
        DIE(s, "server.diloco.fragments does not divide %d", MAX_FRAGMENTS);
    snprintf(rounds, sizeof rounds, "%zu", ENTRIES / s->n_fragments);
    set(s, "trainer.rounds", rounds);
    if (dl_schedule_of(&s->schedule, &s->config, (int)s->n_fragments))
        DIE(s, "%s", diloco_error_text());
    for (size_t i = 0; i < s->n; i++)
        s->replicas[i].spent = (sim_time){.doing = SIM_SPENT_WAITING, .since = s->now};
}

/* A failure of any of its chips, by an exponential distribution. */
void sim_goodput_plan_failure(replica *r)
{
    const sim *s = r->sim;
    r->time.at->failure = INFINITY;
    if (s->calm.chips > 0)
        r->time.at->failure =
            s->now - log1p(-sim_uniform(r->sim, 0, 1)) * YEAR * (double)s->n / s->calm.chips;
}

void sim_goodput_fail(replica *r)
{
    sim *s = r->sim;
    if (r->now.alive) sim_loss_fail(r);
    if (r->now.alive) sim_crash(r);
    r->time.at->exchange = s->now + s->calm.repair_s;
    sim_goodput_plan_failure(r);
}

void sim_goodput_measure(sim *s)
{
    static const char *const names[] = {
#define X(name, text) text,
        SIM_SPENDINGS(X)
#undef X
    };
    const double began = SIM_QUIET, seconds = s->calm.grew_at - began, all = (double)s->n * seconds;
    const double ideal =
        (double)(ENTRIES / s->n_fragments) * (double)s->schedule.interval * s->calm.step_s;
    double spent[SIM_N_SPENT], sum = 0;
    sim_loss_sum(s, spent);
    s->calm.goodput = spent[SIM_SPENT_COUNTED] / all;
    printf(
        "%.0f chips, %zu learners, a failure of a learner every %.0f s, repaired in %.0f s, "
        "%.1f s a step: %llu failures in %.0f s; goodput %.2f %%; the log grew at %.2f %% of its "
        "pace\n",
        s->calm.chips, s->n, s->calm.chips > 0 ? YEAR * (double)s->n / s->calm.chips : 0.0,
        s->calm.repair_s, s->calm.step_s, (unsigned long long)s->count.crashes, seconds,
        100 * s->calm.goodput, 100 * ideal / seconds);
    for (size_t i = 0; i < SIM_N_SPENT; i++) {
        sum += spent[i];
        printf("%7.2f %%  %s\n", 100 * spent[i] / all, names[i]);
    }
    if (fabs(sum / all - 1) > 1e-6)
        DIE(s, "the learners' time is %.3f s, and its parts are %.3f s", all, sum);
}
