/* service.h - one plan's slices, combined for all: what sharded.c and measured.c share. */
#ifndef DL_RUN_SERVICE_H
#define DL_RUN_SERVICE_H

#include "run/exec_parts.h"

typedef struct dl_service {
    dl_exec *x;
    const dl_entry *plan;
    const dl_life *planner, *owner;
    dl_slicing s;
    size_t slice, n_own;
    dl_time until;
} dl_service;

/* Slice `slice` of all members into the slots, unless it is there; and the step's arguments for it.
 * DILOCO_EPROTO, DILOCO_ENUMERIC, DILOCO_ENOENT: of a member's; store errors. */
DL_MUST_CHECK diloco_status dl_service_read(dl_service *v);
dl_outer_step_args dl_service_args(const dl_service *v);

/* ---- measured.c: what a rule that measures members has to know of all slices before any of them
 * is combined (P19) ---- */

/* Room for it, where the run's rule is such a one: x->measures. */
DL_MUST_CHECK diloco_status dl_measures_prepare(dl_exec *x);
/* Of slice v->slice, which is ours: into x/<e>/measured/. */
DL_MUST_CHECK diloco_status dl_measures_put(dl_service *v);
/* Of all slices, into x->measures. *there false: of some there are none yet, or none to be read. */
DL_MUST_CHECK diloco_status dl_measures_gather(bool *there, dl_service *v);

#endif
