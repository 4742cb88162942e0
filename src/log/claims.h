/* claims.h - bounds on a contribution's claims about itself.
 *
 * Position, steps, samples, tokens and loss are a replica's own word, and no reader can repeat the
 * training. The log's own numbers bound them. A replica is at most at the due point of its entry,
 * and takes one optimizer step a position since its base. Its claim of samples and tokens counts
 * for its weight up to CUT times the lower median of the entry's members. So does the weight
 * itself, which may be the square of a claim, or a claim for each step. Its loss counts for the
 * mean up to FAR times theirs. Nothing is cut for logical clients, whose data may differ in size.
 */
#ifndef DL_LOG_CLAIMS_H
#define DL_LOG_CLAIMS_H

#include "combine/combine.h"
#include "log/contribution.h"
#include "log/entry.h"

enum { DL_CLAIMS_CUT = 16, DL_CLAIMS_FAR = 1000 };

/* Returns why no replica can have done what a contribution claims, or NULL if it is possible. Steps
 * of a contribution without samples are not checked, since they count for nothing. */
const char *dl_claims_refuse(const dl_contribution *c, const dl_train_bounds *bounds);

/* Reduces the samples and tokens of n members to the numbers that count. */
void dl_claims_cut(dl_member_facts *facts, size_t n);

/* Reduces raw weights to those that count. */
void dl_claims_cut_weights(uint64_t *raw, size_t n);

/* Return the mean loss of the entry's members, without those that are too far off. NaN where
 * a member reports none. */
double dl_claims_mean_loss(const dl_entry *entry);

/* The typical claims of the members of an entry: computed once an entry, in time linear in their
 * number. */
typedef struct dl_claims_medians {
    const dl_weighting *rule;
    double samples, tokens, weight, loss;
} dl_claims_medians;
dl_claims_medians dl_claims_medians_of(const dl_entry *entry, const dl_weighting *rule);

/* Return what is cut of member i of a commit: "samples", "tokens", "weight", "loss"; NULL: nothing.
 */
const char *dl_claims_what_is_cut(const dl_entry *entry, size_t i,
                                  const dl_claims_medians *medians);

#endif
