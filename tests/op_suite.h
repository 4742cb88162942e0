/* op_suite.h - an operation alone in a graph, its gradients against central differences.
 *
 * A test builds a graph from sources (values that are weights, so that differences can be
 * taken by them), its operation, and a sink:
 *
 *     loss = sum over i of sin(i * 0.37 + 1) * y_i,  added up in float64
 *
 * (dl_head_loss is its own end.) Then op_suite_check runs it on both backends, with one and
 * two threads, on fewer rows and positions than were planned. A program that is linked with the
 * emulated device has that in place of the trap backend, and compares it with the CPU
 * (op_suite_device.h).
 *
 * Tolerance: a difference quotient with h = 1/64 errs by h^2 f'''/6, below 1e-4 for values near 1.
 * It also errs by the float32 rounding of the outputs, 6e-8 * sqrt(n) / h, below 3e-4 for the
 * largest n here. 2e-3 of the largest gradient is beyond both. */
#ifndef DL_TESTS_OP_SUITE_H
#define DL_TESTS_OP_SUITE_H

#include "base/rng.h"
#include "check.h"
#include "cuda_emu/op_suite_kernels.h"
#include "nn/cuda/start.h"
#include "nn/ops.h"

#include <stdlib.h>

/* ---- source and sink ------------------------------------------------------------------ */

static void source_shape(dl_graph *g, dl_node *node)
{
    node->out[0] = dl_graph_value(g, g->weights[node->weight].columns);
}

static void source_forward(const dl_pass *p)
{
    size_t n = p->positions * dl_width(p, p->node->out[0]);
    memcpy(dl_data(p, p->node->out[0]), dl_weight_data(p), n * sizeof(float));
}

static void source_backward(const dl_pass *p)
{
    const dl_weight *w = &p->graph->weights[p->node->weight];
    size_t n = p->positions * dl_width(p, p->node->out[0]);
    float *to = dl_weight_grad(p);
    for (size_t i = 0; i < w->rows * w->columns; i++)
        to[i] = (dl_weight_adds(p) ? to[i] : 0) + (i < n ? dl_grad(p, p->node->out[0])[i] : 0);
}

static op_source_arguments source_arguments(const dl_pass *p)
{
    const dl_weight *w = &p->graph->weights[p->node->weight];
    return (op_source_arguments){.n = p->positions * dl_width(p, p->node->out[0]),
                                 .all = w->rows * w->columns,
                                 .add = dl_weight_adds(p)};
}

static void source_forward_on_device(const dl_pass *p)
{
    op_source_arguments a = source_arguments(p);
    a.y = dl_data(p, p->node->out[0]);
    a.w = dl_weight_data(p);
    DL_CUDA_START(p, "op_source_forward", a.n, a);
}

static void source_backward_on_device(const dl_pass *p)
{
    op_source_arguments a = source_arguments(p);
    a.y = dl_grad(p, p->node->out[0]);
    a.w = dl_weight_grad(p);
    DL_CUDA_START(p, "op_source_backward", a.all, a);
}

static const dl_op source_op = {
    .name = "source",
    .shape = source_shape,
    .forward = {[DL_DEVICE_CPU] = source_forward, [DL_DEVICE_CUDA] = source_forward_on_device},
    .backward = {[DL_DEVICE_CPU] = source_backward, [DL_DEVICE_CUDA] = source_backward_on_device}};

static inline int op_source(dl_graph *g, size_t width)
{
    int w = dl_graph_weight(g, g->target.max_rows * g->max_length, width, DL_INITIAL_NORMAL, 1,
                            "source%d", g->n_weights);
    return dl_graph_add(g, &source_op, DL_NO_VALUE, DL_NO_VALUE, w, 1, NULL, 0)->out[0];
}

static void sink_shape(dl_graph *g, dl_node *node)
{
    (void)g, (void)node;
}

static void sink_forward(const dl_pass *p)
{
    for (int k = 0; k < DL_NODE_MAX_IN; k++)
        for (size_t i = 0; p->node->in[k] >= 0 && i < p->positions * dl_width(p, p->node->in[k]);
             i++)
            p->graph->pass.tally->loss +=
                (double)sink_factor(i) * (double)dl_data(p, p->node->in[k])[i];
}

