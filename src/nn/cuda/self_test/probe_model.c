/* probe_model.c - products, embedding, norm, activation and loss against their formulas in float64.
 *
 * The formulas are those of nn/op_*.c; tests compare both with each other through whole models. */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/cuda/start.h"
#include "tensor/cuda/cuda_kernel.h"
#include "tensor/widths.h"

#include <math.h>
#include <string.h>

/* Roundings of f32 in sums of some dozens of terms, of the largest result. */
static const double ROUNDINGS = 2e-5;
enum { WIDTH = 37, POSITIONS = 11, WIDE = 303, LONG = 2 * DL_CUDA_CHUNK + 3 };

/* ---- products */

typedef struct layout {
    size_t m, n;
    bool a_transposed, b_transposed, bias, add;
    bool f32; /* C, whatever A and B are */
} layout;

static diloco_status product(dl_probe *p, layout l)
{
    const size_t m = l.m, n = l.n, k = 37;
    dl_probe_begin(p);
    float *c = l.add ? dl_probe_change(p, m * n, ROUNDINGS) : dl_probe_output(p, m * n, ROUNDINGS);
    float *a = dl_probe_input(p, m * k), *b = dl_probe_input(p, k * n);
    const float *bias = dl_probe_input(p, n);
    dl_probe_values(p, a), dl_probe_values(p, b);
    if (!l.f32) dl_probe_values(p, c);
    const dl_cuda_product_arguments args = {.c = DL_PROBE_AT(p, c),
                                            .a = DL_PROBE_AT(p, a),
                                            .b = DL_PROBE_AT(p, b),
                                            .bias = l.bias ? DL_PROBE_AT(p, bias) : NULL,
                                            .m = m,
                                            .n = n,
                                            .k = k,
                                            .a_row = l.a_transposed ? 1 : k,
                                            .a_column = l.a_transposed ? m : 1,
                                            .b_row = l.b_transposed ? 1 : n,
                                            .b_column = l.b_transposed ? k : 1,
                                            .add = l.add};
    dl_probe_run(p, dl_cuda_product_threads(&args), &args, sizeof args);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = l.bias ? (double)bias[j] : 0;
            for (size_t e = 0; e < k; e++)
                sum += (double)a[i * args.a_row + e * args.a_column] *
                       (double)b[e * args.b_row + j * args.b_column];
            c[i * n + j] = (float)(l.add ? (double)c[i * n + j] + sum : sum);
        }
    return dl_probe_compare(p);
}

diloco_status dl_probe_product(dl_probe *p)
{
    DL_TRY(product(p, (layout){19, 23, .b_transposed = true, .bias = true}));
    DL_TRY(product(p, (layout){19, 23, .a_transposed = true, .add = true}));
    return product(p, (layout){DL_CUDA_SIDE + 3, 2 * DL_CUDA_SIDE + 1, .add = false});
}

/* A and B are bf16: the probe is as for a kernel of bf16, whose name has another end. */
diloco_status dl_probe_product_bf16_to_f32(dl_probe *p)
{
    p->bf16 = true;
    DL_TRY(product(p, (layout){19, 23, .a_transposed = true, .add = true, .f32 = true}));
    return product(p, (layout){DL_CUDA_SIDE + 3, 2 * DL_CUDA_SIDE + 1, .f32 = true});
}

/* Values between two numbers of bf16, ties, the largest, and what is not finite. */
diloco_status dl_probe_round_weights(dl_probe *p)
{
    enum { N = 517 };
    static const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f807fff, 0xbf808001, 0x7f7fffff,
                                    0x7f800000, 0xff800001, 0x00008000, 0x80018000, 0};
    float *from = dl_probe_input(p, N);
    unsigned char *to = dl_probe_bytes(p, 2 * (size_t)N);
    const dl_cuda_round_arguments a = {DL_PROBE_AT(p, to), DL_PROBE_AT(p, from), N};
    memcpy(from + 100, bits, sizeof bits);
    dl_probe_run(p, N, &a, sizeof a);
    dl_narrow(to, from, N, "BF16");
    return dl_probe_compare(p);
}

