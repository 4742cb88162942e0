/* replay.c - see replay.h.
 *
 * A machine that is configured as a reader only requests to read, fetch, compute and adopt. The
 * first request to train or to end is the end of the log. So replays and replicas apply entries
 * by the same code. */
#include "inspect/replay.h"

#include "base/log.h"
#include "exchange/exec_parts.h"
#include "protocol/void/voided.h"

#include <stdio.h>
#include <string.h>

/* The report in progress, and the listener of progress. */
typedef struct replay {
    dl_replay_report *report;
    void (*progress)(void *user, uint64_t done); /* NULL, or called after each entry */
    void *user;
} replay;

/* Note an entry that does not follow from its contributions. "combined" and "verdicts" are wrong
 * results; any other text is the error of a damaged update. */
static void on_dispute(dl_replay_report *report, const dl_note *n)
{
    if (!strcmp(n->text, "result")) return; /* the entry is void, and counted there */
    if (report->last_dispute == n->entry->entry + 1) return; /* a second reason */
    report->last_dispute = n->entry->entry + 1;
    if (report->disputes++ > 0) return;
    report->first_dispute = n->entry->entry;
    const bool damaged = strcmp(n->text, "combined") != 0 && strcmp(n->text, "verdicts") != 0;
    if (damaged) snprintf(report->damaged, sizeof report->damaged, "%s", n->text);
}

/* Any party may have written a void entry that makes no false claim, so it is no fault of the run.
 */
static void on_void(dl_replay_report *report, const dl_note *n)
{
    report->voids++;
    dl_log(DILOCO_LOG_WARN, "entry %llu is void: %s", (unsigned long long)n->entry->entry, n->text);
    if (report->suspect_for_good) return;
    report->suspect_for_good = n->false_claim;
    report->suspect = n->entry->entry + 1;
    snprintf(report->suspect_reason, sizeof report->suspect_reason, "%s", n->text);
}

/* Its prev names the void entry before it, or that it was unreadable. So its author saw the same,
 * and it is no valid entry that the store has damaged since. */
static void on_valid(dl_replay_report *report)
{
    if (!report->suspect_for_good) report->suspect = 0;
}

/* Called by the machine for each entry that it has applied. Only those count as replayed;
 * disputes come besides. */
static void on_note(void *user, const dl_note *n)
{
    replay *r = user;
    switch (n->kind) {
    case DL_NOTE_DISPUTE:
        on_dispute(r->report, n);
        return;
    case DL_NOTE_COMMIT:
        r->report->commits++;
        on_valid(r->report);
        break;
    case DL_NOTE_ABORT:
        r->report->aborts++;
        on_valid(r->report);
        break;
    case DL_NOTE_VOID:
        if (!strcmp(n->text, DL_VOIDED)) { /* the log says so, and all follow it */
            r->report->aborts++;
            break;
        }
        on_void(r->report, n);
        break;
    default:
        return;
    }
    r->report->replayed++;
    if (r->progress) r->progress(r->user, n->entry->entry + 1);
}

/* Make the pace of a replica that never contributes: the machine then only reads on. The layout
 * is measured first and then placed in one arena. */
static diloco_status make_pace(dl_pace *pace, dl_arena *arena, const dl_runfile *run,
                               uint64_t entries, uint64_t applied)
{
    dl_schedule schedule;
    dl_arena measure = {0};
    DL_TRY(dl_schedule_of(&schedule, &run->config, run->manifest.n_fragments));
    dl_pace_layout(pace, &measure, &schedule);
    DL_TRY(dl_arena_init(arena, measure.used));
    dl_pace_layout(pace, arena, &schedule);
    dl_pace_begin(pace, &run->config, entries, applied);
    return DILOCO_OK;
}

/* Name the entry, unless the error's text begins with it. */
static diloco_status fail_at(diloco_status status, uint64_t entry)
{
    char name[32];
    const int len = snprintf(name, sizeof name, "entry %llu ", (unsigned long long)entry);
    if (strncmp(diloco_error_text(), name, (size_t)len) == 0) return status;
    return dl_fail_context(status, "entry %llu", (unsigned long long)entry);
}