static void sink_backward(const dl_pass *p)
{
    for (int k = 0; k < DL_NODE_MAX_IN; k++)
        for (size_t i = 0; p->node->in[k] >= 0 && i < p->positions * dl_width(p, p->node->in[k]);
             i++)
            dl_grad(p, p->node->in[k])[i] = sink_factor(i);
}

static void sink_forward_on_device(const dl_pass *p)
{
    for (int k = 0; k < DL_NODE_MAX_IN && p->node->in[k] >= 0; k++) {
        const op_sink_arguments a = {.loss = &p->graph->pass.tally->loss,
                                     .y = dl_data(p, p->node->in[k]),
                                     .n = p->positions * dl_width(p, p->node->in[k])};
        DL_CUDA_START(p, "op_sink_forward", 1, a);
    }
}

static void sink_backward_on_device(const dl_pass *p)
{
    for (int k = 0; k < DL_NODE_MAX_IN && p->node->in[k] >= 0; k++) {
        const op_sink_arguments a = {.y = dl_grad(p, p->node->in[k]),
                                     .n = p->positions * dl_width(p, p->node->in[k])};
        DL_CUDA_START(p, "op_sink_backward", a.n, a);
    }
}

static const dl_op sink_op = {
    .name = "sink",
    .shape = sink_shape,
    .forward = {[DL_DEVICE_CPU] = sink_forward, [DL_DEVICE_CUDA] = sink_forward_on_device},
    .backward = {[DL_DEVICE_CPU] = sink_backward, [DL_DEVICE_CUDA] = sink_backward_on_device}};

static inline void op_sink(dl_graph *g, int y, int z)
{
    dl_graph_add(g, &sink_op, y, z, DL_NO_WEIGHT, 0, NULL, 0);
}

/* ---- the rig -------------------------------------------------------------------------- */

typedef struct op_case {
    size_t rows, length, max_rows, max_length;
    size_t width, vocab, heads, kv_heads, dim; /* the needs of the current operation */
    size_t high, wide, channels, out, size, stride, pad;
    bool apart;  /* values at least 1/8 apart and 1/16 from 0: for operations with kinks */
    bool trains; /* forward is another function in training: differences are taken of that */
} op_case;

/* A source that is an image of the case. */
static inline dl_planes op_source_planes(dl_graph *g, const op_case *c)
{
    int value = op_source(g, c->high * c->wide * c->channels);
    return (dl_planes){value, c->high, c->wide, c->channels};
}

typedef void (*op_build)(dl_graph *g, const op_case *c);

enum { OP_NODES = 8, OP_WEIGHTS = 8 };

typedef struct op_rig {
    dl_backend *backend;
    dl_pool *pool;
    dl_graph *graph;
    dl_batch batch;
    dl_mode mode;           /* of differences */
    float *host, *gradient; /* f32[n] */
    size_t n;
} op_rig;

#ifdef EMULATED_LIBRARY
static void op_open_backend(dl_backend **out, const char *name); /* op_suite_device.h */
#else
static inline void op_open_backend(dl_backend **out, const char *name)
{
    CHECK_OK(dl_backend_create(out, name));
}
#endif

static inline void op_open(op_rig *r, const op_case *c, op_build build, const char *backend,
                           int threads)
{
    op_open_backend(&r->backend, backend);
    CHECK_OK(dl_pool_create(&r->pool, threads));
    CHECK_OK(dl_graph_create(&r->graph, OP_NODES, OP_WEIGHTS, c->max_length,
                             &(dl_graph_target){.max_rows = c->max_rows,
                                                .device = r->backend->ops->device,
                                                .n_threads = threads}));
    build(r->graph, c);
    CHECK_OK(dl_graph_allocate(r->graph, r->backend, r->pool));
    r->batch = (dl_batch){.rows = c->rows, .length = c->length, .gain = 1};
    r->mode = c->trains ? DL_TRAIN : DL_EVAL;
    r->n = r->graph->n_parameters;
    r->host = malloc(r->n * sizeof(float));
    r->gradient = malloc(r->n * sizeof(float));
    for (size_t i = 0; i < r->n; i++)
        r->host[i] = c->apart ? (float)(i * 37 % 101) / 8 - 6.0625f
                              : (float)sin((double)i * 1.7 + 0.3) + 0.1f;

    /* Tokens repeat; every fifth target is not counted. */
    int32_t *tokens = malloc(c->max_rows * c->max_length * sizeof *tokens);
    for (size_t i = 0; c->vocab && i < c->rows * c->length; i++)
        tokens[i] = (int32_t)((i * i * 3 + i) % c->vocab);
    size_t bytes = c->rows * c->length * sizeof *tokens;
    if (c->vocab) dl_backend_copy_in(r->backend, r->graph->pass.inputs, tokens, bytes);
    for (size_t i = 4; i < c->rows * c->length; i += 5)
        tokens[i] = -1;
    if (c->vocab) dl_backend_copy_in(r->backend, r->graph->pass.targets, tokens, bytes);
    free(tokens);
}

