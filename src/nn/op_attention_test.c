/* op_attention_test.c - gradients by differences, and the forward pass against attention
 * written out with its whole matrix in float64. The lengths straddle a tile of queries (16)
 * and a chunk of keys (256); head sizes straddle a vector. */
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

static void build(dl_graph *g, const op_case *c)
{
    int qkv = op_source(g, (c->heads + 2 * c->kv_heads) * c->dim);
    op_sink(g, dl_attention(g, qkv, c->heads, c->kv_heads, 100), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, N_CASES, build);
}

/* Element d of the head at `from`, rotated for position t as in Llama. */
static double rotated(const float *from, size_t t, size_t d, size_t dim)
{
    size_t half = dim / 2, pair = d % half;
    double angle = (double)t * pow(100, -2.0 * (double)pair / (double)dim);
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
    for (size_t i = 0; i < N_CASES; i++) {
        op_rig r;
        op_open(&r, &cases[i], build, "trap", 2);
        double want = plain_loss(&cases[i], r.host), got = op_run(&r, DL_EVAL, false);
        CHECK_NEAR(want, got, 1e-4); /* up to 1500 terms of size 1, each within 1e-6 */
        op_close(&r);
    }
}

TEST_MAIN(gradients_agree_with_differences, forward_agrees_with_the_whole_matrix)
