/* takeover.c - an operator's decisions: diloco_takeover (P26, `diloco takeover`) and diloco_void
 * (P7, `diloco void`).
 *
 * The log is replayed to its end, and an abort is put after it. Its committer is the newest
 * generation of the replica that takes over. From then on followers accept the entries of that
 * generation.
 *
 * To void an entry, the log is replayed up to the unreadable entry, and then, with all that follows
 * held void, to its end. The abort after it says so.
 *
 * Both only create one name. If a replica is alive and creates it first, nothing is decided. */
#include "base/cores.h"
#include "base/sized.h"
#include "exchange/generations.h"
#include "inspect/reader.h"
#include "inspect/replay.h"
#include "log/signed.h"
#include "protocol/control_apply.h"
#include "protocol/proposal.h"
#include "protocol/void/unreadable.h"
#include "run/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One decision in preparation. Zeroed members were not made; close_takeover releases the rest. */
typedef struct takeover {
    dl_reader reader; /* opened at the start; its replay has the state */
    dl_generation to; /* the generation that decides */
    dl_draft draft;
    dl_pace pace; /* of a replica that has nothing in flight: the draft asks it for the schedule */
    bool *silent; /* of the roster: none */
    dl_ledger *scratch; /* NULL: the run does not deal its data */
    dl_bans *bans;      /* NULL: it bans no replica */
} takeover;

/* Replay from the newest snapshot to the end. It is no audit: the decision needs the state, and
 * members' contributions may be gone. */
static diloco_status read_log(takeover *t)
{
    dl_reader *r = &t->reader;
    dl_replay_report report;
    DL_TRY(dl_reader_exec(r, dl_cores()));
    DL_TRY(dl_snapshot_read_newest(dl_exec_state(r->exec), r->store, &r->file, r->digest,
                                   UINT64_MAX, r->pool, dl_reader_limit()));
    return dl_replay(&report, r->exec, &r->file, false, UINT64_MAX, NULL, NULL);
}

typedef enum decision { TAKES_OVER, VOIDS } decision;

/* Draft the abort as the run's own machine would: roster, data and bans of the state follow from
 * the same code, so every reader accepts it. No contribution is known and no replica is silent. */
static diloco_status make_draft(takeover *t, decision what, uint64_t entry)
{
    dl_reader *r = &t->reader;
    dl_state *state = dl_exec_state(r->exec);
    const size_t max_members = state->control.roster.cap;
    const dl_candidate_table nobody = {.n = 0};
    DL_TRY(dl_entry_init(&t->draft.entry, max_members));
    if (state->control.ledger)
        DL_TRY(dl_ledger_create(&t->scratch, &r->file.config, &t->pace.schedule, max_members));
    if (state->control.bans)
        DL_TRY(dl_bans_create(&t->bans, &r->file.config, state->control.bans->cap));
    t->silent = calloc(max_members, sizeof *t->silent);
    if (!t->silent) return dl_fail(DILOCO_ENOMEM, "out of memory for an entry");
    const dl_machine_args args = {.config = &r->file.config,
                                  .run = r->file.id,
                                  .self = t->to,
                                  .control = &state->control,
                                  .pace = &t->pace};
    const uint32_t f =
        dl_schedule_fragment(&t->pace.schedule, state->control.entry, dl_state_commits(state));
    const dl_draft_source from = {.args = &args,
                                  .known = &nobody,
                                  .silent = t->silent,
                                  .scratch = t->scratch,
                                  .bans = t->bans,
                                  .fragment = f,
                                  .base = state->now[f].digest,
                                  .n_commits = state->now[f].n_commits,
                                  .snapshot = state->control.snapshot};
    if (what == TAKES_OVER)
        dl_draft_takeover(&t->draft, &from);
    else
        dl_draft_void(&t->draft, &from, entry);
    return DILOCO_OK;
}

/* Sign the entry where members have keys, by this machine's key. The text is then read as others
 * will read it, so a key that may not create entries is refused here, before anything is
 * written. */
