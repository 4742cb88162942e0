/* driver_record.c - writes the record's lines of an exchange: the machine's notes, with their
 * traffic and times. */
#include "run/driver_parts.h"

#include "base/log.h"
#include "base/own.h"
#include "base/run_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the traffic for which training waits: of the exchange's handles and of the pipelined
 * upload's. */
dl_store_counters dl_exchange_traffic(const dl_driver *d)
{
    dl_store_counters all = dl_exec_traffic(d->a.exec);
    if (!d->sending) return all;
    const dl_store_counters c = dl_sending_traffic(d->sending);
    all.bytes_sent += c.bytes_sent;
    all.bytes_received += c.bytes_received;
    all.billed_reads += c.billed_reads;
    all.billed_writes += c.billed_writes;
    return all;
}

/* Returns the speed of the link as measured. Either kind of upload may have measured it, and the
 * faster one is nearer to the link's rate. */
dl_store_speed dl_exchange_speed(const dl_driver *d)
{
    dl_store_speed speed = dl_exec_speed(d->a.exec);
    if (d->sending) speed.up_bps = fmax(speed.up_bps, dl_sending_up_bps(d->sending));
    return speed;
}

/* Sets the traffic since the last commit's line. Counters only grow, so the difference from what
 * was reported is exact. */
static void take_traffic(dl_driver *d)
{
    const dl_store_counters c = d->traffic;
    d->lines.context.bytes_sent = c.bytes_sent - d->lines.reported.bytes_sent;
    d->lines.context.bytes_received = c.bytes_received - d->lines.reported.bytes_received;
    d->lines.context.requests_read = c.billed_reads - d->lines.reported.billed_reads;
    d->lines.context.requests_write = c.billed_writes - d->lines.reported.billed_writes;
    d->lines.reported = c;
    if (!d->a.peers) return;
    const dl_peers_counts p = dl_peers_count(d->a.peers);
    d->lines.context.from_peers = p.from_peers - d->lines.peers_before.from_peers;
    d->lines.context.from_store = p.from_store - d->lines.peers_before.from_store;
    d->lines.peers_before = p;
}

/* Movements of honest members have a mean cosine of .05 to .3, of members with other data about 0.
 */
static const double POINT_APART = 0.01;

/* Reports how many malicious members a robust combiner tolerates. Warns if the combiner could not
 * be used. */
static void note_combiner(dl_driver *d, const dl_entry *entry)
{
    const dl_outer_step_facts *facts = &dl_exec_measured(d->a.exec)->outer;
    char text[256];
    if (facts->tolerated)
        dl_log(DILOCO_LOG_INFO, "entry %llu: %s tolerates %zu malicious of %zu members",
               (unsigned long long)entry->entry, facts->combiner, facts->tolerated,
               entry->n_members);
    if (!facts->fell_back) return;
    snprintf(text, sizeof text,
             "entry %llu: %zu members are too few for combiner %s: their weighted mean is taken, "
             "and one hostile member decides it",
             (unsigned long long)entry->entry, entry->n_members, d->a.run->config.combiner);
    dl_event_warn(d->a.record, &d->lines.context, "combiner_fallback", text);
}

/* Returns whether every member's movement is a single step. Gradients of single batches hardly
 * agree, so their cosine says nothing about the data. */
static bool is_of_single_steps(const dl_entry *entry)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (entry->members[i].stats.steps > 1) return false;
    return true;
}

/* Warns of members that hardly agree. Their mean is short, and the first thing to check is which
 * data each has. */
static void note_similarity(dl_driver *d, const dl_entry *entry)
{
    const double similarity = dl_exec_measured(d->a.exec)->outer.similarity;
    char text[512];
    if (!(similarity < POINT_APART) || d->lines.warned_apart || entry->n_members < 2) return;
    if (is_of_single_steps(entry)) return;
    d->lines.warned_apart = true;
    int len =
        snprintf(text, sizeof text,
                 "entry %llu: its members point apart (mean cosine %.3f); samples since their "
                 "base:",
                 (unsigned long long)entry->entry, similarity);
    for (size_t i = 0; i < entry->n_members && len > 0 && (size_t)len < sizeof text; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, " %s %llu",
                        entry->members[i].generation.replica,
                        (unsigned long long)entry->members[i].stats.samples);
    dl_event_warn(d->a.record, &d->lines.context, "similarity", text);
}

