/* outer_step_parts.h - one outer step in progress: shared by outer_step.c, step_discrete.c,
 * step_facts.c and step_whole.c. */
#ifndef DL_OUTER_OUTER_STEP_PARTS_H
#define DL_OUTER_OUTER_STEP_PARTS_H

#include "outer/step_scratch.h"

/* The sums of members over a fragment: G, of unit vectors, of the members as they are. One
 * member needs only the first; where all weigh the same G is the last one, scaled. */
typedef enum dl_outer_sum { SUM_G, SUM_UNIT, SUM_PLAIN } dl_outer_sum;

/* One call's arguments and what follows from them. Threads only read it while they walk; their
 * results go to scratch->rooms, scratch->sums and scratch->leaves. */
typedef struct dl_outer_walk {
    dl_fragment_state *out;
    const dl_fragment_state *in;
    const dl_outer_step_args *args;
    dl_combined *combined; /* receives G, without a step; NULL: the step uses G */
    dl_outer_scratch *scratch;
    const dl_combine_plan *plan; /* the scratch's */
    bool by_tensor;              /* coefficients differ between tensors */
    dl_fragment_shape shape;
    size_t n_f32, n_local_f32;
    size_t own; /* place of args->own among the members that are used; SIZE_MAX: not among them */
    int n_sums; /* how many of the sums are taken: 1, 2 or 3 */
} dl_outer_walk;

/* step_discrete.c: integers and booleans, on the caller's thread: combined from the members, or
 * taken from a combined update, and adopted. */
void dl_walk_combine_discrete(const dl_outer_walk *s, unsigned char *integers,
                              unsigned char *booleans);
void dl_walk_discrete(const dl_outer_walk *s);

/* step_whole.c: copies the state to `out` if it is another one, and lets the optimizer step it in
 * place with args->combined. Returns the optimizer's status. */
DL_MUST_CHECK diloco_status dl_walk_whole(dl_fragment_state *out, const dl_fragment_state *in,
                                          const dl_outer_step_args *args, dl_outer_scratch *scratch,
                                          dl_pool *pool);

/* step_facts.c */

/* Sets scratch->unit and scratch->ones, the weights of SUM_UNIT and SUM_PLAIN. Returns the smallest
 * norm other than 0, by which the unit weights are scaled; 0 if every member is zero. */
double dl_walk_unit_weights(const dl_outer_walk *s);

/* Returns how many of dl_outer_sum a walk has to take for the facts. */
int dl_walk_count_sums(const dl_combine_plan *plan);

/* Adds one number of each block, in index order, so that threads change no bit. */
double dl_walk_total(const dl_outer_walk *s, const double *sums);

/* Fills *facts after the walk; `smallest` is from dl_walk_unit_weights. Only the record has them.
 */
void dl_walk_facts(const dl_outer_walk *s, double smallest, dl_outer_step_facts *facts);

#endif
