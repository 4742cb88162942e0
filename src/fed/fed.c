/* fed.c - see fed.h.
 *
 *     settings, data, model --> run --> join --> { wait for a round; evaluate }* --> leave
 *
 * The process is a table of operations for the loop of train/replica_loop.h. While the run waits
 * for a round, it calls work(), which trains one client at a time on the same thread.
 *
 * A process saves nothing of its own. The log says which entry is open, and each client's state is
 * a separate object (client.h). So a restarted process begins as a new one does. */
#include "fed/fed.h"

#include "base/log.h"
#include "fed/worker.h"
#include "presets/contract.h"
#include "presets/local_steps.h"
#include "run/announce_stop.h"
#include "train/opening.h"
#include "train/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct process {
    dl_replica base;
    dl_worker worker;   /* stays zeroed in a server */
    dl_results results; /* stays zeroed in a worker, which closes no entry */
    bool reached;       /* trainer.target_accuracy is reached: this process ends */
} process;

static bool is_role(const process *p, dl_role_choice role)
{
    return p->base.setup.config.role == role;
}

/* The hook `work` of the run (dl_worker_hooks). It refreshes `now` for the progress line, because
 * the loop does so only after the round. */
static diloco_status work(void *user, bool *worked)
{
    process *p = user;
    const diloco_status status = dl_worker_work(&p->worker, worked);
    if (*worked) {
        p->base.now = diloco_run_now(p->base.run);
        dl_replica_progress(&p->base, "train");
    }
    return status;
}

/* ---- evaluating --------------------------------------------------------------------------- */

/* Returns true if this process evaluates the current round. A server does so always. Processes of
 * role `both` take turns by the number in their names, so that they share the cost. */
static bool my_turn(const process *p)
{
    if (is_role(p, DL_ROLE_WORKER)) return false;
    if (is_role(p, DL_ROLE_SERVER)) return true;
    const uint64_t closers = (uint64_t)dl_local_replicas(&p->base.setup.config);
    const char *digits = p->base.name + strcspn(p->base.name, "0123456789");
    return dl_replica_evaluation_turn(&p->base) % closers == strtoull(digits, NULL, 10) % closers;
}

static diloco_status evaluate(dl_score *score, dl_replica *b)
{
    dl_replica_progress(b, "eval");
    DL_TRY(dl_evaluate_shared(score, NULL, &b->setup, b->run, 0));
    return dl_replica_record_eval(b, score, NULL);
}

/* Ends this process once the accuracy reaches its target. A NaN, which is a round without an
 * evaluation, never does. At the last entry the run ends anyway. */
static void see_target(process *p, double accuracy)
{
    const double target = p->base.setup.config.target_accuracy;
    if (target <= 0 || !(accuracy >= target) || diloco_run_done(p->base.run)) return;
    p->reached = true;
    dl_log(DILOCO_LOG_WARN,
           "accuracy %.4f has reached trainer.target_accuracy = %g: stopped after %" PRIu64
           " of %" PRIu64 " rounds",
           accuracy, target, p->base.now.entry, p->base.now.entries);
}

/* Looks in the results file for an accuracy that another process of this machine has written. This
 * process stops at the same target then. The newest round is looked at first. */
static void see_others_target(process *p)
{
    const dl_config *c = &p->base.setup.config;
    if (is_role(p, DL_ROLE_WORKER) || c->target_accuracy <= 0) return;
    if (dl_results_put(&p->results, p->base.now.entry, NULL)) {
        dl_log(DILOCO_LOG_WARN, "the results file: %s", diloco_error_text());
        return;
    }
    for (uint64_t round = p->base.now.entry; round >= 1 && !p->reached; round--)
        see_target(p, dl_results_accuracy(&p->results, round));
}

/* The operation `applied`: evaluates if this process has the turn, and writes the row of the
 * results. Results that cannot be written do not stop training. */
static diloco_status end_round(void *user)
{
    dl_score score;
    process *p = user;
    const bool due = dl_replica_evaluation_due(&p->base);
    if (!my_turn(p)) {
        see_others_target(p);
        return DILOCO_OK;
    }
    if (due) DL_TRY(evaluate(&score, &p->base));
    if (dl_results_put(&p->results, p->base.now.entry, due ? &score : NULL))
        dl_log(DILOCO_LOG_WARN, "the results file: %s", diloco_error_text());
    if (due) see_target(p, score.accuracy);
    return DILOCO_OK;
}

