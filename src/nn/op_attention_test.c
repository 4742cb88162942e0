/* op_attention_test.c - gradients by differences, and the forward pass against attention
 * written out with its whole matrix in float64, with plain and with slowed positions. The lengths
 * straddle a tile of queries (16) and a chunk of keys (256); head sizes straddle a vector. */
#include "op_suite.h"

static const op_case cases[] = {
    {1, 1, 1, 1, .heads = 1, .kv_heads = 1, .dim = 2},
    {2, 5, 3, 9, .heads = 2, .kv_heads = 1, .dim = 6},
    {1, 16, 1, 16, .heads = 4, .kv_heads = 4, .dim = 16},
    {2, 17, 3, 33, .heads = 4, .kv_heads = 2, .dim = 18},
    {3, 40, 3, 41, .heads = 6, .kv_heads = 3, .dim = 10},
    {1, 300, 1, 300, .heads = 2, .kv_heads = 1, .dim = 4},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* Of the 3 to 9 pairs of a head some are slowed wholly, some partly, some not. */
static const dl_rope ropes[] = {
    {.theta = 100, .factor = 1},
    {.theta = 100, .scaling = DL_ROPE_LINEAR, .factor = 3},
    {.theta = 100, .scaling = DL_ROPE_LLAMA3, .factor = 4, .low = 0.5, .high = 2, .original = 16}};
enum { N_ROPES = sizeof ropes / sizeof ropes[0] };
static const dl_rope *turn = &ropes[0]; /* of the case at hand */

static void build(dl_graph *g, const op_case *c)
{
    int qkv = op_source(g, (c->heads + 2 * c->kv_heads) * c->dim);
    op_sink(g, dl_attention(g, qkv, c->heads, c->kv_heads, turn), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    turn = &ropes[0];
    op_suite_check(cases, N_CASES, build);
    for (turn = &ropes[1]; turn < &ropes[N_ROPES]; turn++)
        op_suite_check(&cases[1], 1, build);
}

/* Element d of the head at `from`, rotated for position t as in Llama. */
static double rotated(const float *from, size_t t, size_t d, size_t dim)
{
    size_t half = dim / 2, pair = d % half;
    double w = pow(turn->theta, -2.0 * (double)pair / (double)dim), slow = w / turn->factor;
    if (turn->scaling == DL_ROPE_LINEAR) w = slow;
    if (turn->scaling == DL_ROPE_LLAMA3) {
        double length = 2 * 3.141592653589793 / w; /* positions of a whole turn */
        double share = (turn->original / length - turn->low) / (turn->high - turn->low);
        if (length > turn->original / turn->low)
            w = slow;
        else if (length >= turn->original / turn->high)
            w = (1 - share) * slow + share * w;
    }
    double angle = (double)t * w;
    double a = (double)from[pair], b = (double)from[pair + half];
    return d < half ? a * cos(angle) - b * sin(angle) : b * cos(angle) + a * sin(angle);
}

/* The sink's sum over attention computed plainly. */
static double plain_loss(const op_case *c, const float *qkv)
{
    size_t stride = (c->heads + 2 * c->kv_heads) * c->dim;
    double loss = 0, *p = malloc(c->length * sizeof *p);
    for (size_t at = 0; at < c->rows * c->length * c->heads; at++) {
        size_t row = at / c->heads / c->length, t = at / c->heads % c->length, h = at % c->heads;
        const float *first = qkv + row * c->length * stride, *q = first + t * stride + h * c->dim;
        size_t kv = h / (c->heads / c->kv_heads);
        double total = 0;
        for (size_t s = 0; s <= t; s++) {
            const float *k = first + s * stride + (c->heads + kv) * c->dim;
            double score = 0;
            for (size_t d = 0; d < c->dim; d++)
                score += rotated(q, t, d, c->dim) * rotated(k, s, d, c->dim);
            total += p[s] = exp(score / sqrt((double)c->dim));
        }
        for (size_t d = 0; d < c->dim; d++) {
            double y = 0;
            for (size_t s = 0; s <= t; s++)
                y += p[s] / total *
                     (double)first[s * stride + (c->heads + c->kv_heads + kv) * c->dim + d];
            loss += y * (double)sink_factor(at * c->dim + d);
        }
    }
    free(p);
    return loss;
}

TEST(forward_agrees_with_the_whole_matrix)
{
    for (size_t i = 0; i < N_CASES * N_ROPES; i++) {
        op_rig r;
        const op_case *c = &cases[i % N_CASES];
        turn = &ropes[i / N_CASES];
        op_open(&r, c, build, "trap", 2);
        double want = plain_loss(c, r.host), got = op_run(&r, DL_EVAL, false);
        CHECK_NEAR(want, got, 1e-4); /* up to 1500 terms of size 1, each within 1e-6 */
        op_close(&r);
    }
}

TEST_MAIN(gradients_agree_with_differences, forward_agrees_with_the_whole_matrix)