/* Keeps the entry's facts, with which its adopter detects a divergence. */
static void keep_newest(dl_driver *d, const dl_note *n)
{
    const dl_entry *e = n->entry;
    d->newest = (dl_divergence){.entry = e->entry,
                                .inner = e->loss,
                                .lr = (double)dl_driver_control(d)->lr,
                                .mu = (double)dl_driver_control(d)->mu};
    for (size_t i = 0; i < e->n_members; i++)
        dl_divergence_norm(&d->newest, e->members[i].generation.replica, n->norms[i]);
}

/* Writes the lines of an applied commit, and keeps what later stops need: its facts, its loss and
 * this replica's weight. exchange_s is the time since the previous entry without the waiting for
 * others. */
static void note_commit(dl_driver *d, const dl_note *n)
{
    const dl_time now = dl_clock_now();
    dl_upload_latency_applied(&d->latency, n->entry->entry, now);
    take_traffic(d);
    d->lines.context.speed = dl_exchange_speed(d);
    d->lines.context.deadline_s = d->lines.deadline_s;
    d->lines.context.wait_s = dl_seconds(d->exchange.waited);
    d->lines.context.exchange_s = dl_seconds(now - d->exchange.entry_began - d->exchange.waited);
    d->exchange.waited = 0;
    d->exchange.entry_began = now;
    d->loss = n->entry->loss;
    d->lines.context.norms = n->norms;
    d->lines.context.lr = dl_driver_control(d)->lr;
    keep_newest(d, n);
    for (size_t i = 0; i < n->entry->n_members; i++)
        if (!strcmp(n->entry->members[i].generation.replica, d->a.self.replica))
            d->stops.weight = n->entry->members[i].weight;
    dl_event_commit(d->a.record, &d->lines.context, n->entry, &dl_driver_control(d)->roster,
                    dl_exec_measured(d->a.exec), n->counted);
    char loss[32] = "no loss"; /* a trainer need not report a loss */
    if (!isnan(n->entry->loss)) snprintf(loss, sizeof loss, "loss %.4f", n->entry->loss);
    dl_log(DILOCO_LOG_INFO, "entry %llu: %zu members, %s, %.1f MB out, %.1f MB in, %.2f s",
           (unsigned long long)n->entry->entry, n->entry->n_members, loss,
           1e-6 * (double)d->lines.context.bytes_sent,
           1e-6 * (double)d->lines.context.bytes_received,
           d->lines.context.wait_s + d->lines.context.exchange_s);
    note_combiner(d, n->entry);
    note_similarity(d, n->entry);
}

/* Returns advice for the rejected replica. A row is a reason of dl_judge or of a failed check, with
 * the text for the operator of that replica. A new reason needs a row; without one it gets the last
 * line's text. */
static const char *advice(const char *reason)
{
    static const char *const known[][2] = {
        {"norm", "it moved check.norm times as far as most"},
        {"short", "it moved less than check.short of what most moved"},
        {"repeat", "it repeats a contribution of this replica that was counted before"},
        {"zero", "it moved nothing"},
        {"cosine",
         "it points away from most others; is its data of another kind, its learning rate "
         "too high?"},
        {"probe", "with it the shared model loses check.probe times as much on held-out samples"},
        {"copy",
         "it equals another contribution, or nearly so; do two replicas train on the same data?"},
        {"bound", "an element moved by more than check.element"},
        {"non-finite", "it has a NaN or an infinity: training has diverged here"},
        {"base", "it began from another state than the run's"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i][0], reason)) return known[i][1];
    return "it does not fit the run";
}

/* Writes a contribution that the commit rejects. The replica itself gets a warning with advice. The
 * other replicas only log it, since their operators cannot mend it. */
