/* op_image_test.c - bytes become the numbers that normalising and unfolding them gives, for fewer
 * images than were planned. */
#include "op_suite.h"

static const dl_sample sample = {.kind = DL_IMAGES,
                                 .length = 1,
                                 .channels = 2,
                                 .height = 4,
                                 .width = 3,
                                 .mean = {0.25f, 0.5f},
                                 .deviation = {0.5f, 2}};

static void build(dl_graph *g, const op_case *c)
{
    op_sink(g, dl_image(g, &sample, c->size, c->stride, c->pad).value, DL_NO_VALUE);
}

static uint8_t byte_at(size_t row, size_t channel, size_t place)
{
    return (uint8_t)(row * 101 + channel * 57 + place * 13);
}

static double number_at(size_t row, size_t channel, size_t place)
{
    return ((double)byte_at(row, channel, place) / 255 - (double)sample.mean[channel]) /
           (double)sample.deviation[channel];
}

/* The sink's sum over what torch.nn.functional.unfold would give. */
static double unfolded(const op_case *c)
{
    dl_planes pixels = {0, sample.height, sample.width, sample.channels};
    dl_window w = dl_window_over(pixels, 1, c->size, c->stride, c->pad);
    double sum = 0;
    size_t n = 0;
    for (size_t out = 0; out < dl_window_out_places(&w); out++)
        for (size_t row = 0; row < c->rows; row++)
            for (size_t channel = 0; channel < sample.channels; channel++)
                for (size_t tap = 0; tap < c->size * c->size; tap++, n++) {
                    size_t y = out / w.out_width * c->stride + tap / c->size;
                    size_t x = out % w.out_width * c->stride + tap % c->size;
                    if (y < c->pad || y - c->pad >= sample.height) continue;
                    if (x < c->pad || x - c->pad >= sample.width) continue;
                    size_t place = (y - c->pad) * sample.width + x - c->pad;
                    sum += (double)sink_factor(n) * number_at(row, channel, place);
                }
    return sum;
}

static void check_image(const op_case *c, const char *backend, int threads)
{
    op_rig r;
    uint8_t bytes[5 * 24];
    op_open(&r, c, build, backend, threads);
    CHECK_INT(24, r.graph->image_bytes);
    for (size_t i = 0; i < c->rows * 24; i++)
        bytes[i] = byte_at(i / 24, i % 24 / 12, i % 12);
    dl_backend_copy_in(r.backend, r.graph->pass.images, bytes, c->rows * 24);
    CHECK_NEAR(unfolded(c), op_run(&r, DL_EVAL, false), 1e-5);
    op_run(&r, DL_TRAIN, false); /* nothing to train */
    op_close(&r);
}

TEST(bytes_are_normalised_and_unfolded)
{
    static const op_case cases[] = {{1, 1, 1, 1, .size = 1, .stride = 1},
                                    {3, 1, 5, 1, .size = 3, .stride = 1, .pad = 1},
                                    {5, 1, 5, 1, .size = 2, .stride = 2, .pad = 1}};
    for (size_t i = 0; i < 3; i++) {
        check_image(&cases[i], "cpu", 1);
        check_image(&cases[i], "trap", 2);
    }
}

TEST_MAIN(bytes_are_normalised_and_unfolded)
