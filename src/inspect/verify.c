/* verify.c - diloco_verify: three checks, each of which finds what the others cannot.
 *
 * The chain of prev covers the whole log, also where contributions were collected. The replay
 * computes every state from the first one whose contributions are all kept. The snapshots that
 * are left are compared with the log.
 *
 * diloco_verify_from_snapshot begins all three at the oldest snapshot. So its time is that of the
 * entries since, which run.retain bounds. The snapshot is read before the chain, because it names
 * the digest that the chain begins with. */
#include "base/log.h"
#include "base/sized.h"
#include "inspect/reader.h"
#include "inspect/replay.h"
#include "protocol/void/unreadable.h"
#include "run/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the chain
 *
 * An entry whose prev is wrong is void for every replica, and the replay says so. Where the run
 * continued from what such an entry says, it was valid when it was read: then the entry before
 * it has been changed since. */

/* The newest entry of a fragment that has a wrong prev. It is suspect until the next entry of
 * the fragment shows what replicas took it for. */
typedef struct suspect {
    bool there;     /* the next two are set */
    uint64_t entry; /* with the wrong prev */
    dl_hash result; /* that it claims */
} suspect;

/* The check in progress. */
typedef struct chain {
    dl_entry entry;    /* room for any entry */
    dl_buf text;       /* of it */
    dl_hash before;    /* `prev` of the next entry */
    suspect *suspects; /* [n_fragments] its newest entry, if its prev is wrong */
    size_t n_fragments;
} chain;

static diloco_status chain_init(chain *c, const dl_reader *r, dl_hash before)
{
    *c = (chain){.before = before, .n_fragments = (size_t)r->file.manifest.n_fragments};
    dl_buf_init(&c->text, DL_ENTRY_TEXT_MAX);
    c->suspects = calloc(c->n_fragments, sizeof *c->suspects);
    if (!c->suspects) return dl_fail(DILOCO_ENOMEM, "not enough memory to check the log's chain");
    return dl_reader_entry_init(&c->entry, r);
}

static void chain_deinit(chain *c)
{
    dl_buf_deinit(&c->text);
    dl_entry_deinit(&c->entry);
    free(c->suspects);
}

/* Check that one entry follows the one before it. An entry that cannot be read is void, and its
 * bytes are no part of the chain. Decisions of an operator are noted for the replay, which needs
 * them before it reaches the entries that they void. */
static diloco_status check_link(chain *c, const dl_reader *r, uint64_t e)
{
    const dl_entry *entry = &c->entry;
    const diloco_status status = dl_reader_entry(&c->entry, &c->text, r, e);
    const dl_hash before = c->before;
    c->before = dl_entry_unreadable_digest();
    if (status) return status == DILOCO_EPROTO ? DILOCO_OK : status;
    c->before = dl_hash_bytes(c->text.data, c->text.len);
    const bool follows = dl_hash_equal(entry->prev, before) && !entry->scalars.wrong;
    if (follows && entry->abort.voids && dl_unreadable_may_void(&r->file.config, &r->file.identity))
        dl_replay_voids(r->exec, entry->abort.voids - 1, e);
    if (entry->fragment >= c->n_fragments) return DILOCO_OK;
    suspect *s = &c->suspects[entry->fragment];
    if (s->there && dl_hash_equal(entry->base, s->result))
        return dl_fail(DILOCO_EPROTO,
                       "entry %llu: prev is not the digest of the entry before it, which was "
                       "changed since: entry %llu builds on it",
                       (unsigned long long)s->entry, (unsigned long long)e);
    *s = (suspect){.there = entry->commit && !follows, .entry = e, .result = entry->result};
    return DILOCO_OK;
}

/* Read the log from its first chained entry on, entry by entry. A missing one is a gap, which P4
 * excludes: the store has lost it. */
