/* sharded_parts.h - one plan's slices, combined for all: what sharded.c and sharded_measure.c
 * share.
 *
 * A slice has one owner, or several (server.diloco.slice_owners): all combine it, the first puts
 * what that comes to, the others its digest, as witnesses. Where they differ the plan comes to
 * nothing. */
#ifndef DL_EXCHANGE_SHARDED_PARTS_H
#define DL_EXCHANGE_SHARDED_PARTS_H

#include "exchange/exec_parts.h"

typedef struct dl_service {
    dl_exec *x;
    const dl_entry *plan;
    const dl_life *planner, *owner;
    dl_slicing s;
    size_t slice, nth, n_own; /* owner is the nth of the slice */
    dl_time until;
} dl_service;

/* How the objects of owners are called: dl_key_combined_slice, dl_key_measured_slice. */
typedef void (*dl_owned_key)(dl_key out, uint64_t entry, size_t slice, const dl_life *owner,
                             const dl_life *planner);
/* Put what v->owner makes of v->slice: spans[n], then their digest; of a witness the digest alone.
 */
DL_MUST_CHECK diloco_status dl_service_put(const dl_service *v, dl_owned_key key, dl_span *spans,
                                           size_t n, const dl_hash *digest);
/* The witnesses of slice i of a plan are of the digest `got` that its first owner's object has.
 * DILOCO_EPROTO: one is not, and *differ is set. DILOCO_ENOENT: one has not said yet. */
DL_MUST_CHECK diloco_status dl_witnesses_agree(bool *differ, const dl_exec *x, const dl_entry *plan,
                                               const dl_life *planner, size_t i, dl_owned_key key,
                                               dl_hash got, dl_store *store, dl_time until);
/* The owners of a slice of a plan differ, as the error text says; of ours: a warning, and it comes
 * to nothing. Always DILOCO_EPROTO. */
DL_MUST_CHECK diloco_status dl_exec_dispute(dl_exec *x, uint64_t entry, const dl_life *planner);

/* Slice `slice` of all members into the slots, unless it is there; and the step's arguments for it.
 * DILOCO_EPROTO, DILOCO_ENUMERIC, DILOCO_ENOENT: of a member's; store errors. */
DL_MUST_CHECK diloco_status dl_service_read(dl_service *v);
dl_outer_step_args dl_service_args(const dl_service *v);

/* … and so does what is planned with members whom the run's checks reject. */
DL_MUST_CHECK diloco_status dl_exec_drop_plan(dl_exec *x, uint64_t entry, const dl_life *planner);

/* ---- sharded_measure.c: what a rule that measures members, or a check, has to know of all slices
 * before any of them is combined (P19) ---- */

/* Room for it, where the run's rule is such a one, x->measures, or it has such checks, x->compared.
 */
DL_MUST_CHECK diloco_status dl_measures_prepare(dl_exec *x);
bool dl_measures_are_wanted(const dl_exec *x);
/* Of slice v->slice, which is ours: into x/<e>/measured/. */
DL_MUST_CHECK diloco_status dl_measures_put(dl_service *v);
/* Of all slices, into x->measures and x->compared. *there false: of some there are none yet, or
 * none to be read. DILOCO_EPROTO: owners of one differ. */
DL_MUST_CHECK diloco_status dl_measures_gather(bool *there, dl_service *v);
/* What is gathered shows nothing against any member. DILOCO_EPROTO: it does; the text says whom. */
DL_MUST_CHECK diloco_status dl_measures_judge(dl_service *v);

#endif
