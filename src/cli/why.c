/* why.c - see why.h. The replicas' heartbeats hold the deadlines, each as it derived it
 * (docs/protocol.md, Deadlines); nothing is computed again here.
 *
 * Each function prints one part of the answer, from what is missing to the rule that ends the wait.
 * The first entries have no roster and no deadline, and asynchronous runs wait for no replica. An
 * entry of a federated run waits for logical clients, which have no heartbeat. */
#include "cli/why.h"

#include "base/run_kind.h"
#include "cli/display/units.h"
#include "hub/status_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Return the newest generation of this name, or NULL if the run has none. */
static const diloco_replica_status *find(const diloco_run_status *run, const char *name)
{
    for (size_t i = 0; i < run->n_replicas; i++)
        if (!strcmp(run->replicas[i]->replica, name)) return run->replicas[i];
    return NULL;
}

/* Print one missing replica and what it is doing: "r2 is alive and trains: 12 of its steps to
 * the due point, about 4.0 s". */
static void print_missing(const diloco_run_status *run, const char *name)
{
    const diloco_replica_status *r = find(run, name);
    const uint64_t due = run->wait->position;
    if (!r) {
        printf("           %s: no such replica has a heartbeat\n", name);
        return;
    }
    printf("           %s: %s", name, dl_replica_state(r));
    if (r->alive && r->position < due && r->steps_per_s > 0)
        printf(", trains: %" PRIu64 " steps to the due point, about %.1f s", due - r->position,
               (double)(due - r->position) / r->steps_per_s);
    else if (r->alive && r->position >= due)
        printf(", at the due point: its contribution is in flight");
    else if (!r->alive && r->seen)
        printf(", last heard of at step %" PRIu64 ", entry %" PRIu64, r->step, r->entry);
    printf("\n");
}

/* Print the open entry with the number of its contributions, and each missing member. At most 64
 * are named in the status; the others are counted. */
static void print_open_entry(const diloco_run_status *run, const dl_config *config)
{
    const diloco_run_wait *w = run->wait;
    const size_t reported = sizeof w->missing / sizeof w->missing[0];
    if (dl_run_kind_of(config)->one_by_one) {
        printf("waits for  entry %" PRIu64 ": the next contribution of any replica\n", w->entry);
        return;
    }
    printf("waits for  entry %" PRIu64 ": %zu of %zu contributions have arrived\n", w->entry,
           w->n_there, w->n_awaited);
    for (size_t i = 0; i < w->n_missing && i < reported; i++)
        if (dl_run_kind_of(config)->processes)
            print_missing(run, w->missing[i]);
        else
            printf("           %s: no worker has trained it yet\n", w->missing[i]);
    if (w->n_missing > reported) printf("           and %zu more\n", w->n_missing - reported);
}

/* The rule of P10, in words, with the values of this run. */
static void print_rule(const dl_config *config)
{
    if (config->close_at > 0)
        printf("closes     with %" PRId64 " contributions (run.close_at) and %.3g s of grace\n",
               config->close_at, config->grace_s);
    if (config->on_missing == DL_MISSING_WAIT)
        printf("past the   deadline slow replicas are waited for; one without a new heartbeat "
               "for %.3g s\n"
               "           (run.patience) is dropped (run.on_missing = wait)\n",
               config->patience_s);
    else if (config->on_missing == DL_MISSING_COMMIT_PARTIAL)
        printf("past the   deadline it commits with %.3g of the roster (run.quorum), else aborts\n",
               config->quorum);
    else
        printf("past the   deadline it aborts (run.on_missing = abort)\n");
}

/* Logical clients never count as silent, so run.patience drops none of them. run.on_missing = wait
 * then has no deadline. The others need run.deadline. */
static void print_rule_of_clients(const dl_config *config)
{
    if (config->on_missing != DL_MISSING_WAIT) {
        print_rule(config);
        printf("deadline   %.3g s (run.deadline)\n", config->deadline_s);
        return;
    }
    if (config->close_at > 0)
        printf("closes     with %" PRId64 " clients (run.close_at) and %.3g s of grace\n",
               config->close_at, config->grace_s);
    printf("closes     with all sampled clients: there is no deadline (run.on_missing = wait).\n"
           "           If a worker is lost, the others train its clients\n");
}

/* Print the fixed deadline of the run, or the derived one of each replica with the measurements
 * that it follows from. Replicas that have ended have none. */
static void print_deadlines(const diloco_run_status *run, const dl_config *config)
{
    if (config->deadline_s > 0) {
        printf("deadline   %.3g s after a replica's own upload (run.deadline)\n",
               config->deadline_s);
        return;
    }
    printf("deadline   after a replica's own upload: a round, at least run.patience / 6 = %.3g s "
           "(all of\n"
           "           it before a round was measured), and four uploads; doubled by each abort\n",
           config->patience_s / 6);
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        if (r->ended || r->deadline_s <= 0) continue;
        printf("           %s: %.3g s, at %.4g steps/s", r->replica, r->deadline_s, r->steps_per_s);
        if (r->up_bps > 0) printf(", %.4g Mbit/s up", r->up_bps / 1e6);
        if (r->down_bps > 0) printf(", %.4g Mbit/s down", r->down_bps / 1e6);
        if (r->request_s > 0) printf(", %.3g ms a request", r->request_s * 1e3);
        printf("\n");
    }
}

/* Return true if no roster is known yet: the entry waits for replicas that have no names. */
static bool is_a_first_entry(const diloco_run_wait *w)
{
    return w->n_missing == 0 && w->n_there < w->n_awaited;
}

/* P9.2: the first entries have no deadline. */
static void print_start(const dl_config *config)
{
    printf("until then all of run.replicas are waited for, without a deadline; %.4g s after a\n"
           "           replica joined (run.start_timeout) %" PRId64
           " are enough (run.min_replicas)\n",
           config->start_timeout_s, config->min_replicas);
}

/* From what is waited for to why: the open entry, the rule, the deadlines. */
void dl_print_why(const diloco_run_status *run, const dl_config *config)
{
    if (run->done) {
        printf("waits for  nothing: the run is complete\n");
        return;
    }
    print_open_entry(run, config);
    if (dl_run_kind_of(config)->one_by_one) return;
    if (!dl_run_kind_of(config)->processes) {
        print_rule_of_clients(config);
        return;
    }
    if (is_a_first_entry(run->wait)) {
        print_start(config);
        return;
    }
    print_rule(config);
    print_deadlines(run, config);
}
