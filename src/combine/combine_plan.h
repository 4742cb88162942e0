/* combine_plan.h - the plan of an entry's combination, before memory is walked: the members that
 * are read, and their coefficients.
 *
 *     dl_combine_plan_begin(&plan, &rule, n, rejected)   is it to be, and what is measured?
 *     ... measure, over each part: the fragment, or each of its tensors
 *     dl_combine_plan_finish(&plan, &measured)           coefficients
 *
 * Pure, on one thread, the same bits everywhere. */
#ifndef DL_COMBINE_COMBINE_PLAN_H
#define DL_COMBINE_COMBINE_PLAN_H

#include "base/arena.h"
#include "combine/combine.h"

/* A plan's own room. */
typedef struct dl_combine_scratch {
    double *whole, *previous, *inputs_gram, *inputs_previous, *norm2, *c, *room;
    float *mix;
    size_t *order, *chosen;
} dl_combine_scratch;

typedef struct dl_combine_plan {
    dl_combine_rule rule;        /* for the members that are left (dl_combine_after) */
    const dl_combiner *combiner; /* that is applied: the rule's, or the mean it fell back to */
    bool fell_back;
    size_t tolerated; /* how many hostile members it bears */
    dl_measure measure;
    size_t n_members, n_parts;
    size_t n_rows; /* of a dot product matrix: the members, and after them the previous update */

    size_t n_used; /* members that are read, ascending: */
    size_t *used;  /* [n_used] */
    /* Linear: coef[part * n_used + u]. By element: the inputs are the members used, or, where
     * they are `mixed`, input i is the sum over u of coef[i * n_used + u]. */
    float *coef;
    const float *averaged_coef; /* [n_used] of what no optimizer moves and no update is kept of */
    float previous_coef;        /* of the previous update, where the combiner keeps it */
    float scale;                /* of what a combiner by element gives */
    bool mixed;
    size_t n_inputs;

    double *gram; /* [n_parts][n_rows * n_rows], for the measuring walk: the lower triangle */

    dl_combine_scratch scratch;
} dl_combine_plan;

/* Take the plan's arrays from an arena (measuring: none); max_parts parts at most. */
void dl_combine_plan_layout(dl_combine_plan *plan, dl_arena *arena, const dl_combine_rule *rule,
                            size_t max_members, size_t max_parts);

/* n_rejected members beside these count against the rule's f (dl_combine_after). DILOCO_ENUMERIC:
 * so few members cannot be combined, and the rule does not fall back. */
DL_MUST_CHECK diloco_status dl_combine_plan_begin(dl_combine_plan *plan,
                                                  const dl_combine_rule *rule, size_t n_members,
                                                  size_t n_rejected);

typedef struct dl_combine_measured {
    const float *weight;  /* [n_members] */
    const double *norm2;  /* [n_members] over the fragment */
    size_t n_parts;       /* 1, or the fragment's tensors with DL_MEASURE_TENSORS; */
    const bool *plain;    /* [n_parts] these take the weighted mean whatever the rule */
    uint64_t bucket_seed; /* of bucketing's shuffle */
} dl_combine_measured;

/* plan->gram was filled where plan->measure asks for it. */
void dl_combine_plan_finish(dl_combine_plan *plan, const dl_combine_measured *measured);

/* The same where the rule rescales the result of a combiner by element: own2 is the square of its
 * norm.
 */
void dl_combine_plan_rescale(dl_combine_plan *plan, const double *norm2, double own2);

/* Without combining: measure into plan->gram between the two, where the rule is checked; else the
 * members' norms are all that is asked for. */
void dl_combine_plan_measure(dl_combine_plan *plan, const dl_combine_rule *rule, size_t n_members);
const double *dl_combine_plan_measured(dl_combine_plan *plan);

/* The dot products over the fragment, [n_members * n_members]; NULL when nothing was measured. */
const double *dl_combine_plan_gram(const dl_combine_plan *plan);

#endif