diloco_status dl_probe_bias_gradient(dl_probe *p)
{
    for (int add = 0; add < 2; add++) {
        dl_probe_begin(p);
        float *db = add ? dl_probe_change(p, WIDE, ROUNDINGS) : dl_probe_output(p, WIDE, ROUNDINGS);
        const float *dy = dl_probe_values(p, dl_probe_input(p, (size_t)POSITIONS * WIDE));
        const dl_cuda_bias_arguments a = {DL_PROBE_AT(p, db), DL_PROBE_AT(p, dy), POSITIONS, WIDE,
                                          add};
        dl_probe_run(p, WIDE, &a, sizeof a);
        for (size_t c = 0; c < WIDE; c++) {
            double sum = add ? (double)db[c] : 0;
            for (size_t i = 0; i < POSITIONS; i++)
                sum += (double)dy[i * WIDE + c];
            db[c] = (float)sum;
        }
        DL_TRY(dl_probe_compare(p));
    }
    return DILOCO_OK;
}

/* ---- embedding */

static int32_t *tokens_below(dl_probe *p, size_t n, size_t rows)
{
    int32_t *tokens = dl_probe_bytes(p, n * sizeof *tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((i * i + 3 * i + 1) % rows);
    return tokens;
}

diloco_status dl_probe_embedding_forward(dl_probe *p)
{
    enum { ROWS = 17 };
    float *table = dl_probe_input(p, ROWS * WIDTH);
    float *x = dl_probe_values(p, dl_probe_output(p, POSITIONS * WIDTH, 0));
    const int32_t *tokens = tokens_below(p, POSITIONS, ROWS);
    const dl_cuda_embedding_arguments a = {.table = DL_PROBE_AT(p, table),
                                           .x = DL_PROBE_AT(p, x),
                                           .tokens = DL_PROBE_AT(p, tokens),
                                           .positions = POSITIONS,
                                           .width = WIDTH,
                                           .rows = ROWS};
    dl_probe_run(p, POSITIONS * WIDTH, &a, sizeof a);
    for (size_t i = 0; i < POSITIONS; i++)
        memcpy(x + i * WIDTH, table + (size_t)tokens[i] * WIDTH, WIDTH * sizeof *x);
    return dl_probe_compare(p);
}

diloco_status dl_probe_embedding_backward(dl_probe *p)
{
    enum { ROWS = 2 * DL_CUDA_ROWS + 3, CHANNELS = 5 };
    for (int add = 0; add < 2; add++) {
        dl_probe_begin(p);
        float *table = add ? dl_probe_change(p, (size_t)ROWS * CHANNELS, 0)
                           : dl_probe_output(p, (size_t)ROWS * CHANNELS, 0);
        float *x = dl_probe_values(p, dl_probe_input(p, (size_t)LONG * CHANNELS));
        const int32_t *tokens = tokens_below(p, LONG, ROWS);
        const dl_cuda_embedding_arguments a = {.table = DL_PROBE_AT(p, table),
                                               .x = DL_PROBE_AT(p, x),
                                               .tokens = DL_PROBE_AT(p, tokens),
                                               .positions = LONG,
                                               .width = CHANNELS,
                                               .rows = ROWS,
                                               .add = add};
        dl_probe_run(p, (size_t)3 * DL_GPU_THREADS, &a, sizeof a);
        for (size_t e = 0; !add && e < (size_t)ROWS * CHANNELS; e++)
            table[e] = 0;
        for (size_t i = 0; i < LONG; i++)
            for (size_t c = 0; c < CHANNELS; c++)
                table[(size_t)tokens[i] * CHANNELS + c] += x[i * CHANNELS + c];
        DL_TRY(dl_probe_compare(p));
    }
    return DILOCO_OK;
}

/* ---- norm */

static double mean_of_squares(const float *s, size_t n)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += (double)s[c] * (double)s[c];
    return sum / (double)n;
}

static const float NORM_EPS = 1e-3f;

