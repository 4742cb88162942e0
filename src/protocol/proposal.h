/* proposal.h - composing an entry: what log/<e> would say if this replica creates it.
 *
 * A draft is nothing until its bytes are read back from the store (P5). */
#ifndef DL_PROTOCOL_PROPOSAL_H
#define DL_PROTOCOL_PROPOSAL_H

#include "base/arena.h"
#include "protocol/candidates.h"
#include "protocol/machine.h"

typedef struct dl_draft {
    dl_entry entry;
    size_t *slots; /* [max_members] of entry's members, and what their weights are made of: */
    dl_member_facts *facts;
    uint64_t *raw;
    float *weight;
} dl_draft;

typedef struct dl_draft_source {
    const dl_machine_args *args; /* control tells which entry */
    const dl_known_table *known;
    const bool *silent; /* of control's roster */
    uint32_t fragment;
    dl_hash base; /* of the fragment now */
    uint64_t n_commits, snapshot;
    dl_ledger *scratch; /* where control has a ledger */
    dl_bans *bans;      /* likewise, of its bans */
    double simulated_s; /* that the round takes; 0: it takes real time */
} dl_draft_source;

/* run.drop, a fault to try: does the entry pass this replica's contribution over? The same for
 * whoever closes it, and in every run of that seed. */
bool dl_draft_drops(const dl_config *config, uint64_t entry, const char *replica);

/* Takes its arrays from the arena (measuring: none); the entry is initialised by the caller. */
void dl_draft_layout(dl_draft *draft, dl_arena *arena, size_t max_members);

/* Everything but the result, which is to be computed. DILOCO_ENUMERIC: no weights. */
DL_MUST_CHECK diloco_status dl_draft_commit(dl_draft *draft, const dl_draft_source *from);
void dl_draft_abort(dl_draft *draft, const dl_draft_source *from, const char *reason);

/* The roster that a draft carries, of replicas in rounds (mode.h). */
void dl_draft_next_roster(dl_entry *draft, const dl_draft_source *from);

/* An abort by which the args' self becomes the single committer (P26). */
void dl_draft_takeover(dl_draft *draft, const dl_draft_source *from);

/* An abort that records an operator's decision: that entry, and those behind it, are void (P7). */
void dl_draft_void(dl_draft *draft, const dl_draft_source *from, uint64_t entry);

/* Do both commit the same members with the same weights and scalars, and reject the same? Then they
 * give the same result, and who lost the race for the name need not compute again. */
bool dl_draft_same_step(const dl_entry *a, const dl_entry *b);

#endif