static diloco_status check_links(chain *c, dl_reader *r, diloco_verify_report *out)
{
    for (uint64_t e = out->first_chained; e < out->entries; e++) {
        dl_buf_clear(&c->text);
        const diloco_status status = dl_entry_get(&c->text, r->store, e, dl_reader_limit());
        if (status == DILOCO_ENOENT)
            return dl_fail(DILOCO_EPROTO, "entry %llu is missing: the log has a gap",
                           (unsigned long long)e);
        DL_TRY(status);
        DL_TRY(check_link(c, r, e));
        out->chained++;
    }
    return DILOCO_OK;
}

/* Check the chain of the entries from out->first_chained to the log's end. `before` is the digest
 * of the text before them. Returns DILOCO_EPROTO if a text was changed after others had built on
 * it. */
static diloco_status check_chain(dl_reader *r, diloco_verify_report *out, dl_hash before)
{
    chain c;
    diloco_status status = chain_init(&c, r, before);
    if (!status) status = check_links(&c, r, out);
    chain_deinit(&c);
    return status;
}

/* ---- the replay ------------------------------------------------------------------------- */

/* The caller's listener, with the number of entries. */
typedef struct relay {
    diloco_verify_fn fn;
    void *user;
    uint64_t total; /* entries of the log */
} relay;

/* Passes the replay's progress on, with the total that only this file knows. */
static void on_progress(void *user, uint64_t done)
{
    relay *p = user;
    if (p->fn) p->fn(p->user, done, p->total);
}

static diloco_status found_any(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    *(bool *)context = true;
    return DILOCO_ECLOSED; /* one is enough */
}

/* Return whether any contribution to entry 0 is left. If so, probably nothing was collected yet. */
static diloco_status first_is_kept(dl_reader *r, bool *kept)
{
    dl_key prefix;
    *kept = false;
    dl_key_contributions(prefix, 0);
    const diloco_status status =
        dl_store_list(r->store, prefix, NULL, found_any, kept, dl_reader_limit());
    return status == DILOCO_ECLOSED ? DILOCO_OK : status;
}

static diloco_status replay(dl_reader *r, diloco_verify_report *out, dl_replay_report *replayed,
                            relay *progress)
{
    out->first_replayed = dl_exec_state(r->exec)->control.entry;
    return dl_replay(replayed, r->exec, &r->file, true, out->entries, on_progress, progress);
}

/* Read the oldest snapshot into the state, or theta0 if the run has no snapshot yet. */
static diloco_status read_oldest(dl_reader *r)
{
    return dl_snapshot_read_oldest(dl_exec_state(r->exec), r->store, &r->file, r->digest, 0,
                                   r->pool, dl_reader_limit());
}

/* The state is the oldest snapshot. */
static diloco_status replay_kept(dl_reader *r, diloco_verify_report *out,
                                 dl_replay_report *replayed, relay *progress)
{
    return dl_replay_kept(replayed, &out->first_replayed, r->exec, out->entries, on_progress,
                          progress, dl_reader_limit());
}

/* Replay from theta0 where it and the first contributions are kept, else from the oldest snapshot.
 * A slow replica may have put a contribution after the collection. So after a failure the replay
 * starts from the snapshot. */
static diloco_status replay_all(dl_reader *r, diloco_verify_report *out, dl_replay_report *replayed,
                                relay *progress)
{
    dl_state *state = dl_exec_state(r->exec);
    bool kept;
    DL_TRY(first_is_kept(r, &kept));
    if (kept) {
        diloco_status status = dl_snapshot_read_newest(state, r->store, &r->file, r->digest, 0,
                                                       r->pool, dl_reader_limit());
        const bool begins = !status;
        if (begins) status = replay(r, out, replayed, progress);
        if (status != DILOCO_ENOENT || (begins && r->file.config.retain == DL_RETAIN_ALL))
            return status;
        dl_log(DILOCO_LOG_WARN, "%s: the replay begins at the oldest snapshot",
               diloco_error_text());
    }
    DL_TRY(read_oldest(r));
    return replay_kept(r, out, replayed, progress);
}

