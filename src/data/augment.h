/* augment.h - training images shifted and mirrored at random (He et al. 2015, section 4.2). */
#ifndef DL_DATA_AUGMENT_H
#define DL_DATA_AUGMENT_H

#include "base/sample.h"

#include <stdbool.h>

/* Copies an image u8[channels][height][width] as if it had a margin of `pad` zero pixels and were
 * cut back to its size at a place drawn evenly. With `mirror` it is flipped left to right half of
 * the time. The draw is a function of seed, shard and `number`, the sample's position in the
 * stream. */
void dl_augment(unsigned char *to, const unsigned char *from, const dl_sample *sample, size_t pad,
                bool mirror, uint64_t seed, size_t shard, uint64_t number);

#endif
