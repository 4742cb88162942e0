/* outer_step.h - the central pure function: state(e+1) of one fragment from state(e), the checked
 * contributions and the entry's numbers. It walks memory once (twice, where the combiner measures
 * the members before).
 *
 * For each piece of 1 MiB, on some thread, for each block of 4096 in it: decode every member,
 * combine, outer step, adopt, measure, hash. Equal bits on every machine, at any number of
 * threads. Allocates nothing. */
#ifndef DL_OUTER_OUTER_STEP_H
#define DL_OUTER_OUTER_STEP_H

#include "outer/step_args.h"

/* Computes out = step(in); out and in may be the same state. Returns DILOCO_ENUMERIC if a result is
 * not finite (the text names tensor and element), or if the rule refuses that few members. Such an
 * entry is aborted, and a committed one is void. Also returns the status of a caller's own
 * optimizer. `in` is intact when out is another state. A replica that wants to create an entry
 * computes into another state, without `local`, and adopts when the entry is committed. A replica
 * that reads a committed entry (its result is finite, or it is void) gives `local` and walks memory
 * once. */
DL_MUST_CHECK diloco_status dl_outer_step(dl_fragment_state *out, const dl_fragment_state *in,
                                          const dl_outer_step_args *args,
                                          dl_outer_step_facts *facts, dl_outer_scratch *scratch,
                                          dl_pool *pool);

/* Whether a range of elements can be combined by itself. ALONE: yes. MEASURED: after every range
 * has been measured. NO: the rule also needs the norm of the whole result. */
typedef enum dl_cutting { DL_CUT_NO, DL_CUT_ALONE, DL_CUT_MEASURED } dl_cutting;
dl_cutting dl_outer_cutting(const dl_combine_rule *rule);

/* Measures the members in one slice, as the rule needs it: each one's norm2, which args->members
 * have of the slice, and the dot products. args: members, form, fragment, and the slice's first and
 * count. Writes dl_outer_n_measures numbers, a function of the rule, the form and n_members.
 * Returns DILOCO_ENUMERIC if the rule refuses that few members. */
size_t dl_outer_n_measures(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice);
DL_MUST_CHECK diloco_status dl_outer_measure(double *out, const dl_fragment_state *in,
                                             const dl_outer_step_args *args,
                                             dl_outer_scratch *scratch, dl_pool *pool);

/* Runs the first half of the step: combines the members, or a part of the elements (args.count).
 * Facts are of that part alone. A step with args.combined set to the result gives the same bits as
 * one with the members. Returns DILOCO_ENUMERIC if the rule refuses that few members. */
DL_MUST_CHECK diloco_status dl_outer_combine(dl_combined *out, const dl_fragment_state *in,
                                             const dl_outer_step_args *args,
                                             dl_outer_step_facts *facts, dl_outer_scratch *scratch,
                                             dl_pool *pool);

/* The dot products of the members alone: [n_members^2], in the scratch until its next use, whose
 * rule says that it is checked. Of args the members, their form and where they belong count. */
const double *dl_outer_gram(const dl_outer_step_args *args, dl_outer_scratch *scratch,
                            dl_pool *pool);

/* The same slice by slice, as dl_outer_measure does for the rule: each member's norm2, and the dot
 * products where the rule says that it is checked. dl_outer_compared makes *norm2 and the dot
 * products, or NULL, from args->measured of all slices in order. They have the same bits as a
 * measurement of the whole. */
size_t dl_outer_n_compared(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice);
void dl_outer_compare(double *out, const dl_outer_step_args *args, dl_outer_scratch *scratch,
                      dl_pool *pool);
const double *dl_outer_compared(const double **norm2, const dl_outer_step_args *args,
                                dl_outer_scratch *scratch);

#endif
