/* takeover.c - diloco_takeover: P26, `diloco takeover`.
 *
 * The log is replayed to its end, and an abort is put behind it whose committer is the newest life
 * of the replica that takes over. From then on that life is the one whom followers believe. */
#include "base/cores.h"
#include "base/sized.h"
#include "run/draft.h"
#include "run/fold.h"
#include "run/reader.h"
#include "run/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct takeover {
    dl_reader reader;
    dl_life to;
    dl_draft draft;
    dl_pace pace; /* of a replica that has nothing under way: the draft asks it for the schedule */
    bool *silent; /* of the roster: nobody */
    dl_ledger *scratch; /* NULL: the run does not deal its data */
    dl_bans *bans;      /* NULL: it puts nobody out */
} takeover;

static diloco_status read_log(takeover *t)
{
    dl_reader *r = &t->reader;
    dl_replay_report report;
    DL_TRY(dl_reader_exec(r, dl_cores()));
    DL_TRY(dl_snapshot_read_newest(dl_exec_state(r->exec), r->store, &r->file, r->digest,
                                   UINT64_MAX, r->pool, dl_reader_limit()));
    return dl_replay(&report, r->exec, &r->file, false, UINT64_MAX, NULL, NULL);
}

static diloco_status make_draft(takeover *t)
{
    dl_reader *r = &t->reader;
    dl_state *state = dl_exec_state(r->exec);
    const size_t max_members = state->control.roster.cap;
    const dl_known_table nobody = {.n = 0};
    DL_TRY(dl_entry_init(&t->draft.entry, max_members));
    if (state->control.ledger)
        DL_TRY(dl_ledger_create(&t->scratch, &r->file.config, &t->pace.schedule, max_members));
    if (state->control.bans)
        DL_TRY(dl_bans_create(&t->bans, &r->file.config, state->control.bans->cap));
    t->silent = calloc(max_members, sizeof *t->silent);
    if (!t->silent) return dl_fail(DILOCO_ENOMEM, "no memory for an entry");
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
    dl_draft_takeover(&t->draft, &from);
    return DILOCO_OK;
}

static diloco_status put_entry(takeover *t, const char *url)
{
    dl_key key;
    dl_buf text;
    dl_store *store;
    dl_run_store place;
    dl_run_store_url(place, url, &t->reader.file.config);
    DL_TRY(dl_store_open(&store, place, false));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    dl_key_entry(key, t->draft.entry.entry);
    diloco_status status =
        dl_entry_write(&text, &t->draft.entry, dl_exec_state(t->reader.exec)->outer);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(store, key, &span, 1, NULL, dl_reader_limit());
    dl_buf_deinit(&text);
    dl_store_close(store);
    if (status == DILOCO_EEXIST)
        return dl_fail(DILOCO_EEXIST,
                       "entry %llu came while it was being written: the committer lives, and "
                       "nothing was taken over",
                       (unsigned long long)t->draft.entry.entry);
    return status;
}

static void say(diloco_takeover_report *out, const takeover *t)
{
    const dl_control *c = &dl_exec_state(t->reader.exec)->control;
    out->entry = c->entry;
    dl_life_text(out->to, &t->to);
    if (c->committer.generation == DL_LIFE_ANY)
        snprintf(out->from, sizeof out->from, "%s", c->committer.replica);
    else
        dl_life_text(out->from, &c->committer);
}

static diloco_status find(takeover *t, diloco_takeover_report *out, const char *replica)
{
    const dl_config *config = &t->reader.file.config;
    if (!config->single_committer[0])
        return dl_fail(DILOCO_EINVAL, "this run has no run.single_committer: whoever is first "
                                      "decides, and there is nothing to take over");
    DL_TRY(
        dl_run_newest_life(&t->to, t->reader.store, replica ? replica : config->single_committer));
    DL_TRY(read_log(t));
    say(out, t);
    DL_TRY(dl_schedule_of(&t->pace.schedule, &t->reader.file.config,
                          t->reader.file.manifest.n_fragments));
    t->pace.entries =
        dl_schedule_entries(&t->pace.schedule, (uint64_t)t->reader.file.config.rounds);
    if (dl_exec_state(t->reader.exec)->control.entry >= t->pace.entries)
        return dl_fail(DILOCO_EINVAL, "the run is complete");
    if (dl_fold_may_create(&dl_exec_state(t->reader.exec)->control, &t->to))
        return dl_fail(DILOCO_EINVAL, "%s is the committer already", out->to);
    return make_draft(t);
}

diloco_status diloco_takeover_sized(diloco_takeover_report *out, size_t size, const char *url,
                                    const char *replica, bool really)
{
    takeover t = {.silent = NULL};
    diloco_takeover_report report = {.entry = 0};
    dl_sized_out(out, size, &report, sizeof report);
    DL_TRY(dl_reader_open(&t.reader, url));
    diloco_status status = find(&t, &report, replica);
    if (!status && really) status = put_entry(&t, url);
    dl_entry_deinit(&t.draft.entry);
    dl_ledger_destroy(t.scratch);
    dl_bans_destroy(t.bans);
    free(t.silent);
    dl_reader_close(&t.reader);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
