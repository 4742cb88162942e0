/* tune.h - the candidates of a search for better settings: arms of a sweep around a configuration.
 *
 * Arm 0 has the configuration's own values, so every search compares with them. */
#ifndef DL_CLI_SWEEP_TUNE_H
#define DL_CLI_SWEEP_TUNE_H

#include "cli/sweep/halving.h"
#include "cli/sweep/sweep.h"

/* The most candidates of a search; then the defaults of --trials (27, which makes rungs of 27, 9
 * and 3 candidates) and of --seeds. */
enum { DL_TUNE_MAX_CANDIDATES = 1000, DL_TUNE_CANDIDATES = 27, DL_TUNE_SEEDS = 3 };

/* Seeds of a search begin so far above the configuration's, which runs compared later may use. */
enum { DL_TUNE_SEED_OFFSET = 1000 };

/* A search: its candidates and rungs. It is large, so it is on the heap. */
typedef struct dl_tune {
    dl_config own;                       /* the configuration itself */
    dl_sweep grid;                       /* the arms around it */
    size_t arms[DL_TUNE_MAX_CANDIDATES]; /* of the grid; the first is 0 */
    size_t n, n_refused; /* candidates; arms left out because a check refuses them */
    dl_halving halving;
    uint64_t whole_steps; /* of a replica in the configuration's own run */
    uint64_t seed;        /* of all rungs but the last, which has the n_seeds after it */
    uint64_t n_seeds;
    double max_sent; /* bytes of a replica in its whole run; 0: any */
} dl_tune;

/* dl_tune_read plans a search from --set-values (default: learning rates, outer momentum and H
 * around the configuration's), --trials, --steps, --seeds, --max-sent and the settings of the
 * target. If there are more arms than --trials, candidates are drawn by the seed. An arm of the
 * default grid that a check refuses is left out. Returns DILOCO_EINVAL or DILOCO_EREFUSED as
 * dl_sweep_read does, and for swept trainer.rounds, too few steps, or an arm of --set-values that a
 * check refuses. */
DL_MUST_CHECK diloco_status dl_tune_read(dl_tune *out, const dl_args *args);

/* dl_tune_config writes the settings of a candidate's trial of `steps` steps; 0: the steps that the
 * settings give. It changes tune->grid.steps. Errors are those of dl_sweep_config. */
DL_MUST_CHECK diloco_status dl_tune_config(dl_config *out, dl_tune *tune, const dl_args *args,
                                           size_t arm, uint64_t steps, uint64_t seed);

/* dl_tune_whole_rounds returns the rounds of a whole run with H = local_steps > 0. Rounded up, they
 * have at least as many steps as the configuration's own run. */
uint64_t dl_tune_whole_rounds(const dl_tune *tune, int64_t local_steps);

#endif
