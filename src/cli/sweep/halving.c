/* halving.c - how many candidates and steps each rung has. The formulas are exact integers, so a
 * repeated command has the same rungs.
 *
 * Rung r of n trains each of its candidates for steps / 3^(n - 1 - r) steps. Every rung thus costs
 * about as many steps as the last one, which is what makes successive halving cheap. */
#include "cli/sweep/halving.h"

#include "base/size.h"

#include <inttypes.h>

/* Round down to a multiple, and up to the least number of rounds. */
static uint64_t rounded(uint64_t steps, uint64_t multiple)
{
    const uint64_t least = DL_HALVING_MIN_ROUNDS * multiple;
    return steps < least ? least : steps / multiple * multiple;
}

/* The number of rungs follows from the candidates; the last has all steps, and each one before
 * it a third. */
diloco_status dl_halving_plan(dl_halving *out, size_t candidates, uint64_t steps, uint64_t multiple)
{
    uint64_t divisor = 1;
    *out = (dl_halving){.n = 1};
    if (steps / multiple < DL_HALVING_MIN_ROUNDS)
        return dl_fail(DILOCO_EINVAL,
                       "%" PRIu64 " steps are fewer than %d rounds of %" PRIu64
                       " steps, the common multiple of all values of "
                       "trainer.local_steps_per_round: take more steps, or other values",
                       steps, DL_HALVING_MIN_ROUNDS, multiple);
    /* One rung for each division by the factor, until at most three candidates are left. */
    for (size_t c = candidates; c > DL_HALVING_FACTOR && out->n < DL_HALVING_RUNGS; out->n++)
        c = (c + DL_HALVING_FACTOR - 1) / DL_HALVING_FACTOR;
    /* From the last rung, which has all steps, back to the first. */
    for (size_t r = out->n; r-- > 0; divisor *= DL_HALVING_FACTOR)
        out->rungs[r].steps = rounded(steps / divisor, multiple);
    for (size_t r = 0; r < out->n; r++) {
        out->rungs[r].candidates = candidates;
        candidates = (candidates + DL_HALVING_FACTOR - 1) / DL_HALVING_FACTOR;
    }
    return DILOCO_OK;
}
