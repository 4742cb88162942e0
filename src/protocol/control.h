/* control.h - the control state of a run (PROTOCOL P1): what applying the log's entries decides,
 * apart from the tensors. A log room's entry changes it (fold.h), and snapshots store it. */
#ifndef DL_PROTOCOL_CONTROL_H
#define DL_PROTOCOL_CONTROL_H

#include "log/entry.h"
#include "protocol/bans.h"
#include "protocol/data_assignment.h"

typedef struct dl_control {
    uint64_t entry;    /* the next entry: e entries are folded */
    dl_hash prev;      /* digest of log/<e-1>, of run.json at 0 */
    uint64_t n_aborts; /* consecutive, just before */
    uint64_t snapshot; /* newest known */
    dl_roster roster;  /* of entry e; empty before entry L */
    float lr, mu;      /* of entry e */
    dl_terms *later;   /* [n_later] of the entries behind it that are settled already: L - 1 (P9) */
    size_t n_later;
    bool last;         /* the run has ended */
    dl_ledger *ledger; /* owned by the state; NULL: the log deals no data */
    dl_bans *bans;     /* likewise; NULL: the run has none (bans.h) */
    dl_life committer; /* run.single_committer: who alone may create the entry (P26), of a life that
                        * may be DL_LIFE_ANY; no name: anybody may */
} dl_control;

#endif
