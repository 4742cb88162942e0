/* divergence.h - is the shared model far worse than what its members had? Then the outer step is
 * too long, or one of the members moved it (docs/troubleshooting.md, "divergence").
 *
 * Held against each other: the mean loss of the first DL_SETBACK_STEPS steps behind an adoption,
 * and the members' mean loss while they trained for that entry. One step would be too noisy; where
 * fewer are taken between two entries, those behind the next count on. Told once. */
#ifndef DL_RUN_DIVERGENCE_H
#define DL_RUN_DIVERGENCE_H

#include "base/config.h"

enum { DL_SETBACK_STEPS = 10, DL_SETBACK_NORMS = 1024 };

typedef struct dl_setback {
    uint64_t entry;               /* that was adopted, */
    double inner, lr, mu;         /* its members' loss, its outer learning rate and momentum */
    char norms[DL_SETBACK_NORMS]; /* " r0 1.2 r1 3.4": what its members moved by */
    double sum;                   /* of the losses since */
    unsigned left;                /* steps that are still to come; 0: nothing is looked at */
    bool told;
} dl_setback;

/* `norms` of a member that was not read (NaN) is said to be unknown. Cut where it is too long. */
void dl_setback_norm(dl_setback *setback, const char *replica, double norm);

/* An entry is adopted that `now` tells of (all but sum, left and told): nothing, while steps
 * behind another are looked at, or where its members told no loss. */
void dl_setback_adopt(dl_setback *setback, const dl_setback *now);

/* A step's loss. True, once: `text` (of cap bytes) says so. */
bool dl_setback_step(dl_setback *setback, double loss, char *text, size_t cap);

#endif