/* Opens the results file. If an earlier generation was killed after a round and before its row,
 * this one writes the row. */
static diloco_status begin_results(process *p)
{
    const uint64_t entry = p->base.now.entry;
    if (is_role(p, DL_ROLE_WORKER)) return DILOCO_OK;
    DL_TRY(dl_results_open(&p->results, &p->base.setup.config, entry));
    if (entry == 0) return DILOCO_OK;
    const double accuracy = dl_results_accuracy(&p->results, entry);
    if (isnan(accuracy)) return end_round(p);
    see_target(p, accuracy);
    return DILOCO_OK;
}

/* ---- the operations of a process ------------------------------------------------------------ */

/* The operation `open`. The worker is opened after the run and before the join, since the residual
 * of its codec exists only after the join. */
static diloco_status open_run(void *user)
{
    process *p = user;
    dl_replica *b = &p->base;
    const bool serves = is_role(p, DL_ROLE_SERVER);
    DL_TRY(dl_local_steps_check(&b->setup.config, b->setup.data));
    DL_TRY(dl_opening_run(&b->run, &b->setup, b->name, b->exists));
    if (!serves) DL_TRY(dl_worker_open(&p->worker, b));
    const dl_worker_hooks worker_hooks = {
        .work = serves ? NULL : work, .user = p, .follows = is_role(p, DL_ROLE_WORKER)};
    dl_run_set_worker_hooks(b->run, &worker_hooks);
    return DILOCO_OK;
}

/* The operation `join`. Options that were not given have the run's values after diloco_run_join(),
 * so they are checked then. */
static diloco_status join(void *user)
{
    process *p = user;
    dl_replica *b = &p->base;
    DL_TRY(diloco_run_join(b->run));
    DL_TRY(dl_opening_check(&b->setup.config));
    b->now = diloco_run_now(b->run);
    dl_meter_begin(&b->meter, &b->now);
    if (!is_role(p, DL_ROLE_SERVER)) DL_TRY(dl_worker_begin(&p->worker));
    DL_TRY(dl_replica_record_trainer(b));
    return begin_results(p);
}

static void describe(const void *user, dl_json *j)
{
    const process *p = user;
    const dl_config *c = &p->base.setup.config;
    dl_json_str(j, "role", dl_role_choice_names[c->role]);
    dl_json_str(j, "contract", dl_contract_name(c));
    dl_json_i64(j, "clients", c->total_clients);
    dl_json_str(j, "time", c->speed_simulation ? "simulated" : "real");
}

/* The operation `advance`. The meter counts from zero again once an entry is applied. */
static diloco_status wait_for_round(void *user, bool *applied)
{
    process *p = user;
    dl_replica *b = &p->base;
    dl_replica_progress(b, "wait");
    const diloco_status status = dl_run_round(b->run);
    const uint64_t entry = b->now.entry;
    b->now = diloco_run_now(b->run);
    *applied = b->now.entry != entry;
    if (*applied) b->meter.ahead = 0;
    return status;
}

static bool over(const void *user)
{
    const process *p = user;
    return diloco_run_done(p->base.run) || p->reached;
}

/* The other workers divide this one's clients among them as soon as they read the announcement. */
static diloco_status stop_here(void *user)
{
    const process *p = user;
    dl_run_announce_stop(p->base.run);
    return dl_fail(DILOCO_EINTERRUPTED,
                   "%s stopped at entry %" PRIu64 " of %" PRIu64 ": the same command resumes here",
                   p->base.name, p->base.now.entry, p->base.now.entries);
}

static diloco_status leave(void *user)
{
    const process *p = user;
    dl_run_leave(p->base.run);
    dl_run_announce_stop(p->base.run);
    return DILOCO_OK;
}

static void close_process(void *user)
{
    process *p = user;
    dl_results_close(&p->results);
    dl_worker_close(&p->worker);
}

static const dl_replica_ops ops = {.open = open_run,
                                   .join = join,
                                   .describe = describe,
                                   .over = over,
                                   .advance = wait_for_round,
                                   .applied = end_round,
                                   .stop = stop_here,
                                   .end = leave,
                                   .close = close_process};

diloco_status dl_fed_train(const dl_config *config, const char *name,
                           const diloco_train_hooks *hooks)
{
    process p = {.base = {.name = name, .hooks = hooks, .ops = &ops}};
    p.base.user = &p;
    return dl_replica_live(&p.base, config);
}
