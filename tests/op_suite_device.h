/* op_suite_device.h - the op suite on the emulated device, which is in place of the trap backend.
 *
 * The CPU's rows are compared with differences by the same tests without a device. Here a case runs
 * on the CPU and then on the device in several orders: outputs, losses and gradients agree, and all
 * orders give the same bits.
 *
 * Tolerance: both add up f32 in other orders and have other exponentials, with an error of some
 * roundings of the largest term. 1e-5 of the largest is above that; a wrong index or a missing term
 * is far beyond it. Operations that copy have the CPU's bits. */
#ifndef DL_TESTS_OP_SUITE_DEVICE_H
#define DL_TESTS_OP_SUITE_DEVICE_H

#include "cuda_emu/emulated_backend.h"
#include "op_suite.h"

static emulated_setup op_setup; /* of the next device that a test opens */

static void op_open_backend(dl_backend **out, const char *name)
{
    if (strcmp(name, "cpu") == 0)
        CHECK_OK(dl_backend_create(out, name));
    else
        CHECK_OK(emulated_open(out, &op_setup));
}

typedef struct op_outcome {
    double loss, eval, size;     /* of the losses; sum of a sink's absolute terms */
    float *y, *gradient, *twice; /* owned: inputs of the sink f32[n_y], f32[n] */
    size_t n_y, n;
    bool copies; /* the case has no operation that computes */
} op_outcome;

static void op_forget(op_outcome *o)
{
    free(o->y), free(o->gradient), free(o->twice);
}

/* Returns true if every operation of the graph copies. */
static bool op_copies(const dl_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op != &source_op && g->nodes[i].op != &sink_op &&
            strcmp(g->nodes[i].op->name, "embedding") != 0)
            return false;
    return true;
}

/* After a forward pass. The sink is last, so its inputs are as it read them. */
static void op_take_inputs(op_outcome *o, const op_rig *r)
{
    const dl_node *last = &r->graph->nodes[r->graph->n_nodes - 1];
    for (int k = 0; last->op == &sink_op && k < DL_NODE_MAX_IN && last->in[k] >= 0; k++) {
        const dl_value *v = &r->graph->values[last->in[k]];
        const size_t n = r->batch.rows * r->batch.length * v->width;
        o->y = realloc(o->y, (o->n_y + n) * sizeof(float));
        dl_backend_copy_out(r->backend, o->y + o->n_y, dl_buffer_place(r->graph, v->data),
                            n * sizeof(float));
        for (size_t i = 0; i < n; i++)
            o->size += fabs((double)sink_factor(i) * (double)o->y[o->n_y + i]);
        o->n_y += n;
    }
}

static op_outcome op_outcome_on(const op_case *c, op_build build, const char *backend)
{
    op_rig r;
    op_open(&r, c, build, backend, 1);
    const size_t bytes = r.n * sizeof(float);
    op_outcome o = {.n = r.n, .copies = op_copies(r.graph)};
    o.gradient = malloc(bytes);
    o.twice = malloc(bytes);
    o.loss = op_run(&r, DL_TRAIN, false);
    dl_backend_copy_out(r.backend, o.gradient, r.graph->gradients, bytes);
    op_run(&r, DL_TRAIN, true);
    dl_backend_copy_out(r.backend, o.twice, r.graph->gradients, bytes);
    o.eval = op_run(&r, r.mode, false);
    op_take_inputs(&o, &r);
    if (!o.n_y) o.size = fabs(o.loss);
    CHECK_OK(dl_backend_sync(r.backend));
    op_close(&r);
    return o;
}

static void op_check_near(const float *want, const float *got, size_t n, bool copies,
                          const char *what)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)want[i] - (double)got[i]) <= (copies ? 0 : 1e-5 * largest)))
            CHECK_FAIL("%s %zu of %zu is %g, on the CPU %g, the largest %g", what, i, n,
                       (double)got[i], (double)want[i], largest);
}

static void op_check_outcome(const op_outcome *want, const op_outcome *got)
{
    CHECK_INT(want->n_y, got->n_y);
    CHECK_NEAR(want->loss, got->loss, 1e-6 * want->size);
    CHECK_NEAR(want->eval, got->eval, 1e-6 * want->size);
    op_check_near(want->y, got->y, want->n_y, want->copies, "output");
    op_check_near(want->gradient, got->gradient, want->n, want->copies, "gradient");
    op_check_near(want->twice, got->twice, want->n, want->copies, "added gradient");
}

/* Without a soak, three of the nine ways have each time and each order of the device's work. A case
 * with a million logits has one of them then. */
static size_t op_ways(const op_case *c)
{
    const size_t seeds = emulated_seeds(0);
    const bool is_large = c->rows * c->length * c->vocab > 1000000;
    return seeds ? seeds * EMULATED_WAYS : is_large ? 1 : 3;
}

static void op_check_case(const op_case *c, op_build build)
{
    const size_t seeds = emulated_seeds(0), ways = op_ways(c);
    op_outcome want = op_outcome_on(c, build, "cpu"), first = {.n = 0};
    for (size_t i = 0; i < ways; i++) {
        op_setup = emulated_way(seeds ? i : 4 * (i + 3 - ways));
        op_outcome got = op_outcome_on(c, build, "emulated");
        CHECK_INT(0, emulated_leaked());
        op_check_outcome(&want, &got);
        if (i == 0)
            first = got;
        else {
            CHECK(first.loss == got.loss);
            CHECK_BYTES(first.gradient, got.gradient, want.n * sizeof(float));
            CHECK_BYTES(first.twice, got.twice, want.n * sizeof(float));
            op_forget(&got);
        }
    }
    op_forget(&want), op_forget(&first);
}

static inline void op_suite_check(const op_case *cases, size_t n, op_build build)
{
    for (size_t i = 0; i < n; i++)
        op_check_case(&cases[i], build);
}

#endif
