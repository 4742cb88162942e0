/* run_end.c - the last lines of a record: steps and traffic of this process. */
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
