/* state.h - the state of a run (PROTOCOL P1): every fragment's tensors and the control state,
 * and its files: theta0 and snapshots (safetensors, then a manifest).
 *
 * Two copies of each fragment are kept and take turns: `now` is the state that the log has
 * decided, `next` is where an entry is computed before it stands. A lost race returns to
 * `now`, and a snapshot is written from `now` while training continues. */
#ifndef DL_STATE_STATE_H
#define DL_STATE_STATE_H

#include "log/runfile.h"
#include "outer/outer_step.h"
#include "protocol/control.h"

typedef struct dl_state {
    const dl_manifest *manifest; /* borrowed */
    const dl_outer *outer;
    dl_control control;
    dl_fragment_state *now, *next; /* [n_fragments] */
    dl_arena arena;
    bool on_disk; /* the arena is a file's */
} dl_state;

/* n_copies 2, or 1 for readers that never commit; `ahead` is L. DILOCO_ENOMEM. Zeroed tensors. */
DL_MUST_CHECK diloco_status dl_state_init(dl_state *out, const dl_manifest *manifest,
                                          const dl_outer *outer, size_t max_members, int n_copies,
                                          size_t ahead);
/* run.offload = "disk": it is in a file in that folder. Errors of dl_file_nameless, too. */
DL_MUST_CHECK diloco_status dl_state_init_on_disk(dl_state *out, const dl_manifest *manifest,
                                                  const dl_outer *outer, size_t max_members,
                                                  int n_copies, size_t ahead, const char *folder);
/* On disk: a fragment that is not needed for a while leaves memory, all copies of it. In memory:
 * nothing. Beside readers. */
void dl_state_put_out(const dl_state *state, int fragment);
void dl_state_put_out_all(const dl_state *state);
void dl_state_deinit(dl_state *state);
/* Where the run deals its data (data_assignment.h) the ledger, and where it bans (bans.h) the bans,
 * as before entry 0. Once. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_state_deal(dl_state *state, const dl_config *config,
                                          const dl_schedule *schedule, size_t max_members);
size_t dl_state_bytes(const dl_manifest *manifest, const dl_outer *outer, int n_copies);
void dl_state_swap(dl_state *state, int fragment); /* next becomes now, whose digest `before` */
uint64_t dl_state_commits(const dl_state *state);  /* of all fragments */

/* The trained region that is evaluated: theta's, or what the outer optimizer names (outer.h). */
const float *dl_state_evaluated(const dl_state *state, int fragment);

/* All digests of `now` recomputed. */
void dl_state_rehash(dl_state *state, dl_pool *pool);
/* dl_hash_bytes of the fragments' digests in order: one number for "the same model". */
dl_hash dl_state_digest_all(const dl_state *state);

/* The safetensors image of `now`: header bytes into *header, spans for all of it (header first)
 * into spans[], at most cap. Tensors: each manifest tensor under its own name, outer vectors as
 * "diloco.<vector>.<tensor name>". Of the run's options it says what the length of those vectors
 * rests on (docs/formats.md), for a run that continues from there. */
DL_MUST_CHECK diloco_status dl_state_image(dl_buf *header, dl_span *spans, size_t cap,
                                           size_t *n_spans, const dl_state *state,
                                           const dl_config *config);
size_t dl_state_image_spans(const dl_state *state); /* cap that suffices */

/* Read such an image (theta0, a snapshot) into `now` and rehash; n_commits, which an image does
 * not have, stay. DILOCO_EPROTO: truncated, foreign, a tensor missing or of another shape, a
 * value not finite; the tensors are unspecified then. */
DL_MUST_CHECK diloco_status dl_state_load_image(dl_state *state, const void *bytes, size_t len,
                                                dl_pool *pool);

/* snap/<e>/<life>/state.safetensors, then …/manifest.json: entry, prev, digests, control. Store
 * errors as they are; DILOCO_EEXIST: this generation has written another snapshot of this entry.
 * signer: as a committer, where the run's objects are signed; else NULL. *vouched (may be NULL):
 * the store has both as they were sent (dl_store_vouches), and the one is what the other names. */
DL_MUST_CHECK diloco_status dl_snapshot_write(bool *vouched, dl_store *store, const dl_state *state,
                                              const dl_runfile *run, const dl_life *life,
                                              const dl_signer *signer, dl_time until);
/* Newest snapshot at most `before` (UINT64_MAX: any) that reads back whole and fits its own
 * digests, else theta0. Sets state->now and control. Damaged ones are skipped with a warning.
 * DILOCO_EPROTO, DILOCO_ENOENT: theta0 is damaged or gone too; store errors as they are: the state
 * is unspecified then. `oldest`: likewise from the other end, of at least `from` entries; theta0
 * only where that is 0. */
DL_MUST_CHECK diloco_status dl_snapshot_read_newest(dl_state *state, dl_store *store,
                                                    const dl_runfile *run, dl_hash run_digest,
                                                    uint64_t before, dl_pool *pool, dl_time until);
DL_MUST_CHECK diloco_status dl_snapshot_read_oldest(dl_state *state, dl_store *store,
                                                    const dl_runfile *run, dl_hash run_digest,
                                                    uint64_t from, dl_pool *pool, dl_time until);
/* What the newest snapshot says of the log before it: `entry` entries, `commits` of them applied,
 * the last `aborts` of them not. Reads the manifest and the entry before the snapshot, and no
 * state. A manifest that does not fit that entry is passed over. entry is 0 where there is no
 * snapshot. */
typedef struct dl_snapshot_log {
    uint64_t entry, commits, aborts;
} dl_snapshot_log;
DL_MUST_CHECK diloco_status dl_snapshot_read_log(dl_snapshot_log *out, dl_store *store,
                                                 const dl_runfile *run, dl_time until);
/* Read one back and compare length and digest with those of its manifest: PROTOCOL P25. Streams;
 * takes no memory of the model's size. DILOCO_EPROTO: damaged or foreign. DILOCO_EREFUSED: no
 * replica of the run has written it. In a run of keys a committer has not signed it; elsewhere it
 * is damaged, and the log names another committer of the entry before it. DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_snapshot_verify(dl_store *store, uint64_t entry, const dl_life *life,
                                               const dl_runfile *run, dl_time until);

#endif
