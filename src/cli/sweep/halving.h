/* halving.h - the rungs of a search by successive halving (Karnin, Koren and Somekh 2013; Jamieson
 * and Talwalkar, arXiv:1502.07943).
 *
 * The first rung trains all candidates for few steps. The next rung trains the better third of them
 * for three times as many steps, from the beginning. A schedule of the learning rate depends on the
 * number of steps, so a shorter run is not the start of a longer one.
 * The last rung has at most three candidates and all steps. */
#ifndef DL_CLI_SWEEP_HALVING_H
#define DL_CLI_SWEEP_HALVING_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* The share that is promoted, rungs at most, and rounds of the shortest trial. */
enum { DL_HALVING_FACTOR = 3, DL_HALVING_RUNGS = 16, DL_HALVING_MIN_ROUNDS = 2 };

/* One rung: all its candidates train for equally many steps, from the beginning. */
typedef struct dl_rung {
    size_t candidates; /* that begin in it */
    uint64_t steps;    /* of a replica */
} dl_rung;

/* All rungs, the first with the most candidates and the fewest steps. */
typedef struct dl_halving {
    dl_rung rungs[DL_HALVING_RUNGS];
    size_t n; /* rungs */
} dl_halving;

/* dl_halving_plan writes the rungs for `candidates` > 0 and `steps` of a replica in the last one.
 * The steps of each rung are a multiple of `multiple` > 0, rounded down, and at least
 * DL_HALVING_MIN_ROUNDS of it. Returns DILOCO_EINVAL if `steps` are fewer than that. */
DL_MUST_CHECK diloco_status dl_halving_plan(dl_halving *out, size_t candidates, uint64_t steps,
                                            uint64_t multiple);

#endif