/* ---- snapshots -------------------------------------------------------------------------- */

/* Returns whether the entry before the snapshot is unreadable to every replica. Such an entry has
 * no committer, and only the committer of an entry writes the snapshot after it (P25). */
static bool follows_unreadable(const dl_reader *r, uint64_t entry)
{
    dl_buf text;
    dl_entry before;
    if (entry == 0) return false;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    diloco_status status = dl_reader_entry_init(&before, r);
    if (!status) status = dl_entry_get(&text, r->store, entry - 1, dl_reader_limit());
    const bool unreadable =
        !status && dl_reader_entry(&before, &text, r, entry - 1) == DILOCO_EPROTO;
    dl_entry_deinit(&before);
    dl_buf_deinit(&text);
    return unreadable;
}

/* Snapshots in progress. */
typedef struct snapshots {
    dl_reader *r;
    uint64_t end;   /* of the log */
    size_t n_tried; /* of the names that are listed */
} snapshots;

/* Returns whether a snapshot that is not valid is no fault of the store: no replica would use it.
 */
static bool is_foreign(const snapshots *s, uint64_t entry, diloco_status status)
{
    return status == DILOCO_EREFUSED || entry > s->end ||
           (status == DILOCO_EPROTO && follows_unreadable(s->r, entry));
}

static diloco_status check_snapshot(void *context, uint64_t entry, const dl_generation *generation)
{
    snapshots *s = context;
    const diloco_status status =
        dl_snapshot_verify(s->r->store, entry, generation, &s->r->file, dl_reader_limit());
    s->n_tried += status != DILOCO_ENOENT;
    if (!status || status == DILOCO_ENOENT) return DILOCO_OK; /* ENOENT: collected meanwhile */
    char why[512];
    snprintf(why, sizeof why, "%s", diloco_error_text());
    if (!is_foreign(s, entry, status)) return dl_fail(status, "%s", why);
    dl_log(DILOCO_LOG_WARN, "%s: no replica accepts it", why);
    return DILOCO_OK;
}

/* Verify every snapshot against its manifest and the log. One that no replica would use is reported
 * and ignored. Anyone can create any number of names, so forged ones are counted. */
static diloco_status check_snapshots(dl_reader *r, uint64_t end)
{
    snapshots s = {.r = r, .end = end};
    size_t n_names;
    DL_TRY(dl_snapshot_each(&n_names, r->store, &r->file, check_snapshot, &s, dl_reader_limit));
    if (n_names > s.n_tried)
        dl_log(DILOCO_LOG_WARN,
               "%zu names in snap/ were passed over, because no replica tries them",
               n_names - s.n_tried);
    return DILOCO_OK;
}

/* ---- all of it -------------------------------------------------------------------------- */

/* Check the chain of the whole log, and replay what is kept. */
static diloco_status check_whole(dl_reader *r, diloco_verify_report *out,
                                 dl_replay_report *replayed, relay *progress)
{
    DL_TRY(check_chain(r, out, r->digest));
    return replay_all(r, out, replayed, progress);
}

/* Check the chain from the oldest snapshot on, and replay the same entries. The replay may begin
 * at a later snapshot (dl_replay_kept). If no entry follows the snapshot, nothing would be checked,
 * so the whole log is. The same holds if no replay can begin at a snapshot: an operator's decision
 * may have undone all of them. */
static diloco_status check_from_snapshot(dl_reader *r, diloco_verify_report *out,
                                         dl_replay_report *replayed, relay *progress)
{
    DL_TRY(read_oldest(r));
    const dl_control *control = &dl_exec_state(r->exec)->control;
    if (control->entry == 0 || control->entry >= out->entries)
        return check_whole(r, out, replayed, progress);
    out->first_chained = control->entry;
    DL_TRY(check_chain(r, out, control->prev));
    const diloco_status status = replay_kept(r, out, replayed, progress);
    if (status != DILOCO_ENOENT) return status;
    dl_log(DILOCO_LOG_WARN, "%s: the whole log is verified", diloco_error_text());
    out->first_chained = out->chained = 0;
    return check_whole(r, out, replayed, progress);
}

