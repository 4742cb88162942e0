/* train_stats.h - a replica's training on a fragment since the fragment's base.
 *
 * The trainer fills one record for each fragment. Capture, contribution header, member of a commit
 * and local state embed it, and none copies it field by field. A form that stores fewer fields
 * (docs/formats.md) leaves the others zero when it is read. */
#ifndef DL_LOG_TRAIN_STATS_H
#define DL_LOG_TRAIN_STATS_H

#include <stdint.h>

typedef struct dl_train_stats {
    uint64_t position;                        /* of the due point */
    uint64_t step;                            /* completed optimizer steps of the replica, in all */
    uint64_t steps, samples, tokens;          /* since the base */
    uint64_t shard, first_sample, end_sample; /* samples [first, end) of the shard */
    uint64_t holds; /* samples of a logical client's shard, its weight; else 0 */
    double loss;    /* mean over the steps since the base; NaN: not reported */
} dl_train_stats;

#endif
