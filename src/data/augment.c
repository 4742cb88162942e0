/* augment.c - random crops and mirrored images, as usual for CIFAR-10 (He et al. 2015,
 * arXiv:1512.03385, section 4.2). One block of four words is drawn for an image: row, column,
 * mirror. So the draw of an image does not depend on those before it. */
#include "data/augment.h"

#include "base/rng.h"
#include "base/size.h"

#include <string.h>

/* Writes a row of the result from a row of the image that is shifted by `column` - pad pixels. The
 * margin is zeros; from: NULL for a row of the margin. */
static void copy_row(unsigned char *to, const unsigned char *from, size_t width, size_t pad,
                     size_t column, bool mirror)
{
    memset(to, 0, width);
    for (size_t x = 0; from && x < width; x++) {
        size_t at = x + column; /* in the image with its margin */
        if (at < pad || at - pad >= width) continue;
        to[mirror ? width - 1 - x : x] = from[at - pad];
    }
}

void dl_augment(unsigned char *to, const unsigned char *from, const dl_sample *s, size_t pad,
                bool mirror, uint64_t seed, size_t shard, uint64_t number)
{
    uint32_t draw[4];
    dl_philox(draw, seed, DL_STREAM(DL_STREAM_AUGMENT, shard), number);
    size_t places = 2 * pad + 1; /* of 2^32, so even to a part in 10^8 */
    size_t row = draw[0] % places, column = draw[1] % places;
    bool flip = mirror && draw[2] & 1;
    for (size_t c = 0; c < s->channels; c++)
        for (size_t y = 0; y < s->height; y++) {
            size_t at = y + row;
            bool inside = at >= pad && at - pad < s->height;
            const unsigned char *line =
                inside ? from + (c * s->height + at - pad) * s->width : NULL;
            copy_row(to + (c * s->height + y) * s->width, line, s->width, pad, column, flip);
        }
}