static inline void op_close(op_rig *r)
{
    dl_graph_destroy(r->graph);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r->host);
    free(r->gradient);
}

static inline double op_run(op_rig *r, dl_mode mode, bool accumulate)
{
    dl_tally tally;
    r->batch.mode = mode;
    r->batch.accumulate = accumulate;
    dl_backend_zero(r->backend, r->graph->pass.tally, sizeof tally);
    dl_backend_copy_in(r->backend, r->graph->parameters, r->host, r->n * sizeof(float));
    dl_graph_run(r->graph, &r->batch);
    dl_backend_copy_out(r->backend, &tally, r->graph->pass.tally, sizeof tally);
    return tally.loss;
}

/* (loss(p + h e_i) - loss(p - h e_i)) / 2h */
static inline double op_difference(op_rig *r, size_t i)
{
    const float h = 1.0f / 64, x = r->host[i];
    r->host[i] = x + h;
    double above = op_run(r, r->mode, false);
    r->host[i] = x - h;
    double below = op_run(r, r->mode, false);
    r->host[i] = x;
    return (above - below) / (2.0 * h);
}

static inline void op_check_on(const op_case *c, op_build build, const char *backend, int threads)
{
    op_rig r;
    float largest = 0;
    enum { DIFFERENCES = 60 };
    op_open(&r, c, build, backend, threads);
    op_run(&r, DL_TRAIN, false);
    dl_backend_copy_out(r.backend, r.gradient, r.graph->gradients, r.n * sizeof(float));
    for (size_t i = 0; i < r.n; i++)
        largest = fmaxf(largest, fabsf(r.gradient[i]));
    CHECK(largest > 0);
    for (size_t k = 0; k < DIFFERENCES; k++) {
        size_t i =
            k * r.n / DIFFERENCES + dl_rng_permute(k, DIFFERENCES, 1, 1) % (r.n / DIFFERENCES + 1);
        if (i >= r.n) continue;
        double want = op_difference(&r, i), got = (double)r.gradient[i];
        if (!(fabs(want - got) <= 2e-3 * (double)largest))
            CHECK_FAIL(
                "%s, %d threads, rows %zu of %zu, length %zu, width %zu, heads %zu/%zu x %zu, image"
                " %zu x %zu x %zu, window %zu/%zu+%zu: gradient %zu of %zu is %g, the difference"
                " %g, the largest %g",
                backend, threads, c->rows, c->max_rows, c->length, c->width, c->heads, c->kv_heads,
                c->dim, c->high, c->wide, c->channels, c->size, c->stride, c->pad, i, r.n, got,
                want, (double)largest);
    }
    /* Once more, added: twice the gradient. */
    float *twice = malloc(r.n * sizeof *twice);
    op_run(&r, DL_TRAIN, false);
    op_run(&r, DL_TRAIN, true);
    dl_backend_copy_out(r.backend, twice, r.graph->gradients, r.n * sizeof(float));
    for (size_t i = 0; i < r.n; i++)
        CHECK_NEAR(2 * r.gradient[i], twice[i], 1e-5 * (double)largest);
    free(twice);
    op_close(&r);
}

#ifdef EMULATED_LIBRARY
#include "op_suite_device.h"
#else
static inline void op_suite_check(const op_case *cases, size_t n, op_build build)
{
    for (size_t i = 0; i < n; i++) {
        op_check_on(&cases[i], build, "cpu", 1);
        op_check_on(&cases[i], build, "cpu", 2);
        op_check_on(&cases[i], build, "trap", 2);
    }
}
#endif

#endif
