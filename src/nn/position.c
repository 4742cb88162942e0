/* position.c - the operations of one position, for a decoder (model/decode.c). A product of a
 * matrix and a vector goes through the matrix once, in its order, so memory is its bound. The
 * formulas are those of op_linear.c, op_add_norm.c, op_attention.c and op_swiglu.c. */
#include "nn/position.h"

#include "nn/cpu/vec.h"

/* Four independent sums of 16 floats hide the latency of an addition. Narrower machines split each
 * into several registers. */
enum { LANES = 16, SUMS = 4 };
/* aligned(4): rows of a matrix begin anywhere. may_alias: floats are read as vectors. */
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float half_lanes __attribute__((vector_size(2 * LANES)));
typedef float quarter_lanes __attribute__((vector_size(LANES)));

static inline DL_BODY lanes at(const float *p)
{
    return *(const lanes *)p;
}

/* Pairwise: lane after lane, as a loop over them is compiled, takes as long as a row of 300. */
static inline DL_BODY float across(lanes x)
{
    half_lanes half[2];
    memcpy(half, &x, sizeof half);
    half[0] += half[1];
    quarter_lanes quarter[2];
    memcpy(quarter, &half[0], sizeof quarter);
    quarter[0] += quarter[1];
    return (quarter[0][0] + quarter[0][2]) + (quarter[0][1] + quarter[0][3]);
}

/* Nothing is prefetched: by bench/sample.c that costs a tenth, from memory and from cache.
 * The order of the additions follows from n alone, not from the instruction set. */
static inline DL_BODY float dot(const float *restrict w, const float *restrict x, size_t n)
{
    lanes sums[SUMS] = {{0}};
    float rest = 0;
    size_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES)
        for (size_t s = 0; s < SUMS; s++)
            sums[s] += at(w + i + s * LANES) * at(x + i + s * LANES);
    for (; i < n; i++)
        rest += w[i] * x[i];
    return across((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static inline DL_BODY void product_body(float *restrict y, const float *restrict w,
                                        const float *restrict x, size_t n, size_t begin, size_t end)
{
    for (size_t row = begin; row < end; row++)
        y[row] = dot(w + row * n, x, n);
}
DL_KERNEL(product, (float *y, const float *w, const float *x, size_t n, size_t begin, size_t end),
          product_body(y, w, x, n, begin, end))

void dl_position_product(float *y, const float *w, const float *x, size_t n, size_t begin,
                         size_t end)
{
    dl_isa_call(product)(y, w, x, n, begin, end);
}

static inline DL_BODY void norm_body(float *y, const float *x, const float *w, size_t n, float eps)
{
    float squares = 0;
    DL_SUM(squares)
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    float r = 1.0f / sqrtf(squares / (float)n + eps);
    DL_EACH
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * r * w[i];
}
DL_KERNEL(norm, (float *y, const float *x, const float *w, size_t n, float eps),
          norm_body(y, x, w, n, eps))

void dl_position_norm(float *y, const float *x, const float *w, size_t n, float eps)
{
    dl_isa_call(norm)(y, x, w, n, eps);
}

void dl_position_turn(float *x, const float *cosine, const float *sine, size_t dim)
{
    size_t half = dim / 2;
    for (size_t d = 0; d < half; d++) {
        float low = x[d], high = x[d + half];
        x[d] = low * cosine[d] - high * sine[d];
        x[d + half] = high * cosine[d] + low * sine[d];
    }
}

static inline DL_BODY void swiglu_body(float *restrict y, const float *restrict g,
                                       const float *restrict u, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = g[i] * dl_sigmoid(g[i]) * u[i];
}
DL_KERNEL(swiglu, (float *y, const float *g, const float *u, size_t n), swiglu_body(y, g, u, n))

void dl_position_swiglu(float *y, const float *gate, const float *up, size_t n)
{
    dl_isa_call(swiglu)(y, gate, up, n);
}

/* Attention of one query: room holds the scores, then exp(score - largest). There is no mask,
 * because only positions up to this one are stored. */
static inline DL_BODY void attend_body(float *restrict out, const float *restrict q,
                                       const float *restrict keys, const float *restrict values,
                                       size_t n, size_t dim, float *restrict room)
{
    float top = -INFINITY, sum = 0, scale = 1.0f / sqrtf((float)dim);
    product_body(room, keys, q, dim, 0, n);
    for (size_t i = 0; i < n; i++) {
        room[i] *= scale;
        top = room[i] > top ? room[i] : top;
    }
    DL_SUM(sum)
    for (size_t i = 0; i < n; i++) {
        room[i] = dl_exp_negative(room[i] - top);
        sum += room[i];
    }
    memset(out, 0, dim * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        float share = room[i] / sum;
        const float *restrict v = values + i * dim;
        DL_EACH
        for (size_t d = 0; d < dim; d++)
            out[d] += share * v[d];
    }
}
DL_KERNEL(attend,
          (float *out, const float *q, const float *keys, const float *values, size_t n, size_t dim,
           float *room),
          attend_body(out, q, keys, values, n, dim, room))

void dl_position_attend(float *out, const float *q, const float *keys, const float *values,
                        size_t n, size_t dim, float *room)
{
    dl_isa_call(attend)(out, q, keys, values, n, dim, room);
}
