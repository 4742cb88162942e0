/* op_image.c - bytes become numbers: the input of a graph whose rows are images.
 *
 *     y[place][row][channel, tap] = (u8[row][channel][s(place, tap)] / 255 - mean) / deviation
 *
 * and 0 where the tap is outside the image. With a window of size 1 these are the pixels. With a
 * larger one the taps of the first convolution are side by side, in the order of its weight. It
 * becomes a convolution of size 1 with long rows instead of one over 1 or 3 channels, whose small
 * products would have that many terms. Nothing trains before it. */
#include "nn/op_rows.h"
#include "nn/ops.h"
#include "nn/planes.h"
#include "tensor/isa.h"

#include <string.h>

typedef struct attributes {
    dl_window window;
    /* A number is byte * factor + shift: 1 / (255 deviation), and -mean / deviation. */
    float factor[DL_SAMPLE_MAX_CHANNELS], shift[DL_SAMPLE_MAX_CHANNELS];
} attributes;

dl_planes dl_image(dl_graph *g, const dl_sample *sample, size_t size, size_t stride, size_t pad)
{
    dl_planes pixels = {DL_NO_VALUE, sample->height, sample->width, sample->channels};
    size_t width = sample->channels * size * size;
    attributes a = {.window = dl_window_over(pixels, width, size, stride, pad)};
    DL_ASSERT(sample->kind == DL_IMAGES && sample->channels <= DL_SAMPLE_MAX_CHANNELS);
    DL_ASSERT(g->max_length == 1);
    for (size_t c = 0; c < sample->channels; c++) {
        a.factor[c] = 1 / (255 * sample->deviation[c]);
        a.shift[c] = -sample->mean[c] / sample->deviation[c];
    }
    g->image_bytes = dl_sample_bytes(sample);
    const dl_node *node =
        dl_graph_add(g, &dl_op_image, DL_NO_VALUE, DL_NO_VALUE, DL_NO_WEIGHT, 0, &a, sizeof a);
    return (dl_planes){node->out[0], a.window.out_height, a.window.out_width, width};
}

static const attributes *attributes_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

/* The output is constant: it has no gradient, and its consumer computes none. */
static void shape(dl_graph *g, dl_node *node)
{
    const dl_window *w = &attributes_of(node)->window;
    node->out[0] = dl_graph_value(g, dl_window_out_places(w) * w->out_channels);
    g->values[node->out[0]].constant = true;
}

/* An image as numbers, with its margin of zeros. */
static size_t padded_floats(const dl_window *w)
{
    return w->in_channels * (size_t)(w->in_height + 2 * w->pad) * (w->in_width + 2 * w->pad);
}

/* One padded image a row. */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    return g->target.max_rows * padded_floats(&attributes_of(node)->window) * sizeof(float);
}

/* Converts one image, u8[channel][height][width], to floats with a margin of `pad` zeros. As in
 * PyTorch the margin is 0 after normalization, not a byte of 0. */
static void convert(float *padded, const uint8_t *image, const attributes *a)
{
    const dl_window *w = &a->window;
    size_t pitch = w->in_width + 2 * (size_t)w->pad, height = w->in_height + 2 * (size_t)w->pad;
    memset(padded, 0, padded_floats(w) * sizeof *padded);
    for (size_t c = 0; c < w->in_channels; c++)
        for (size_t y = 0; y < w->in_height; y++) {
            float *to = padded + (c * height + y + w->pad) * pitch + w->pad;
            for (size_t x = 0; x < w->in_width; x++)
                to[x] = (float)*image++ * a->factor[c] + a->shift[c];
        }
}

/* One place of one image: all taps of all channels. `size` is the window's: a constant where it is
 * a usual one, so that a row of taps is a move or two. */
static inline DL_BODY void spread(float *to, const float *from, const dl_window *w, size_t size)
{
    size_t pitch = w->in_width + 2 * (size_t)w->pad, height = w->in_height + 2 * (size_t)w->pad;
    for (size_t c = 0; c < w->in_channels; c++, from += (height - size) * pitch)
        for (size_t i = 0; i < size; i++, from += pitch, to += size)
            memcpy(to, from, size * sizeof *to);
}

static void spread_any(float *to, const float *from, const dl_window *w)
{
    if (w->size == 1)
        spread(to, from, w, 1);
    else if (w->size == 3)
        spread(to, from, w, 3);
    else if (w->size == 5)
        spread(to, from, w, 5);
    else
        spread(to, from, w, w->size);
}

/* This part's images, place by place, in the order they are in. */
static void images(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const attributes *a = attributes_of(p->node);
    const dl_window *w = &a->window;
    size_t begin, end, rows = p->batch.rows, padded = padded_floats(w);
    size_t pitch = w->in_width + 2 * (size_t)w->pad;
    float *numbers = p->scratch, *to = dl_data(p, p->node->out[0]);
    dl_part_range(&begin, &end, rows, 1, part, n_parts);
    for (size_t row = begin; row < end; row++)
        convert(numbers + row * padded, p->graph->pass.images + row * p->graph->image_bytes, a);
    for (size_t place = 0; place < dl_window_out_places(w); place++) {
        size_t at = (place / w->out_width * pitch + place % w->out_width) * w->stride;
        for (size_t row = begin; row < end; row++)
            spread_any(to + (place * rows + row) * w->out_channels, numbers + row * padded + at, w);
    }
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, images, &copy);
}

static void backward(const dl_pass *p)
{
    (void)p; /* bytes do not train */
}

const dl_op dl_op_image = {
    .name = "image",
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch},
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
