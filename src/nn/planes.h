/* planes.h - images inside a graph, and the windows that slide over them.
 *
 *     f32[height][width][rows][channels]      max_length is 1; a value's width is h * w * c
 *
 * The place in the image comes first, then the image, and channels are adjacent. So the values
 * under one tap of a kernel are a matrix [rows][channels] without gaps, whatever the stride and the
 * padding. A convolution is a sum of small matrix products over the taps inside the image, without
 * copies. Pooling compares or adds whole such matrices. With one place ([1][1][rows][channels]) it
 * is an ordinary value. */
#ifndef DL_NN_PLANES_H
#define DL_NN_PLANES_H

#include "base/size.h"
#include "base/status.h"

typedef struct dl_planes {
    int value; /* of the graph */
    size_t height, width, channels;
} dl_planes;

/* They bound the lists of taps, which are on the stack. */
enum { DL_WINDOW_MAX = 11, DL_WINDOW_MAX_TAPS = DL_WINDOW_MAX * DL_WINDOW_MAX };

/* A square window over planes: the attributes of convolution and pooling. Tap (i, j) of output
 * place (y, x) is at input place (y * stride + i - pad, x * stride + j - pad). */
typedef struct dl_window {
    uint32_t in_height, in_width, in_channels;
    uint32_t out_height, out_width, out_channels;
    uint32_t size, stride, pad; /* size <= DL_WINDOW_MAX, pad < size, stride > 0 */
} dl_window;

static inline size_t dl_window_in_places(const dl_window *w)
{
    return (size_t)w->in_height * w->in_width;
}
static inline size_t dl_window_out_places(const dl_window *w)
{
    return (size_t)w->out_height * w->out_width;
}
static inline size_t dl_window_taps(const dl_window *w)
{
    return (size_t)w->size * w->size;
}

/* Where a window of this size stops, as in PyTorch: windows that would end outside are left out.
 * One that fits nowhere is the model's bug. */
static inline dl_window dl_window_over(dl_planes x, size_t out_channels, size_t size, size_t stride,
                                       size_t pad)
{
    DL_ASSERT(size >= 1 && size <= DL_WINDOW_MAX && pad < size && stride >= 1);
    DL_ASSERT(x.height + 2 * pad >= size && x.width + 2 * pad >= size);
    return (dl_window){.in_height = (uint32_t)x.height,
                       .in_width = (uint32_t)x.width,
                       .in_channels = (uint32_t)x.channels,
                       .out_height = (uint32_t)((x.height + 2 * pad - size) / stride + 1),
                       .out_width = (uint32_t)((x.width + 2 * pad - size) / stride + 1),
                       .out_channels = (uint32_t)out_channels,
                       .size = (uint32_t)size,
                       .stride = (uint32_t)stride,
                       .pad = (uint32_t)pad};
}

/* Sets the taps [*begin, *end) of output coordinate `at` that are inside an input of `length`. The
 * subtraction does not wrap: a window ends inside the padded input, and pad < size. */
static inline void dl_window_inside(uint32_t *begin, uint32_t *end, const dl_window *w, uint32_t at,
                                    uint32_t length)
{
    uint32_t first = at * w->stride; /* of the padded input */
    *begin = first < w->pad ? w->pad - first : 0;
    *end = length + w->pad - first < w->size ? length + w->pad - first : w->size;
}

/* A tap and its place (or, seen from the input, the place it comes from). */
typedef struct dl_tap {
    uint32_t tap, place;
} dl_tap;

/* Writes the taps of output place `out` that are inside the image, in order. Returns their number.
 */
size_t dl_window_list(dl_tap taps[DL_WINDOW_MAX_TAPS], const dl_window *w, size_t out);
/* Writes the taps at input place `in`, with their output places, in order. Returns their number. */
size_t dl_window_list_back(dl_tap taps[DL_WINDOW_MAX_TAPS], const dl_window *w, size_t in);

#endif