static diloco_status sign(dl_buf *text, const takeover *t)
{
    const dl_runfile *run = &t->reader.file;
    const dl_statement what = dl_entry_statement(&t->draft.entry);
    dl_signer *signer;
    dl_entry back;
    if (run->identity.policy == DL_TRUSTED) return DILOCO_OK;
    DL_TRY(dl_run_signer(&signer, &run->config));
    diloco_status status = dl_sealed_sign(text, 0, signer, &what);
    dl_signer_close(signer);
    DL_TRY(status);
    DL_TRY(dl_entry_init(&back, t->draft.entry.cap_members));
    const dl_entry_place place = dl_runfile_place(run, t->draft.entry.entry);
    status = dl_entry_read_at(&back, text->data, text->len, &place);
    dl_entry_deinit(&back);
    return status ? dl_fail_context(DILOCO_EREFUSED, "this machine's key may not create entries")
                  : DILOCO_OK;
}

/* Create log/<e>. Returns DILOCO_EEXIST if another process has created it since the replay: the
 * run is alive, and its decision counts (P5). */
static diloco_status put_entry(takeover *t, const char *url)
{
    dl_key key;
    dl_buf text;
    dl_store *store;
    dl_run_coord coord;
    const dl_store_address place = dl_run_address(coord, url, &t->reader.file.config);
    DL_TRY(dl_store_open_at(&store, &place, false));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    dl_key_entry(key, t->draft.entry.entry);
    diloco_status status =
        dl_entry_write(&text, &t->draft.entry, dl_exec_state(t->reader.exec)->outer);
    if (!status) status = sign(&text, t);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(store, key, &span, 1, NULL, dl_reader_limit());
    dl_buf_deinit(&text);
    dl_store_close(store);
    if (status == DILOCO_EEXIST)
        return dl_fail(
            DILOCO_EEXIST,
            "a replica wrote entry %llu at the same time, so it is alive: nothing was decided",
            (unsigned long long)t->draft.entry.entry);
    return status;
}

/* Report the change: from which generation to which. Before the first entry the option names a
 * replica, and no generation of it. */
static void fill_report(diloco_takeover_report *out, const takeover *t)
{
    const dl_control *c = &dl_exec_state(t->reader.exec)->control;
    out->entry = c->entry;
    dl_generation_text(out->to, &t->to);
    if (c->committer.number == DL_GENERATION_ANY)
        snprintf(out->from, sizeof out->from, "%s", c->committer.replica);
    else
        dl_generation_text(out->from, &c->committer);
}

/* Check all that must hold for a takeover, and draft it. Nothing is written. */
static diloco_status find(takeover *t, diloco_takeover_report *out, const char *replica)
{
    const dl_config *config = &t->reader.file.config;
    if (!config->single_committer[0])
        return dl_fail(DILOCO_EINVAL, "this run has no run.single_committer: the first "
                                      "committer decides, and there is nothing to take over");
    DL_TRY(dl_run_newest_generation(&t->to, t->reader.store,
                                    replica ? replica : config->single_committer));
    DL_TRY(read_log(t));
    fill_report(out, t);
    DL_TRY(dl_schedule_of(&t->pace.schedule, &t->reader.file.config,
                          t->reader.file.manifest.n_fragments));
    t->pace.entries =
        dl_schedule_entries(&t->pace.schedule, (uint64_t)t->reader.file.config.rounds);
    if (dl_exec_state(t->reader.exec)->control.entry >= t->pace.entries)
        return dl_fail(DILOCO_EINVAL, "the run is complete");
    if (dl_control_may_create(&dl_exec_state(t->reader.exec)->control, &t->to))
        return dl_fail(DILOCO_EINVAL, "%s is the committer already", out->to);
    return make_draft(t, TAKES_OVER, 0);
}

static void close_takeover(takeover *t)
{
    dl_entry_deinit(&t->draft.entry);
    dl_ledger_destroy(t->scratch);
    dl_bans_destroy(t->bans);
    free(t->silent);
    dl_reader_close(&t->reader);
}

