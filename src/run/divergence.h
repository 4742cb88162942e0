/* divergence.h - detects that the shared model is far worse than its members' models were. Then the
 * outer step is too long, or one of the members moved it (docs/troubleshooting.md, "divergence").
 *
 * It compares the mean loss of the first DL_DIVERGENCE_STEPS steps after an adoption with the
 * members' mean loss while they trained for that entry. A single step would be too noisy. If fewer
 * steps follow an adoption, those after the next one count as well. It warns once. */
#ifndef DL_RUN_DIVERGENCE_H
#define DL_RUN_DIVERGENCE_H

#include "base/config.h"

enum { DL_DIVERGENCE_STEPS = 10, DL_DIVERGENCE_NORMS = 1024 };

typedef struct dl_divergence {
    uint64_t entry;                  /* the adopted entry */
    double inner, lr, mu;            /* its members' loss, its outer learning rate and momentum */
    char norms[DL_DIVERGENCE_NORMS]; /* " r0 1.2 r1 3.4": the norms of its members' movements */
    double sum;                      /* of the losses after it that are not infinite */
    unsigned n_finite;               /* of them */
    unsigned left;                   /* steps still to count; 0: not comparing */
    bool warned;
} dl_divergence;

/* Appends the norm of a member, or that it is unknown if the member was not read (NaN). Cut off if
 * the text is too long. */
void dl_divergence_norm(dl_divergence *divergence, const char *replica, double norm);

/* Begins a comparison with the adopted entry in `now` (all fields but sum, n_finite, left and
 * warned). Does nothing while another comparison counts steps, or if the members reported no loss.
 */
void dl_divergence_adopt(dl_divergence *divergence, const dl_divergence *now);

/* Counts the loss of a step. An infinite one, such as of a step in float16, is left out of the
 * mean. Returns true, once, and sets `text` (of cap bytes) to the warning. */
bool dl_divergence_step(dl_divergence *divergence, double loss, char *text, size_t cap);

#endif
