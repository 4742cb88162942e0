/* emulated_attention_test.c - attention alone in a graph, on the emulated device against the CPU.
 *
 * Sequences are shorter and longer than a tile of 32 positions, and end within one. Heads have 6 to
 * 200 elements: part of a warp, part of a slice of 128, a whole one, and several. The tolerance is
 * that of emulated_model_test.c: the sums have other orders than on the CPU. */
#include "emulated_backend.h"

#include "nn/op.h"
#include "nn/ops.h"
#include "tensor/cuda/cuda_api.h"

#include <math.h>
#include <stdlib.h>

typedef struct shape {
    size_t rows, length, heads, kv_heads, dim;
} shape;

static const shape shapes[] = {
    {3, 1, 2, 1, 16},  {2, 31, 2, 2, 32},  {1, 32, 3, 1, 48},  {2, 33, 4, 2, 64},
    {1, 65, 2, 1, 80}, {1, 100, 2, 1, 96}, {1, 47, 2, 2, 128}, {1, 34, 2, 1, 130},
    {1, 17, 1, 1, 6},  {1, 33, 2, 1, 200},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- a source and a sink that run on each device: their arrays are weights */

static void source_shape(dl_graph *g, dl_node *node)
{
    node->out[0] = dl_graph_value(g, g->weights[node->weight].columns);
}
static size_t bytes_of(const dl_pass *p, int value)
{
    return p->positions * dl_width(p, value) * sizeof(float);
}
static void source_forward(const dl_pass *p)
{
    const int value = p->node->out[0];
    dl_backend_copy_within(p->graph->backend, dl_data(p, value), dl_weight_data(p),
                           bytes_of(p, value));
}
static void source_backward(const dl_pass *p)
{
    const int value = p->node->out[0];
    dl_backend_copy_within(p->graph->backend, dl_weight_grad(p), dl_grad(p, value),
                           bytes_of(p, value));
}
static const dl_op source_op = {
    .name = "source",
    .shape = source_shape,
    .forward = {[DL_DEVICE_CPU] = source_forward, [DL_DEVICE_CUDA] = source_forward},
    .backward = {[DL_DEVICE_CPU] = source_backward, [DL_DEVICE_CUDA] = source_backward}};

/* The sink's weight is dO, and its gradient array receives O. */
static void sink_shape(dl_graph *g, dl_node *node)
{
    (void)g, (void)node;
}
static void sink_forward(const dl_pass *p)
{
    const int value = p->node->in[0];
    dl_backend_copy_within(p->graph->backend, dl_weight_grad(p), dl_data(p, value),
                           bytes_of(p, value));
}
static void sink_backward(const dl_pass *p)
{
    const int value = p->node->in[0];
    dl_backend_copy_within(p->graph->backend, dl_grad(p, value), dl_weight_data(p),
                           bytes_of(p, value));
}
static const dl_op sink_op = {
    .name = "sink",
    .shape = sink_shape,
    .forward = {[DL_DEVICE_CPU] = sink_forward, [DL_DEVICE_CUDA] = sink_forward},
    .backward = {[DL_DEVICE_CPU] = sink_backward, [DL_DEVICE_CUDA] = sink_backward}};

static dl_graph *graph_of(const shape *s, dl_device device)
{
    static const dl_rope rope = {.theta = 100, .factor = 1};
    const size_t n = s->rows * s->length, width = (s->heads + 2 * s->kv_heads) * s->dim;
    dl_graph *g;
    CHECK_OK(
        dl_graph_create(&g, 3, 2, s->length,
                        &(dl_graph_target){.max_rows = s->rows, .n_threads = 1, .device = device}));
    const int qkv = dl_graph_weight(g, n, width, DL_INITIAL_NORMAL, 1, "qkv");
    const int dout = dl_graph_weight(g, n, s->heads * s->dim, DL_INITIAL_NORMAL, 1, "dout");
    const int in = dl_graph_add(g, &source_op, DL_NO_VALUE, DL_NO_VALUE, qkv, 1, NULL, 0)->out[0];
    const int out = dl_attention(g, in, s->heads, s->kv_heads, &rope);
    dl_graph_add(g, &sink_op, out, DL_NO_VALUE, dout, 1, NULL, 0);
    return g;
}

/* Runs one pass on `b`, which is destroyed. out f32[*n]: the gradient of qkv, then O. */
static diloco_status run_attention(float **out, size_t *n, const shape *s, dl_backend *b)
{
    dl_pool *pool;
    dl_graph *g = graph_of(s, b->ops->device);
    CHECK_OK(dl_pool_create(&pool, 1));
    *n = g->n_parameters;
    *out = malloc(*n * sizeof **out);
    diloco_status status = dl_graph_allocate(g, b, pool);
    if (!status) {
        for (size_t i = 0; i < *n; i++)
            (*out)[i] = (float)sin((double)i * 1.7 + 0.3) * 0.5f + 0.1f;
        dl_backend_copy_in(b, g->parameters, *out, *n * sizeof **out);
        dl_graph_run(g, &(dl_batch){s->rows, s->length, DL_TRAIN, 1, false});
        dl_backend_copy_out(b, *out, g->gradients, *n * sizeof **out);
        status = dl_backend_sync(b);
    }
    dl_graph_destroy(g);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
    return status;
}

static void check_near(const float *want, const float *got, size_t n, const shape *s)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    CHECK(largest > 0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)want[i] - (double)got[i]) <= 1e-5 * largest))
            CHECK_FAIL("%zu x %zu, heads %zu/%zu x %zu: element %zu of %zu is %g, on the CPU %g,"
                       " the largest %g",
                       s->rows, s->length, s->heads, s->kv_heads, s->dim, i, n, (double)got[i],
                       (double)want[i], largest);
}

