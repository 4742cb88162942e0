/* proposal.h - composes an entry: the text of log/<e> if this replica creates it.
 *
 * A draft counts only once its bytes are read back from the store (P5). */
#ifndef DL_PROTOCOL_PROPOSAL_H
#define DL_PROTOCOL_PROPOSAL_H

#include "base/arena.h"
#include "protocol/candidates.h"
#include "protocol/machine_args.h"

typedef struct dl_draft {
    dl_entry entry;
    size_t *slots; /* [max_members] of entry's members, and of their weights: */
    dl_member_facts *facts;
    uint64_t *raw;
    float *weight;
} dl_draft;

typedef struct dl_draft_source {
    const dl_machine_args *args; /* control has the entry's number */
    const dl_candidate_table *known;
    const bool *silent; /* of control's roster */
    uint32_t fragment;
    dl_hash base; /* of the fragment now */
    uint64_t n_commits, snapshot;
    dl_ledger *scratch; /* used if control has a ledger */
    dl_bans *bans;      /* used if control has bans */
    double simulated_s; /* of the round; 0: real time */
} dl_draft_source;

/* run.drop, an injected fault: returns whether the entry skips this replica's contribution. It is
 * the same for every committer, and in every run of that seed. */
bool dl_draft_drops(const dl_config *config, uint64_t entry, const char *replica);

/* Allocates its arrays from the arena, or measures them only. The caller initializes the entry. */
void dl_draft_layout(dl_draft *draft, dl_arena *arena, size_t max_members);

/* Drafts everything but the result, which is computed later. Returns DILOCO_ENUMERIC if there are
 * no weights. */
DL_MUST_CHECK diloco_status dl_draft_commit(dl_draft *draft, const dl_draft_source *from);
void dl_draft_abort(dl_draft *draft, const dl_draft_source *from, const char *reason);

/* Sets the roster of a draft, of replicas in rounds (mode.h). */
void dl_draft_next_roster(dl_entry *draft, const dl_draft_source *from);

/* Drafts an abort by which the args' self becomes the single committer (P26). */
void dl_draft_takeover(dl_draft *draft, const dl_draft_source *from);

/* Drafts an abort that records an operator's decision: that entry and those after it are void (P7).
 */
void dl_draft_void(dl_draft *draft, const dl_draft_source *from, uint64_t entry);

/* Returns whether both commit the same members with the same weights and scalars, and reject the
 * same. Then they have the same result, and a replica that lost the race for the name need not
 * compute again. */
bool dl_draft_same_step(const dl_entry *a, const dl_entry *b);

#endif