static void note_judged(dl_driver *d, const dl_note *n)
{
    char text[512];
    dl_event_judged(d->a.record, n->entry, &n->generation, n->text);
    if (strcmp(n->generation.replica, d->a.self.replica) != 0) {
        dl_log(DILOCO_LOG_WARN, "entry %llu: the contribution of %s is rejected: %s",
               (unsigned long long)n->entry->entry, n->generation.replica, n->text);
        return;
    }
    snprintf(text, sizeof text, "entry %llu rejects this replica's contribution (%s): %s",
             (unsigned long long)n->entry->entry, n->text, advice(n->text));
    dl_event_warn(d->a.record, &d->lines.context, "rejected", text);
}

/* Writes one note of the machine into the record or the log. The machine calls it while it applies
 * a reply, so the lock is held. A new kind of note needs a case here; the compiler names missing
 * ones. */
void dl_driver_on_note(void *user, const dl_note *n)
{
    dl_driver *d = user;
    const uint64_t entry = dl_driver_control(d)->entry;
    char generation[DL_GENERATION_TEXT], text[512];
    switch (n->kind) {
    case DL_NOTE_COMMIT:
        note_commit(d, n);
        break;
    case DL_NOTE_ABORT:
        dl_event_abort(d->a.record, &d->lines.context, n->entry);
        break;
    case DL_NOTE_DISPUTE:
        dl_event_dispute(d->a.record, &d->lines.context, entry, n->claimed, n->computed,
                         &n->entry->committer, n->text);
        break;
    case DL_NOTE_REJECT:
        dl_event_reject(d->a.record, &d->lines.context, entry, &n->generation, n->text);
        dl_log(DILOCO_LOG_WARN, "entry %llu: a contribution of %s is refused: %s",
               (unsigned long long)entry, n->generation.replica, diloco_error_text());
        break;
    case DL_NOTE_PROBED:
        dl_event_probe(d->a.record, &d->lines.context, n->entry, n->probed);
        break;
    case DL_NOTE_JUDGED:
        note_judged(d, n);
        break;
    case DL_NOTE_CUT:
        snprintf(text, sizeof text,
                 "entry %llu: %s claims far more %s than the others, and counts with less",
                 (unsigned long long)entry, n->generation.replica, n->text);
        dl_event_warn(d->a.record, &d->lines.context, "claim", text);
        break;
    case DL_NOTE_BANNED:
        snprintf(text, sizeof text,
                 "%s is banned until entry %llu: %llu of its contributions were rejected",
                 n->generation.replica, (unsigned long long)n->until,
                 (unsigned long long)d->a.run->config.ban_after);
        dl_event_warn(d->a.record, &d->lines.context, "banned", text);
        break;
    case DL_NOTE_VOID:
        snprintf(text, sizeof text, "entry %llu is void: %s", (unsigned long long)entry, n->text);
        dl_event_warn(d->a.record, &d->lines.context, "void", text);
        break;
    case DL_NOTE_SILENT:
        dl_generation_text(generation, &n->generation);
        snprintf(text, sizeof text, "%s is silent: no new heartbeat in %g s", generation,
                 d->a.run->config.patience_s);
        dl_event_warn(d->a.record, &d->lines.context, "silent", text);
        break;
    case DL_NOTE_LATE:
        snprintf(text, sizeof text, "entry %llu did not count this replica: it continues from %s",
                 (unsigned long long)n->entry->entry,
                 d->pace.adopts_uncounted || dl_run_kind_of(&d->a.run->config)->one_by_one
                     ? "the shared model"
                     : "its own parameters");
        dl_event_warn(d->a.record, &d->lines.context, "late", text);
        break;
    case DL_NOTE_DEADLINE:
        d->lines.deadline_s = n->seconds;
        dl_log(DILOCO_LOG_DEBUG, "entry %llu: deadline in %.1f s", (unsigned long long)entry,
               n->seconds);
        break;
    }
}

/* Logs a move for run.trace_protocol. A machine may run several replicas, so the line names this
 * one; the number makes each line differ, since diloco train prints equal lines once. */
void dl_driver_on_move(void *user, const dl_transition *move)
{
    dl_driver *d = user;
    char text[DL_TRANSITION_TEXT];
    dl_transition_text(text, sizeof text, move);
    dl_log(DILOCO_LOG_INFO, "%s: move %llu: %s", d->a.self.replica,
           (unsigned long long)++d->lines.n_moves, text);
}