static diloco_status norm_forward(dl_probe *p, bool with_delta)
{
    enum { N = POSITIONS * WIDTH };
    dl_probe_begin(p);
    float *x = dl_probe_input(p, N), *s = with_delta ? dl_probe_output(p, N, ROUNDINGS) : x;
    float *delta = dl_probe_input(p, N), *weight = dl_probe_input(p, WIDTH);
    float *y = dl_probe_output(p, N, ROUNDINGS), *r = dl_probe_output(p, POSITIONS, ROUNDINGS);
    dl_probe_values(p, x), dl_probe_values(p, s), dl_probe_values(p, delta), dl_probe_values(p, y);
    const dl_cuda_norm_arguments a = {.s = DL_PROBE_AT(p, s),
                                      .y = DL_PROBE_AT(p, y),
                                      .r = DL_PROBE_AT(p, r),
                                      .x = DL_PROBE_AT(p, x),
                                      .delta = with_delta ? DL_PROBE_AT(p, delta) : NULL,
                                      .weight = DL_PROBE_AT(p, weight),
                                      .positions = POSITIONS,
                                      .width = WIDTH,
                                      .eps = NORM_EPS};
    dl_probe_run(p, (size_t)POSITIONS * DL_CUDA_WARP, &a, sizeof a);
    for (size_t i = 0; with_delta && i < N; i++)
        s[i] = x[i] + delta[i];
    dl_probe_round(p, s, N); /* the norm is of what is stored */
    for (size_t i = 0; i < POSITIONS; i++) {
        r[i] = (float)(1 / sqrt(mean_of_squares(s + i * WIDTH, WIDTH) + (double)NORM_EPS));
        for (size_t c = 0; c < WIDTH; c++)
            y[i * WIDTH + c] = s[i * WIDTH + c] * r[i] * weight[c];
    }
    return dl_probe_compare(p);
}

diloco_status dl_probe_norm_forward(dl_probe *p)
{
    DL_TRY(norm_forward(p, true));
    return norm_forward(p, false);
}

diloco_status dl_probe_norm_backward(dl_probe *p)
{
    enum { N = POSITIONS * WIDTH };
    for (int adds = 0; adds < 2; adds++) {
        dl_probe_begin(p);
        float *ds = adds ? dl_probe_change(p, N, ROUNDINGS) : dl_probe_output(p, N, ROUNDINGS);
        float *s = dl_probe_input(p, N), *dy = dl_probe_input(p, N);
        float *r = dl_probe_input(p, POSITIONS), *w = dl_probe_input(p, WIDTH);
        dl_probe_values(p, ds), dl_probe_values(p, s), dl_probe_values(p, dy);
        const dl_cuda_norm_arguments a = {.s = DL_PROBE_AT(p, s),
                                          .r = DL_PROBE_AT(p, r),
                                          .weight = DL_PROBE_AT(p, w),
                                          .dy = DL_PROBE_AT(p, dy),
                                          .ds = DL_PROBE_AT(p, ds),
                                          .positions = POSITIONS,
                                          .width = WIDTH,
                                          .ds_adds = adds};
        dl_probe_run(p, (size_t)POSITIONS * DL_CUDA_WARP, &a, sizeof a);
        for (size_t i = 0; i < POSITIONS; i++) {
            const double scale = (double)r[i];
            double dot = 0;
            for (size_t c = 0; c < WIDTH; c++)
                dot += (double)dy[i * WIDTH + c] * (double)s[i * WIDTH + c] * (double)w[c];
            for (size_t c = 0, at = i * WIDTH; c < WIDTH; c++, at++)
                ds[at] =
                    (float)((adds ? (double)ds[at] : 0) + scale * (double)w[c] * (double)dy[at] -
                            scale * scale * scale * dot / WIDTH * (double)s[at]);
        }
        DL_TRY(dl_probe_compare(p));
    }
    return DILOCO_OK;
}

