/* judge.h - which of the valid contributions to an entry are used, and which are rejected (PROTOCOL
 * P27, docs/algorithms.md "Checks"). Pure: of the contributions' numbers, the run's options and
 * what the log has counted before (bans.h), so whoever has read the same contributions says the
 * same.
 *
 * A verdict is a word:
 *
 *     "repeat"  its bytes are those of one of its replica's last check.repeat that counted
 *     "copy"    its bytes are another's, or it points where another does (check.copy)
 *     "norm"    longer than check.norm times the median of the norms
 *     "short"   shorter than check.short times that median
 *     "zero"    it moves nothing while most move (where either of these is set)
 *     "cosine"  the median of its cosines with the others is below check.cosine
 *     "probe"   the shared model has more than check.probe times its loss with it
 *
 * The last is no function of what others have read: whoever creates the entry has measured it
 * (probing.h), among those that nothing else is said against, and everybody takes his word.
 * and those that a reading ends with (contribution.h): "non-finite", "bound" (check.element),
 * "base", "foreign", "shape", "codec", "dealt", "claim". What the way may have done to it
 * ("truncated", "checksum", "header"), and what may look otherwise to others ("signature"), stands
 * in no entry.
 */
#ifndef DL_PROTOCOL_JUDGE_H
#define DL_PROTOCOL_JUDGE_H

#include "base/arena.h"
#include "protocol/bans.h"
#include "protocol/candidates.h"

/* Does the run look at contributions before it uses them? */
bool dl_judge_is_on(const dl_config *config);
/* Return true if an entry may reject contributions: where the run looks at them, and where its
 * combiner bears members that lie, since a rejected one is one of these. */
bool dl_judge_may_reject(const dl_config *config);

/* … by their norms or dot products? Where contributions lie in slices these are known once all
 * owners have measured theirs (sharded_measure.c); what elements and bytes show, is known without.
 */
bool dl_judge_compares(const dl_config *config);

/* What can be said against the options before training. DILOCO_EINVAL, DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_judge_check(const dl_config *config);

/* May the way have done this? Does it count towards a ban? Only what was found once the signature
 * had been (where members have keys) and what nobody else can bring about: a copy may be the
 * original, and what lies under a replica's name with a wrong base need not be its own. */
bool dl_judge_is_damage(const char *reason);
/* Return true if the object's header did not even name this run and its replica. */
bool dl_judge_is_junk(const char *reason);
/* Does an entry name it? What a key has to do with ("signature") may look otherwise later. */
bool dl_judge_names(const char *reason);
bool dl_judge_strikes(const char *reason);
/* Whose reason is `own` here (NULL: none): may an entry reject it for `reason`? */
bool dl_judge_agrees(const dl_config *config, const char *own, const char *reason);

/* Has it put a contribution that will never be valid, by its own fault? Then an entry names it as
 * rejected and waits no longer. */
bool dl_judge_has_rejected(const dl_known_table *known, const char *replica);

/* Room to judge in; arrays of max_members from the arena (measuring: none). */
typedef struct dl_judge {
    size_t *slots; /* of those that are judged, in the order of their lives */
    size_t n;
    double *key, *norm, *median;
    size_t *order;
} dl_judge;
void dl_judge_layout(dl_judge *judge, dl_arena *arena, size_t max_members);

/* All of those in slots were read whole; else only what their bytes show is judged. */
bool dl_judge_has_whole(const dl_judge *judge, const dl_known_table *known);

/* Sets `refused` of the n valid contributions in slots to a word, or NULL. bans: behind the entry
 * before. gram[n * n]: their dot products; NULL where dl_config_checks_directions is false, or they
 * were not read whole. Of copies the first counts. At least one is not refused. */
void dl_judge_all(dl_judge *judge, const dl_config *config, const dl_bans *bans,
                  dl_known_table *known, const double *gram);

/* … and of those that it leaves, by what they make of the loss: probed[0] without any, probed[1 +
 * i] with the one in slots[i]. Nothing where the first is not finite. At least one is left. */
void dl_judge_probed(dl_judge *judge, const dl_config *config, dl_known_table *known,
                     const double *probed);

#endif
