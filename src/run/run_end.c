/* run_end.c - the end of a process: the last lines of its record, and the announcement of a stop.
 */
#include "base/log.h"
#include "base/run_kind.h"
#include "run/announce_stop.h"
#include "run/handle.h"

/* The rates are those of this generation, measured from its join. The digest is of the whole shared
 * state, so the lines of two replicas can be compared. */
void dl_run_end_line(diloco_run *run)
{
    const dl_driver_facts f = dl_driver_facts_now(run->driver);
    const double wall = dl_seconds(dl_clock_now() - run->trained.began);
    const dl_state *state = dl_exec_state(run->exec);
    const dl_event_context c = {.replica = run->replica};
    const double alone = run->config.alone_tokens_per_s;
    const double rate = wall > 0 ? (double)run->trained.generation_tokens / wall : 0;
    const dl_end_facts end = {.entry = state->control.entry,
                              .steps = run->trained.at.step,
                              .generation_steps = run->trained.generation_steps,
                              .tokens = run->trained.generation_tokens,
                              .bytes_sent = f.bytes_sent,
                              .bytes_received = f.bytes_received,
                              .background_sent = f.background_sent,
                              .background_received = f.background_received,
                              .heartbeats = f.heartbeats,
                              .heartbeat_s_max = f.heartbeat_s_max,
                              .n_floats = run->file.manifest.n_parameters,
                              .utilization =
                                  wall > 0 ? dl_seconds(run->trained.training) / wall : 0,
                              .throughput_ratio = alone > 0 ? rate / alone : 0,
                              .digest = dl_state_digest_all(state)};
    dl_event_end(&run->record, &c, &end);
}

/* The line does not count the traffic after it: the line itself and the last heartbeat.
 * Contributions that moved between members directly are added, since no store handle counts
 * them. */
static void traffic_line(diloco_run *run)
{
    uint64_t sent[DL_N_TRAFFIC], received[DL_N_TRAFFIC];
    for (int i = 0; i < DL_N_TRAFFIC; i++) {
        sent[i] = atomic_load(&run->traffic.sent[i]);
        received[i] = atomic_load(&run->traffic.received[i]);
    }
    if (run->peers) {
        const dl_peers_counts p = dl_peers_count(run->peers);
        sent[DL_TRAFFIC_CONTRIBUTIONS] += p.sent;
        received[DL_TRAFFIC_CONTRIBUTIONS] += p.received;
    }
    dl_event_traffic(&run->record, run->replica, sent, received);
}

/* Uploads the rest of the record, then the line that counts it. A process that created the run and
 * did not join it uploads its line to rec/_create.0000/. */
void dl_run_end_record(diloco_run *run)
{
    const bool made = atomic_load(&run->traffic.sent[DL_TRAFFIC_FIRST_MODEL]) > 0;
    const dl_time until = dl_time_after(dl_clock_now(), 10 * DL_SECOND);
    dl_generation generation = {.replica = "_create"};
    if (run->join.joined) {
        generation = run->self;
        dl_record_flush(&run->record, run->store, &generation, true, until);
    }
    traffic_line(run);
    if (run->join.joined || made)
        dl_record_flush(&run->record, run->store, &generation, true, until);
}

static void count_roster(void *user, const dl_state *state)
{
    size_t *n = user;
    *n = state->control.roster.n;
}

/* Returns whether an entry or a worker of another machine may wait for this process. The first
 * entries have no roster and wait for run.replicas. A roster of clients names no process. */
static bool is_awaited_elsewhere(const diloco_run *run)
{
    size_t n;
    if (!dl_run_kind_of(&run->config)->processes) return true;
    dl_driver_read_state(run->driver, count_roster, &n);
    if (n == 0) n = (size_t)run->config.replicas;
    return n > (size_t)dl_local_replicas(&run->config);
}

void dl_run_announce_stop(diloco_run *run)
{
    if (diloco_run_done(run) || !is_awaited_elsewhere(run)) return;
    if (dl_driver_leave(run->driver))
        dl_log(DILOCO_LOG_WARN,
               "the stop of %s is not announced, so the others wait for it for run.patience = %g "
               "s: %s",
               run->replica, run->config.patience_s, diloco_error_text());
}
