/* sharded_parts.h - combining one plan's slices for all; shared by sharded.c and sharded_measure.c.
 *
 * A slice has one owner or several (server.diloco.slice_owners). All of them combine it. The first
 * uploads the result, the others upload its digest, as witnesses. If they differ, the plan yields
 * no update. */
#ifndef DL_EXCHANGE_SHARDED_PARTS_H
#define DL_EXCHANGE_SHARDED_PARTS_H

#include "exchange/exec_parts.h"

typedef struct dl_service {
    dl_exec *x;
    const dl_entry *plan;
    const dl_generation *planner, *owner;
    dl_slicing s;
    size_t slice, nth, n_own; /* the owner is the nth of the slice */
    dl_time until;
} dl_service;

/* Makes the key of an owner's object: dl_key_combined_slice or dl_key_measured_slice. */
typedef void (*dl_owned_key)(dl_key out, uint64_t entry, size_t slice, const dl_generation *owner,
                             const dl_generation *planner);
/* Uploads v->owner's result for v->slice: spans[n], then their digest. A witness uploads the digest
 * alone. */
DL_MUST_CHECK diloco_status dl_service_put(const dl_service *v, dl_owned_key key, dl_span *spans,
                                           size_t n, const dl_hash *digest);
/* Checks that the witnesses of slice i of a plan have the digest `got` of the first owner's object.
 * Returns DILOCO_EPROTO and sets *differ if one has another. Returns DILOCO_ENOENT if one has not
 * uploaded its digest yet. */
DL_MUST_CHECK diloco_status dl_witnesses_agree(bool *differ, const dl_exec *x, const dl_entry *plan,
                                               const dl_generation *planner, size_t i,
                                               dl_owned_key key, dl_hash got, dl_store *store,
                                               dl_time until);
/* Reports that the owners of a slice of a plan differ, as the error text says. Warns if the plan is
 * ours; it yields no update. Always returns DILOCO_EPROTO. */
DL_MUST_CHECK diloco_status dl_exec_dispute(dl_exec *x, uint64_t entry,
                                            const dl_generation *planner);

/* dl_service_read reads slice v->slice of all members into the slots, unless it is there. Returns
 * DILOCO_EPROTO, DILOCO_ENUMERIC or DILOCO_ENOENT for a member's slice, or a store error.
 * dl_service_args returns the step's arguments for it. */
DL_MUST_CHECK diloco_status dl_service_read(dl_service *v);
dl_outer_step_args dl_service_args(const dl_service *v);

/* Drops a plan whose members the run's checks reject. */
DL_MUST_CHECK diloco_status dl_exec_drop_plan(dl_exec *x, uint64_t entry,
                                              const dl_generation *planner);

/* ---- sharded_measure.c: measures of all slices, which some combiners and checks need before any
 * slice is combined (P19) ---- */

/* Allocates x->measures if the run's combiner measures members, and x->compared if its checks do.
 */
DL_MUST_CHECK diloco_status dl_measures_prepare(dl_exec *x);
bool dl_measures_are_wanted(const dl_exec *x);
/* Measures slice v->slice, which is ours, and uploads the numbers to x/<e>/measured/. */
DL_MUST_CHECK diloco_status dl_measures_put(dl_service *v);
/* Reads the measures of all slices into x->measures and x->compared. *there is false if some do not
 * exist yet or are unreadable. Returns DILOCO_EPROTO if the owners of one differ. */
DL_MUST_CHECK diloco_status dl_measures_gather(bool *there, dl_service *v);
/* Returns DILOCO_EPROTO if the gathered measures show that a check rejects a member; the text names
 * it. */
DL_MUST_CHECK diloco_status dl_measures_judge(dl_service *v);

#endif