diloco_status dl_probe_norm_partial(dl_probe *p)
{
    enum { CHANNELS = 101, CHUNKS = 3 };
    float *partial = dl_probe_output(p, (size_t)CHUNKS * CHANNELS, ROUNDINGS);
    float *s = dl_probe_input(p, (size_t)LONG * CHANNELS);
    float *dy = dl_probe_input(p, (size_t)LONG * CHANNELS), *r = dl_probe_input(p, LONG);
    dl_probe_values(p, s), dl_probe_values(p, dy);
    const dl_cuda_norm_arguments a = {.s = DL_PROBE_AT(p, s),
                                      .r = DL_PROBE_AT(p, r),
                                      .dy = DL_PROBE_AT(p, dy),
                                      .partial = DL_PROBE_AT(p, partial),
                                      .positions = LONG,
                                      .width = CHANNELS};
    dl_probe_run(p, (size_t)CHUNKS * CHANNELS, &a, sizeof a);
    for (size_t k = 0; k < CHUNKS; k++)
        for (size_t c = 0; c < CHANNELS; c++) {
            double sum = 0;
            for (size_t i = k * DL_CUDA_CHUNK; i < LONG && i < (k + 1) * DL_CUDA_CHUNK; i++)
                sum += (double)dy[i * CHANNELS + c] * (double)s[i * CHANNELS + c] * (double)r[i];
            partial[k * CHANNELS + c] = (float)sum;
        }
    return dl_probe_compare(p);
}

diloco_status dl_probe_norm_weight(dl_probe *p)
{
    enum { CHUNKS = 3 };
    for (int adds = 0; adds < 2; adds++) {
        dl_probe_begin(p);
        float *dw =
            adds ? dl_probe_change(p, WIDE, ROUNDINGS) : dl_probe_output(p, WIDE, ROUNDINGS);
        float *partial = dl_probe_input(p, (size_t)CHUNKS * WIDE);
        const dl_cuda_norm_arguments a = {.partial = DL_PROBE_AT(p, partial),
                                          .dw = DL_PROBE_AT(p, dw),
                                          .positions = LONG,
                                          .width = WIDE,
                                          .dw_adds = adds};
        dl_probe_run(p, WIDE, &a, sizeof a);
        for (size_t c = 0; c < WIDE; c++) {
            double sum = adds ? (double)dw[c] : 0;
            for (size_t k = 0; k < CHUNKS; k++)
                sum += (double)partial[k * WIDE + c];
            dw[c] = (float)sum;
        }
        DL_TRY(dl_probe_compare(p));
    }
    return DILOCO_OK;
}

/* ---- swiglu */

diloco_status dl_probe_swiglu_forward(dl_probe *p)
{
    float *x = dl_probe_input(p, (size_t)POSITIONS * 2 * WIDTH);
    float *y = dl_probe_output(p, POSITIONS * WIDTH, ROUNDINGS);
    dl_probe_values(p, x), dl_probe_values(p, y);
    const dl_cuda_swiglu_arguments a = {DL_PROBE_AT(p, x), DL_PROBE_AT(p, y), NULL, POSITIONS,
                                        WIDTH};
    dl_probe_run(p, POSITIONS * WIDTH, &a, sizeof a);
    for (size_t i = 0; i < POSITIONS * WIDTH; i++) {
        const float *g = x + i / WIDTH * 2 * WIDTH + i % WIDTH;
        y[i] = (float)((double)g[0] / (1 + exp(-(double)g[0])) * (double)g[WIDTH]);
    }
    return dl_probe_compare(p);
}

diloco_status dl_probe_swiglu_backward(dl_probe *p)
{
    float *x = dl_probe_change(p, (size_t)POSITIONS * 2 * WIDTH, ROUNDINGS);
    float *dy = dl_probe_input(p, POSITIONS * WIDTH);
    dl_probe_values(p, x), dl_probe_values(p, dy);
    const dl_cuda_swiglu_arguments a = {DL_PROBE_AT(p, x), NULL, DL_PROBE_AT(p, dy), POSITIONS,
                                        WIDTH};
    dl_probe_run(p, POSITIONS * WIDTH, &a, sizeof a);
    for (size_t i = 0; i < POSITIONS * WIDTH; i++) {
        float *g = x + i / WIDTH * 2 * WIDTH + i % WIDTH;
        const double gate = (double)g[0], s = 1 / (1 + exp(-gate)), d = (double)dy[i];
        const double dg = d * (double)g[WIDTH] * (s + gate * s * (1 - s));
        g[WIDTH] = (float)(d * gate * s);
        g[0] = (float)dg;
    }
    return dl_probe_compare(p);
}

