/* judge.h - which valid contributions to an entry are used, and which are rejected (PROTOCOL P27,
 * docs/algorithms.md "Checks"). Pure: a function of the contributions' numbers, the run's options
 * and the earlier counts in the log (bans.h). So every reader of the same contributions finds the
 * same.
 *
 * A verdict is a word:
 *
 *     "repeat"  its bytes are those of one of its replica's last check.repeat that counted
 *     "copy"    its bytes are another's, or its direction is that of another (check.copy)
 *     "norm"    longer than check.norm times the median of the norms
 *     "short"   shorter than check.short times that median
 *     "zero"    it moves nothing while most move (if either of these is set)
 *     "cosine"  the median of its cosines with the others is below check.cosine
 *     "probe"   the shared model has more than check.probe times its loss with it
 *
 * The last is no function of the bytes. The replica that creates the entry measures it (probing.h),
 * among contributions without another verdict, and the other replicas accept it.
 *
 * A failed read has a word, too (contribution.h): "non-finite", "bound" (check.element), "base",
 * "foreign", "shape", "codec", "dealt", "claim". No entry contains damage that a transfer may have
 * caused ("truncated", "checksum", "header"), or a finding that may differ for others
 * ("signature"). */
#ifndef DL_PROTOCOL_JUDGE_H
#define DL_PROTOCOL_JUDGE_H

#include "base/arena.h"
#include "protocol/bans.h"
#include "protocol/candidates.h"

/* Returns whether the run checks contributions before it uses them. */
bool dl_judge_is_on(const dl_config *config);
/* Returns true if an entry may reject contributions: if the run checks them, or its combiner
 * tolerates malicious members, since a rejected one counts as one of those. */
bool dl_judge_may_reject(const dl_config *config);

/* Returns whether the checks use norms or dot products. For sliced contributions these are known
 * once all owners have measured their slices (sharded_measure.c). Elements and bytes are known
 * without that. */
bool dl_judge_compares(const dl_config *config);

/* Checks the options before training. Returns DILOCO_EINVAL or DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_judge_check(const dl_config *config);

/* Returns whether an entry names it. A finding about a key ("signature") may change later. */
bool dl_judge_names(const char *reason);
/* Returns whether an entry may reject a contribution for `reason` whose reason here is `own` (NULL:
 * valid). */
bool dl_judge_agrees(const dl_config *config, const char *own, const char *reason);

/* Returns whether the replica has uploaded a contribution that will never be valid, by its own
 * fault. An entry then names it as rejected and does not wait for another. */
bool dl_judge_has_rejected(const dl_candidate_table *known, const char *replica);

/* Memory to judge in: arrays of max_members from the arena, or only measured. */
typedef struct dl_judge {
    size_t *slots; /* of the contributions to judge, in the order of their generations */
    size_t n;
    double *key, *norm, *median;
    size_t *order;
} dl_judge;
void dl_judge_layout(dl_judge *judge, dl_arena *arena, size_t max_members);

/* Returns whether all of those in slots were read whole. If not, only their bytes are judged. */
bool dl_judge_has_whole(const dl_judge *judge, const dl_candidate_table *known);

/* Sets `refused` of the n valid contributions in slots to a word, or NULL. bans: after the entry
 * before. gram[n * n]: their dot products. It is NULL if dl_config_checks_directions is false or
 * they were not read whole. The first of several copies counts. At least one is not refused. */
void dl_judge_all(dl_judge *judge, const dl_config *config, const dl_bans *bans,
                  dl_candidate_table *known, const double *gram);

/* Also refuses contributions by their effect on the loss: probed[0] without any, probed[1 + i] with
 * the one in slots[i]. It does nothing if the first is not finite. At least one remains. */
void dl_judge_probed(dl_judge *judge, const dl_config *config, dl_candidate_table *known,
                     const double *probed);

#endif
