/* exec_parts.h - what a dl_exec is: shared by exec.c and contribute.c, for nobody else. */
#ifndef DL_RUN_EXEC_PARTS_H
#define DL_RUN_EXEC_PARTS_H

#include "run/collect.h"
#include "run/exec.h"

#define DL_ELEMENT_BOUND 1e18f /* so that no sum or product of elements overflows */

struct dl_exec {
    dl_exec_args a;
    dl_state state;
    dl_codec_form *forms; /* [n_fragments] */
    dl_exec_work work;
    dl_exec_facts facts;

    dl_local_tensor *local; /* [n_tensors], in fragment order */
    dl_outer_scratch *scratch;
    unsigned char *payload; /* own contribution's, bound bytes */
    bool contributed;       /* in this life: former lives have nothing open any more */

    size_t n_slots;
    dl_slot **slots;               /* [n_slots], NULL until needed */
    dl_contribution_data *held;    /* [n_slots] */
    dl_contribution_data *members; /* [max_members] of the step, in order */
    float *weight;
    uint64_t *raw;
    dl_listed *listed; /* [n_slots] */
    size_t n_listed;
    dl_seen *seen; /* [cap_seen] */
    size_t n_seen, cap_seen;
    dl_span *spans; /* header, payload, each integer and boolean tensor */
    dl_contribution fetched;
    dl_collector collector;
    dl_buf text;
    dl_arena arena;
};

/* contribute.c: DL_ASK_CONTRIBUTE. DILOCO_ENUMERIC: what was trained is not finite, by name;
 * DILOCO_EFENCED: another process lives as this life. */
DL_MUST_CHECK diloco_status dl_exec_contribute(dl_exec *x, const dl_ask *ask, dl_event *event,
                                               dl_time until);

#endif
