/* op_qk_norm_test.c - gradients by differences, and each head against its definition in float64. */
#include "op_suite.h"

static const op_case cases[] = {
    {1, 1, 1, 1, .heads = 1, .kv_heads = 1, .dim = 2},
    {2, 5, 3, 9, .heads = 2, .kv_heads = 1, .dim = 6},
    {2, 17, 3, 33, .heads = 4, .kv_heads = 2, .dim = 18},
    {3, 40, 3, 41, .heads = 6, .kv_heads = 3, .dim = 32},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };
#define EPS 1e-3f

static size_t width_of(const op_case *c)
{
    return (c->heads + 2 * c->kv_heads) * c->dim;
}

static int add(dl_graph *g, const op_case *c)
{
    int qkv = op_source(g, width_of(c));
    int weight = dl_graph_weight(g, 0, c->dim, DL_INITIAL_ONES, 0, "q_norm");
    dl_graph_weight(g, 0, c->dim, DL_INITIAL_ONES, 0, "k_norm");
    return dl_qk_norm(g, qkv, weight, c->heads, c->kv_heads, EPS);
}

static void alone(dl_graph *g, const op_case *c)
{
    op_sink(g, add(g, c), DL_NO_VALUE);
}

/* As in a model: the next operation writes its gradient over the values that it read. */
static void under_attention(dl_graph *g, const op_case *c)
{
    const dl_rope rope = {.theta = 100};
    op_sink(g, dl_attention(g, add(g, c), c->heads, c->kv_heads, &rope), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, N_CASES, alone);
}
TEST(gradients_agree_under_attention)
{
    op_suite_check(cases, N_CASES, under_attention);
}

static double plain_loss(const op_case *c, const float *qkv, const float *scales)
{
    double loss = 0;
    size_t n_heads = c->heads + 2 * c->kv_heads, at = 0;
    for (size_t i = 0; i < c->rows * c->length * n_heads; i++) {
        size_t h = i % n_heads, kind = h < c->heads ? 0 : h < c->heads + c->kv_heads ? 1 : 2;
        const float *x = qkv + i * c->dim;
        double squares = 0;
        for (size_t d = 0; d < c->dim; d++)
            squares += (double)x[d] * (double)x[d];
        double r = 1 / sqrt(squares / (double)c->dim + (double)EPS);
        for (size_t d = 0; d < c->dim; d++, at++)
            loss += (double)sink_factor(at) * (double)x[d] *
                    (kind == 2 ? 1 : r * (double)scales[kind * c->dim + d]);
    }
    return loss;
}

TEST(queries_and_keys_are_normalised_by_head_and_values_are_not)
{
    for (size_t i = 0; i < N_CASES; i++) {
        op_rig r;
        const op_case *c = &cases[i];
        op_open(&r, c, alone, "trap", 2);
        const float *scales = r.host + c->max_rows * c->max_length * width_of(c);
        CHECK_NEAR(plain_loss(c, r.host, scales), op_run(&r, DL_EVAL, false), 1e-4);
        op_close(&r);
    }
}

TEST_MAIN(gradients_agree_with_differences, gradients_agree_under_attention,
          queries_and_keys_are_normalised_by_head_and_values_are_not)