/* Answer the machine's requests until it wants to train or to end. One request is in flight at a
 * time. A failure names the entry at which the replay stopped. */
static diloco_status replay_all(const dl_machine_args *args, dl_exec *exec)
{
    dl_machine *machine;
    const dl_state *state = dl_exec_state(exec);
    const dl_machine_start start = {.fragments = state->now, .now = dl_clock_now()};
    DL_TRY(dl_machine_create(&machine, args));
    dl_request request = dl_machine_begin(machine, &start);
    /* The reply is written by dl_exec_do; its time is set before and after the request, which
     * may take long. */
    dl_reply reply;
    while (request.kind != DL_REQUEST_TRAIN && request.kind != DL_REQUEST_DONE &&
           request.kind != DL_REQUEST_FAIL) {
        reply.now = dl_clock_now();
        dl_exec_do(exec, &request, &reply, dl_time_after(reply.now, 3600 * DL_SECOND));
        reply.now = dl_clock_now();
        request = dl_machine_next(machine, &reply);
    }
    dl_machine_destroy(machine);
    return request.kind == DL_REQUEST_FAIL ? fail_at(request.fail.status, state->control.entry)
                                           : DILOCO_OK;
}

void dl_replay_voids(dl_exec *exec, uint64_t first, uint64_t end)
{
    dl_decisions_add(&exec->decisions, first, end);
}

/* The state in `exec` is where the replay begins, and after an error where it stopped. */
diloco_status dl_replay(dl_replay_report *out, dl_exec *exec, const dl_runfile *run, bool audit,
                        uint64_t entries, void (*progress)(void *user, uint64_t done), void *user)
{
    *out = (dl_replay_report){0};
    replay r = {.report = out, .progress = progress, .user = user};
    dl_state *state = dl_exec_state(exec);
    dl_pace pace = {.position = 0};
    dl_arena arena = {0};
    const dl_machine_args args = {.config = &run->config,
                                  .run = run->id,
                                  .identity = &run->identity,
                                  .self = {.number = 0}, /* a reader has no name */
                                  .control = &state->control,
                                  .pace = &pace,
                                  .outer = state->outer,
                                  .weighting = dl_weighting_find(run->config.weighting),
                                  .combiner = dl_combiner_of(&run->config),
                                  .max_members = state->control.roster.cap,
                                  .topology = dl_exec_topology_kind(exec),
                                  .slices = dl_exec_slices(exec),
                                  .reader = true,
                                  .audits = audit,
                                  .decisions = exec->decisions,
                                  .listener = {.note = on_note, .note_user = &r}};
    DL_TRY(make_pace(&pace, &arena, run, entries, state->control.entry));
    const diloco_status status = replay_all(&args, exec);
    dl_arena_deinit(&arena);
    return status;
}

/* An audit from the oldest snapshot that works. One whose following contributions are gone is
 * skipped, as is one of a state that an operator's decision has undone (P7.22). The error of the
 * last replay is returned if no later snapshot exists to begin at. */
diloco_status dl_replay_kept(dl_replay_report *out, uint64_t *first, dl_exec *exec,
                             uint64_t entries, void (*progress)(void *user, uint64_t done),
                             void *user, dl_time until)
{
    const dl_exec_args *a = &exec->a;
    dl_state *state = dl_exec_state(exec);
    char gone[512] = "";
    for (;;) {
        *first = state->control.entry;
        if (!dl_decisions_undo(&exec->decisions, *first)) {
            const diloco_status status =
                dl_replay(out, exec, a->run, true, entries, progress, user);
            if (status != DILOCO_ENOENT) return status;
            snprintf(gone, sizeof gone, "%s", diloco_error_text());
            dl_log(DILOCO_LOG_WARN, "the replay does not begin at the snapshot of entry %llu: %s",
                   (unsigned long long)*first, gone);
        }
        const diloco_status status = dl_snapshot_read_oldest(state, a->store, a->run, a->run_digest,
                                                             *first + 1, a->pool, until);
        if (status == DILOCO_ENOENT && gone[0]) return dl_fail(status, "%s", gone);
        if (status) return status;
    }
}
