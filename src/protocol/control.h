/* control.h - the control state of a run (PROTOCOL P1): the result of the log's entries, apart from
 * the tensors. Applying an entry changes it (control_apply.h), and snapshots store it. */
#ifndef DL_PROTOCOL_CONTROL_H
#define DL_PROTOCOL_CONTROL_H

#include "log/entry.h"
#include "protocol/bans.h"
#include "protocol/data_assignment.h"

typedef struct dl_control {
    uint64_t entry;    /* the next entry; entries 0 … e-1 are applied */
    dl_hash prev;      /* digest of log/<e-1>, of run.json at 0 */
    uint64_t n_aborts; /* consecutive aborts just before it */
    uint64_t snapshot; /* newest known */
    dl_roster roster;  /* of entry e; empty before entry L */
    float lr, mu;      /* of entry e */
    dl_terms *later;   /* [n_later] of the entries after it whose terms are decided: L - 1 (P9) */
    size_t n_later;
    bool last;         /* the run has ended */
    dl_ledger *ledger; /* owned by the state; NULL: the log assigns no data */
    dl_bans *bans;     /* owned by the state; NULL: the run has none (bans.h) */
    /* run.single_committer: only it may create the entry (P26). Its generation may be
     * DL_GENERATION_ANY. Without a name any replica may. */
    dl_generation committer;
} dl_control;

#endif