/* A void entry is an error if its committer made a false claim, or if no valid entry follows it
 * (replay.c). */
static diloco_status judge(const dl_replay_report *replayed)
{
    if (replayed->suspect)
        return dl_fail(DILOCO_EPROTO, "entry %llu is void: %s (%llu void in all)",
                       (unsigned long long)replayed->suspect - 1, replayed->suspect_reason,
                       (unsigned long long)replayed->voids);
    if (replayed->damaged[0])
        return dl_fail(DILOCO_EPROTO,
                       "%s: its combined update cannot be checked, and the run built on it "
                       "(%llu such in all)",
                       replayed->damaged, (unsigned long long)replayed->disputes);
    if (replayed->disputes)
        return dl_fail(
            DILOCO_EPROTO,
            "entry %llu does not follow from its contributions: its update or its verdicts "
            "differ (%llu such in all). Its committer was wrong or malicious, and the run built "
            "on it",
            (unsigned long long)replayed->first_dispute, (unsigned long long)replayed->disputes);
    return DILOCO_OK;
}

/* One verification: its run, where it begins, and the listener of its progress. */
typedef struct question {
    const char *url;
    const struct dl_own_rows *own; /* parts that the caller supplies; run.json only names them */
    int n_threads;
    bool from_snapshot;
    relay progress;
} question;

/* The snapshots come last, since a broken log explains their faults. */
static diloco_status verify(dl_reader *r, diloco_verify_report *out, question *q)
{
    dl_replay_report replayed;
    DL_TRY(dl_reader_exec(r, q->n_threads));
    uint64_t total;
    DL_TRY(dl_reader_total(&total, r));
    DL_TRY(dl_reader_length(&out->entries, r));
    q->progress.total = out->entries;
    DL_TRY((q->from_snapshot ? check_from_snapshot : check_whole)(r, out, &replayed, &q->progress));
    out->replayed = replayed.replayed;
    out->commits = replayed.commits;
    out->aborts = replayed.aborts;
    out->voids = replayed.voids;
    out->complete = out->entries >= total;
    dl_hash_to_hex(out->digest, dl_state_digest_all(dl_exec_state(r->exec)));
    DL_TRY(judge(&replayed));
    return check_snapshots(r, out->entries);
}

/* The report is written also after an error, with the counts up to there. */
static diloco_status verify_url(diloco_verify_report *out, size_t size, question *q)
{
    dl_reader r;
    diloco_verify_report report = {.entries = 0};
    dl_sized_out(out, size, &report, sizeof report);
    DL_TRY(dl_reader_open(&r, q->url));
    r.file.config.own = q->own;
    const diloco_status status = verify(&r, &report, q);
    dl_reader_close(&r);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}

diloco_status diloco_verify_sized(diloco_verify_report *out, size_t size, const char *url,
                                  int n_threads, diloco_verify_fn progress, void *user)
{
    question q = {.url = url, .n_threads = n_threads, .progress = {.fn = progress, .user = user}};
    return verify_url(out, size, &q);
}

diloco_status diloco_verify_from_snapshot_sized(diloco_verify_report *out, size_t size,
                                                const char *url, int n_threads,
                                                diloco_verify_fn progress, void *user)
{
    question q = {.url = url,
                  .n_threads = n_threads,
                  .from_snapshot = true,
                  .progress = {.fn = progress, .user = user}};
    return verify_url(out, size, &q);
}

diloco_status diloco_run_verify_sized(const diloco_run *run, diloco_verify_report *out, size_t size,
                                      int n_threads)
{
    question q = {.url = run->config.store, .own = run->config.own, .n_threads = n_threads};
    return verify_url(out, size, &q);
}
