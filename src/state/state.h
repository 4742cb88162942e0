/* state.h - the state of a run (PROTOCOL P1): every fragment's tensors and the control state, and
 * its files: theta0 and snapshots (safetensors, then a manifest).
 *
 * Each fragment has two copies that alternate. `now` is the state that the log has decided. An
 * entry is computed in `next` before it is committed. After a lost race the replica continues with
 * `now`, and a snapshot is written from `now` while training continues. */
#ifndef DL_STATE_STATE_H
#define DL_STATE_STATE_H

#include "log/runfile.h"
#include "outer/outer_step.h"
#include "protocol/control.h"

/* One thread changes it at a time. `control` has the rosters, terms and counters; its arrays are in
 * the arena, too. */
typedef struct dl_state {
    const dl_manifest *manifest; /* borrowed */
    const dl_outer *outer;
    dl_control control;
    dl_fragment_state *now, *next; /* [n_fragments] */
    dl_arena arena;
    bool on_disk;    /* the arena is in a file */
    size_t copy_len; /* bytes of one fragment's copy, if there is one fragment; else 0 */
} dl_state;

/* Allocates a state with zeroed tensors. n_copies 2, or 1 for readers that never commit; `ahead` is
 * L. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_state_init(dl_state *out, const dl_manifest *manifest,
                                          const dl_outer *outer, size_t max_members, int n_copies,
                                          size_t ahead);
/* The same with more choices.
 *   folder    run.offload = "disk": the state is in a file in that folder. NULL: in memory
 *   copy_len  bytes that a copy of the only fragment has at least, so that it may be lent for other
 *             use; no effect with several fragments
 * Also returns the errors of dl_file_nameless. */
typedef struct dl_state_args {
    const dl_manifest *manifest;
    const dl_outer *outer;
    size_t max_members;
    int n_copies;
    size_t ahead;
    const char *folder;
    size_t copy_len;
} dl_state_args;
DL_MUST_CHECK diloco_status dl_state_init_as(dl_state *out, const dl_state_args *args);
/* On disk: releases the memory of all copies of a fragment that is not needed for a while. In
 * memory: does nothing. Other threads may read meanwhile. */
void dl_state_put_out(const dl_state *state, int fragment);
void dl_state_put_out_all(const dl_state *state);
void dl_state_deinit(dl_state *state);
/* Makes the ledger if the log assigns the run's data (data_assignment.h), and the bans if the run
 * bans (bans.h), as before entry 0. Call it once. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_state_assign_data(dl_state *state, const dl_config *config,
                                                 const dl_schedule *schedule, size_t max_members);
size_t dl_state_bytes(const dl_manifest *manifest, const dl_outer *outer, int n_copies);
/* next becomes now, and `before` the digest of the old now */
void dl_state_swap(dl_state *state, int fragment);
uint64_t dl_state_commits(const dl_state *state); /* of all fragments */

/* Returns the trained region to evaluate: theta's, or that of the outer optimizer (outer.h). */
const float *dl_state_evaluated(const dl_state *state, int fragment);

/* Recomputes all digests of `now`. */
void dl_state_rehash(dl_state *state, dl_pool *pool);
/* Returns dl_hash_bytes of the fragments' digests in order, which identifies the model. */
dl_hash dl_state_digest_all(const dl_state *state);

/* Makes the safetensors image of `now`: header bytes in *header, and spans for all of it (header
 * first) in spans[], at most cap. The tensors are each manifest tensor under its own name, and
 * outer vectors as "diloco.<vector>.<tensor name>". It records the options on which the length of
 * those vectors depends (docs/formats.md), for a run that continues from it. */
DL_MUST_CHECK diloco_status dl_state_image(dl_buf *header, dl_span *spans, size_t cap,
                                           size_t *n_spans, const dl_state *state,
                                           const dl_config *config);
size_t dl_state_image_spans(const dl_state *state); /* cap that suffices */

/* Reads such an image (theta0, a snapshot) into `now` and rehashes. n_commits, which an image does
 * not have, stay. Returns DILOCO_EPROTO if it is truncated or foreign, a tensor is missing or has
 * another shape, or a value is not finite. The tensors are unspecified then. */
DL_MUST_CHECK diloco_status dl_state_load_image(dl_state *state, const void *bytes, size_t len,
                                                dl_pool *pool);

/* Writes state.safetensors, then manifest.json, under snap/<e>/<replica>.<g>/. The manifest has
 * entry, prev, digests and control. Returns store errors as they are, and DILOCO_EEXIST if this
 * generation has written another snapshot of this entry. signer: a committer's, if the run's
 * objects are signed, else NULL. *confirmed (may be NULL): the store confirmed both uploads
 * (dl_store_vouches), and the image is the one in the manifest. */
DL_MUST_CHECK diloco_status dl_snapshot_write(bool *confirmed, dl_store *store,
                                              const dl_state *state, const dl_runfile *run,
                                              const dl_generation *generation,
                                              const dl_signer *signer, dl_time until);
/* Reads the newest snapshot of at most `before` entries (UINT64_MAX: any) that is whole and has its
 * digests, else theta0. Sets state->now and control. Damaged ones are skipped with a warning.
 * Returns DILOCO_EPROTO or DILOCO_ENOENT if theta0 is damaged or missing, too, and store errors as
 * they are; the state is unspecified then. `oldest`: the same from the other end, for at least
 * `from` entries; theta0 only if that is 0. */
DL_MUST_CHECK diloco_status dl_snapshot_read_newest(dl_state *state, dl_store *store,
                                                    const dl_runfile *run, dl_hash run_digest,
                                                    uint64_t before, dl_pool *pool, dl_time until);
DL_MUST_CHECK diloco_status dl_snapshot_read_oldest(dl_state *state, dl_store *store,
                                                    const dl_runfile *run, dl_hash run_digest,
                                                    uint64_t from, dl_pool *pool, dl_time until);
/* The newest snapshot's facts about the log before it: `entry` entries, `commits` of them applied,
 * the last `aborts` of them not. It reads the manifest and the entry before the snapshot, but no
 * state. A manifest that does not match that entry is skipped. entry is 0 if there is no snapshot.
 */
typedef struct dl_snapshot_log {
    uint64_t entry, commits, aborts;
} dl_snapshot_log;
DL_MUST_CHECK diloco_status dl_snapshot_read_log(dl_snapshot_log *out, dl_store *store,
                                                 const dl_runfile *run, dl_time until);
/* Reads a snapshot back and compares its length and digest with its manifest: PROTOCOL P25. It
 * streams, without memory of the model's size. Returns DILOCO_EPROTO if it is damaged or foreign.
 * Returns DILOCO_EREFUSED if no replica of the run has written it. In a run with keys this means
 * that no committer has signed it. Elsewhere it is damaged, and the log names another committer of
 * the entry before it. Returns DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_snapshot_verify(dl_store *store, uint64_t entry,
                                               const dl_generation *generation,
                                               const dl_runfile *run, dl_time until);

/* Calls fn for each snapshot that a replica would try, the oldest first. *n_names: all names in
 * snap/. There may be any number of forged ones, of which few are tried. limit() is called for each
 * request. Returns what fn returns, if that is an error. */
typedef diloco_status (*dl_snapshot_fn)(void *context, uint64_t entry,
                                        const dl_generation *generation);
DL_MUST_CHECK diloco_status dl_snapshot_each(size_t *n_names, dl_store *store,
                                             const dl_runfile *run, dl_snapshot_fn fn,
                                             void *context, dl_time (*limit)(void));

#endif