/* ---- loss */

/* Softmax of one position and its gradient, which may be written over x, as nn/softmax.h. */
static void softmax(float *dx, const float *x, dl_cuda_loss *loss, int32_t target,
                    const dl_cuda_loss_arguments *a)
{
    const size_t vocab = (size_t)a->vocab, right = (size_t)target;
    double top = -INFINITY, sum = 0;
    size_t best = 0;
    *loss = (dl_cuda_loss){0};
    for (size_t c = 0; c < vocab; c++) {
        if ((double)x[c] > top) best = c;
        top = fmax(top, (double)x[c]);
    }
    for (size_t c = 0; c < vocab; c++)
        sum += exp((double)x[c] - top);
    const double lse = top + log(sum);
    if (target >= 0) *loss = (dl_cuda_loss){(float)(lse - (double)x[right]), best == right};
    for (size_t c = 0; c < vocab; c++) {
        const double share = exp((double)x[c] - lse) * (1 + 2 * (double)a->z_loss * lse);
        dx[c] = target < 0 ? 0 : (float)((double)a->gain * (share - (c == right)));
    }
}

diloco_status dl_probe_softmax_of_logits(dl_probe *p)
{
    float *logits = dl_probe_change(p, POSITIONS * WIDTH, ROUNDINGS), *gradient = logits;
    if (p->bf16) gradient = dl_probe_values(p, dl_probe_output(p, POSITIONS * WIDTH, ROUNDINGS));
    int32_t *targets = tokens_below(p, POSITIONS, WIDTH);
    dl_cuda_loss *losses = (void *)dl_probe_each(p, (size_t)POSITIONS * 2, 1e-5);
    targets[4] = -1;
    logits[5 * WIDTH + (size_t)targets[5]] = 3; /* the likeliest */
    const dl_cuda_loss_arguments a = {.logits = DL_PROBE_AT(p, logits),
                                      .gradient = DL_PROBE_AT(p, gradient),
                                      .targets = DL_PROBE_AT(p, targets),
                                      .losses = DL_PROBE_AT(p, losses),
                                      .n = POSITIONS,
                                      .vocab = WIDTH,
                                      .gain = 0.25f,
                                      .z_loss = 0.01f};
    dl_probe_run(p, (size_t)POSITIONS * DL_CUDA_WARP, &a, sizeof a);
    for (size_t i = 0; i < POSITIONS; i++)
        softmax(gradient + i * WIDTH, logits + i * WIDTH, &losses[i], targets[i], &a);
    return dl_probe_compare(p);
}

/* Each thread of the block has several positions, or one less. Sums of these losses are exact in
 * any order. */
diloco_status dl_probe_add_to_tally(dl_probe *p)
{
    enum { N = 2 * DL_GPU_THREADS + 77 };
    double *loss = dl_probe_bytes(p, sizeof *loss);
    uint64_t *n_correct = dl_probe_bytes(p, sizeof *n_correct);
    dl_cuda_loss *losses = dl_probe_bytes(p, N * sizeof *losses);
    *loss = 1.75;
    *n_correct = 5;
    for (size_t i = 0; i < N; i++)
        losses[i] = (dl_cuda_loss){1.0f / (float)(i + 3), i % 3 == 0};
    const dl_cuda_tally_arguments a = {DL_PROBE_AT(p, loss), DL_PROBE_AT(p, n_correct),
                                       DL_PROBE_AT(p, losses), N};
    dl_probe_run(p, DL_GPU_THREADS, &a, sizeof a);
    for (size_t i = 0; i < N; i++) {
        *loss += (double)losses[i].loss;
        *n_correct += (uint64_t)losses[i].correct;
    }
    return dl_probe_compare(p);
}