/* The report is written also after an error: zeros, or the change that would have been made. */
diloco_status diloco_takeover_sized(diloco_takeover_report *out, size_t size, const char *url,
                                    const char *replica, bool really)
{
    takeover t = {.silent = NULL};
    diloco_takeover_report report = {.entry = 0};
    dl_sized_out(out, size, &report, sizeof report);
    DL_TRY(dl_reader_open(&t.reader, url));
    diloco_status status = find(&t, &report, replica);
    if (!status && really) status = put_entry(&t, url);
    close_takeover(&t);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}

/* ---- voiding an entry */

/* The draft asks the pace for positions and the end of the run. */
static diloco_status begin_schedule(takeover *t)
{
    const dl_runfile *run = &t->reader.file;
    DL_TRY(dl_schedule_of(&t->pace.schedule, &run->config, run->manifest.n_fragments));
    t->pace.entries = dl_schedule_entries(&t->pace.schedule, (uint64_t)run->config.rounds);
    return DILOCO_OK;
}

/* Find the entry that cannot be read: the replay stops there, with the state before it. Then
 * replay to the end with that entry and all after it held void, as every replica will after the
 * decision (P7.20). */
static diloco_status find_unreadable(takeover *t, diloco_void_report *out)
{
    dl_reader *r = &t->reader;
    dl_replay_report replayed;
    uint64_t n;
    const diloco_status status = read_log(t);
    if (!status)
        return dl_fail(DILOCO_EINVAL, "all that the log counts can be read, from the newest "
                                      "snapshot on: there is nothing to void");
    if (status != DILOCO_ENOENT && status != DILOCO_EPROTO) return status;
    if (!r->exec) return status;
    snprintf(out->why, sizeof out->why, "%s", diloco_error_text());
    out->entry = dl_exec_state(r->exec)->control.entry;
    DL_TRY(dl_reader_length(&n, r));
    if (n <= out->entry) return status; /* something else is wrong */
    dl_replay_voids(r->exec, out->entry, n);
    DL_TRY(dl_replay(&replayed, r->exec, &r->file, false, UINT64_MAX, NULL, NULL));
    out->at = dl_exec_state(r->exec)->control.entry;
    return DILOCO_OK;
}

/* Only a run in which no committer may be malicious leaves this to its operator (P7.18). In any
 * other run the committers decide by what they build on. */
static diloco_status prepare_void(takeover *t, diloco_void_report *out, const char *replica)
{
    const dl_runfile *run = &t->reader.file;
    if (!dl_unreadable_may_void(&run->config, &run->identity))
        return dl_fail(DILOCO_EINVAL,
                       "this run has enough committers to decide whether an unreadable entry is "
                       "void: there is nothing to do");
    DL_TRY(find_unreadable(t, out));
    if (!replica) return DILOCO_OK;
    DL_TRY(dl_run_newest_generation(&t->to, t->reader.store, replica));
    dl_generation_text(out->by, &t->to);
    DL_TRY(begin_schedule(t));
    if (out->at >= t->pace.entries) return dl_fail(DILOCO_EINVAL, "the run is complete");
    if (!dl_control_may_create(&dl_exec_state(t->reader.exec)->control, &t->to))
        return dl_fail(DILOCO_EINVAL, "%s does not create entries of this run: name its committer",
                       out->by);
    return make_draft(t, VOIDS, out->entry);
}

diloco_status diloco_void_sized(diloco_void_report *out, size_t size, const char *url,
                                const char *replica)
{
    takeover t = {.silent = NULL};
    diloco_void_report report = {.entry = 0};
    dl_sized_out(out, size, &report, sizeof report);
    DL_TRY(dl_reader_open(&t.reader, url));
    diloco_status status = prepare_void(&t, &report, replica);
    if (!status && replica) status = put_entry(&t, url);
    close_takeover(&t);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
