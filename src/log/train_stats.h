/* train_stats.h - a replica's training on a fragment since the fragment's base.
 *
 * The trainer fills one record for each fragment. Capture, contribution header, member of a commit
 * and local state embed it, and none copies it field by field. A form that stores fewer fields
 * (docs/formats.md) leaves the others zero when it is read. */
#ifndef DL_LOG_TRAIN_STATS_H
#define DL_LOG_TRAIN_STATS_H

#include <math.h>
#include <stdint.h>

typedef struct dl_train_stats {
    uint64_t position;                        /* of the due point */
    uint64_t step;                            /* completed optimizer steps of the replica, in all */
    uint64_t steps, samples, tokens;          /* since the base */
    uint64_t shard, first_sample, end_sample; /* samples [first, end) of the shard */
    uint64_t holds; /* samples of a logical client's shard, its weight; else 0 */
    double loss;    /* mean over the steps since the base; NaN: not reported */
} dl_train_stats;

/* Returns the mean loss of the steps, whose sum is given. NaN: there is no step, or the sum is
 * infinite. Readers refuse a contribution with an infinite loss. */
static inline double dl_mean_loss(double sum, uint64_t steps)
{
    return steps && isfinite(sum) ? sum / (double)steps : NAN;
}

/* The most that a replica can have trained since its base. */
typedef struct dl_train_bounds {
    uint64_t since; /* first position at which it can have had the base */
    uint64_t due;   /* position of the due point; 0: nothing is known */
    uint64_t steps; /* most optimizer steps since the base */
} dl_train_bounds;

#endif