/* A soak takes all ways, other tests three of them. */
static void check_shape(const shape *s)
{
    const size_t seeds = emulated_seeds(0), ways = seeds ? seeds * EMULATED_WAYS : 3;
    float *want, *first = NULL, *got;
    dl_backend *b;
    size_t n;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    CHECK_OK(run_attention(&want, &n, s, b));
    const size_t n_qkv = s->rows * s->length * (s->heads + 2 * s->kv_heads) * s->dim;
    for (size_t i = 0; i < ways; i++) {
        const emulated_setup setup = emulated_way(seeds ? i : 4 * i); /* each of both kinds */
        CHECK_OK(emulated_open(&b, &setup));
        CHECK_OK(run_attention(&got, &n, s, b));
        CHECK_INT(0, emulated_leaked());
        check_near(want, got, n_qkv, s);
        check_near(want + n_qkv, got + n_qkv, n - n_qkv, s);
        if (i == 0) first = got;
        CHECK_BYTES(first, got, n * sizeof *got);
        if (i > 0) free(got);
    }
    free(want), free(first);
}

TEST(attention_of_any_shape_follows_the_cpu_with_the_same_bits_in_every_order)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        check_shape(&shapes[i]);
}

/* ---- memory */

static size_t scratch_of(const shape *s)
{
    dl_graph *g = graph_of(s, DL_DEVICE_CUDA);
    const size_t bytes = g->nodes[1].op->scratch[DL_DEVICE_CUDA](g, &g->nodes[1]);
    dl_graph_destroy(g);
    return bytes;
}

TEST(scratch_on_the_device_is_one_float_a_query_and_head_whatever_the_length)
{
    CHECK_INT(8 * 1024 * 12 * sizeof(float), scratch_of(&(shape){8, 1024, 12, 4, 64}));
    CHECK_INT(8 * 1024 * 12 * sizeof(float), scratch_of(&(shape){1, 8192, 12, 4, 64}));
    CHECK_INT(8 * 1024 * 12 * sizeof(float), scratch_of(&(shape){1, 8192, 12, 4, 128}));
}

/* ---- faults */

TEST(kernel_that_does_not_run_changes_the_result)
{
    static const char *const kernels[] = {"dl_attention_forward", "dl_attention_delta",
                                          "dl_attention_queries", "dl_attention_keys"};
    const shape s = {1, 33, 2, 1, 16};
    float *sound, *got;
    dl_backend *b;
    size_t n;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1}));
    CHECK_OK(run_attention(&sound, &n, &s, b));
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
        for (emulated_fault fault = EMULATED_IDLE; fault <= EMULATED_BIT_FLIPPED; fault++) {
            emulated_setup setup = {.seed = 1, .fault = fault};
            snprintf(setup.fault_in, sizeof setup.fault_in, "%s", kernels[k]);
            CHECK_OK(emulated_open(&b, &setup));
            CHECK_OK(run_attention(&got, &n, &s, b));
            CHECK(memcmp(sound, got, n * sizeof *got) != 0);
            free(got);
        }
    free(sound);
}

TEST(fault_of_any_call_is_reported)
{
    const shape s = {1, 33, 2, 1, 16};
    float *got;
    dl_backend *b;
    size_t n;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1}));
    const uint64_t opened = emulated_calls();
    CHECK_OK(run_attention(&got, &n, &s, b));
    free(got);
    const uint64_t calls = emulated_calls();
    for (uint64_t at = opened + 1; at <= calls; at++) {
        const emulated_setup setup = {
            .seed = at, .fail_at = at, .fail_with = DL_CUDA_LAUNCH_FAILED};
        CHECK_OK(emulated_open(&b, &setup));
        const diloco_status status = run_attention(&got, &n, &s, b);
        CHECK(status == DILOCO_OK || status == DILOCO_EIO || status == DILOCO_ENOMEM);
        if (status == DILOCO_EIO) CHECK_CONTAINS("the emulated device failed", diloco_error_text());
        free(got);
    }
}

TEST_MAIN(attention_of_any_shape_follows_the_cpu_with_the_same_bits_in_every_order,
          scratch_on_the_device_is_one_float_a_query_and_head_whatever_the_length,
          kernel_that_does_not_run_changes_the_result, fault_of_any_call_is_reported)
