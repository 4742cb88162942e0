/* graph.c - building, planning and running.
 *
 * A pass of n nodes has 2n moments: node i runs forward at i and backward at 2n - 1 - i. A
 * buffer is alive from the first to the last moment that touches it, and two buffers may
 * share memory when they are never alive together. The plan places the largest first, each
 * at the lowest offset that is free while it is alive.
 *
 * Invariants: a value has one producer and at most one consumer, so a gradient is written
 * once and never added to; nodes are in the order they run. */
#include "nn/op.h"

#include "base/clock.h"
#include "nn/cuda/round_cuda.h"
#include "nn/enter.h"
#include "tensor/manifest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ------------------------------------------------------------------------ */

diloco_status dl_graph_create(dl_graph **out, int max_nodes, int max_weights, size_t max_length,
                              const dl_graph_target *target)
{
    int max_values = max_nodes * (DL_NODE_MAX_OUT + 1);
    dl_graph *g = calloc(1, sizeof *g);
    *out = g;
    if (g) {
        g->nodes = calloc((size_t)max_nodes, sizeof *g->nodes);
        g->values = calloc((size_t)max_values, sizeof *g->values);
        g->buffers = calloc((size_t)max_values * 2, sizeof *g->buffers);
        g->weights = calloc((size_t)max_weights, sizeof *g->weights);
    }
    if (!g || !g->nodes || !g->values || !g->buffers || !g->weights) {
        dl_graph_destroy(g);
        *out = NULL;
        return dl_fail(DILOCO_ENOMEM, "out of memory for a graph of %d operations", max_nodes);
    }
    g->room.nodes = max_nodes;
    g->room.values = max_values;
    g->room.weights = max_weights;
    g->target = *target;
    g->max_length = max_length;
    return DILOCO_OK;
}

/* Also destroys a graph that dl_graph_create could not complete. */
void dl_graph_destroy(dl_graph *g)
{
    if (!g) return;
    if (g->backend) dl_backend_release(g->backend, g->memory);
    free(g->nodes);
    free(g->values);
    free(g->buffers);
    free(g->weights);
    free(g);
}

/* Appends a weight with the next offset in its array. A name that does not fit is the model's bug.
 */
DL_PRINTF(3, 0)
static int next_weight(dl_graph *g, const dl_weight *what, const char *name, va_list args)
{
    DL_ASSERT(g->n_weights < g->room.weights);
    dl_weight *w = &g->weights[g->n_weights];
    size_t *offset = what->dtype == DILOCO_I64 ? &g->n_counters : &g->n_parameters;
    *w = *what;
    w->offset = *offset;
    w->rows = w->n_dims > 1 ? w->shape[0] : 1;
    w->columns = w->n_dims == 1 ? w->shape[0] : 1;
    for (int d = 1; d < w->n_dims; d++)
        w->columns *= w->shape[d];
    int length = vsnprintf(w->name, sizeof w->name, name, args);
    DL_ASSERT(length > 0 && (size_t)length < sizeof w->name);
    *offset += w->rows * w->columns;
    return g->n_weights++;
}

int dl_graph_weight(dl_graph *g, size_t rows, size_t columns, dl_initial initial, float spread,
                    const char *name, ...)
{
    dl_weight w = {.n_dims = rows ? 2 : 1, .initial = initial, .spread = spread};
    w.shape[0] = rows ? rows : columns;
    if (rows) w.shape[1] = columns;
    va_list args;
    va_start(args, name);
    int index = next_weight(g, &w, name, args);
    va_end(args);
    return index;
}

int dl_graph_weight4(dl_graph *g, const size_t shape[DILOCO_MAX_DIMS], dl_initial initial,
                     float spread, const char *name, ...)
{
    dl_weight w = {.n_dims = DILOCO_MAX_DIMS, .initial = initial, .spread = spread};
    memcpy(w.shape, shape, sizeof w.shape);
    va_list args;
    va_start(args, name);
    int index = next_weight(g, &w, name, args);
    va_end(args);
    return index;
}

int dl_graph_counter(dl_graph *g, const char *name, ...)
{
    dl_weight w = {.dtype = DILOCO_I64, .role = DILOCO_BUFFER};
    va_list args;
    va_start(args, name);
    int index = next_weight(g, &w, name, args);
    va_end(args);
    return index;
}

void dl_graph_set_role(dl_graph *g, int weight, diloco_role role)
{
    DL_ASSERT(weight >= 0 && weight < g->n_weights);
    g->weights[weight].role = role;
}

void dl_graph_set_end(dl_graph *g, int weight)
{
    DL_ASSERT(weight >= 0 && weight < g->n_weights);
    g->weights[weight].end = true;
}

static int new_buffer(dl_graph *g)
{
    g->buffers[g->n_buffers] = (dl_buffer){0};
    return g->n_buffers++;
}

/* Every value has two buffers at first; op->shape may give it another value's instead. */
static int new_value(dl_graph *g, size_t width, diloco_dtype element)
{
    DL_ASSERT(g->n_values < g->room.values);
    g->values[g->n_values] = (dl_value){.width = width,
                                        .element = element,
                                        .data = new_buffer(g),
                                        .grad = new_buffer(g),
                                        .producer = -1,
                                        .consumer = -1};
    return g->n_values++;
}

int dl_graph_value(dl_graph *g, size_t width)
{
    return new_value(g, width, g->target.element);
}

int dl_graph_value_f32(dl_graph *g, size_t width)
{
    return new_value(g, width, DILOCO_F32);
}

/* Notes for the earlier node with the same weight, if there is one, that it adds to the gradient:
 * backward runs `node` first, so that one writes. */
static void note_shared_weight(dl_graph *g, const dl_node *node)
{
    if (node->weight == DL_NO_WEIGHT) return;
    dl_weight *w = &g->weights[node->weight];
    if (w->n_users++) g->nodes[w->last_user].grad_adds = true;
    w->last_user = (int)(node - g->nodes);
}

dl_node *dl_graph_add(dl_graph *g, const dl_op *op, int in0, int in1, int weight, int n_weights,
                      const void *attributes, size_t attributes_size)
{
    DL_ASSERT(g->n_nodes < g->room.nodes);
    dl_node *node = &g->nodes[g->n_nodes];
    *node = (dl_node){.op = op,
                      .in = {in0, in1},
                      .out = {DL_NO_VALUE, DL_NO_VALUE},
                      .saved = DL_NO_VALUE,
                      .weight = weight,
                      .n_weights = n_weights};
    DL_ASSERT(attributes_size <= sizeof node->attributes);
    if (attributes_size) memcpy(node->attributes, attributes, attributes_size);
    op->shape(g, node);
    for (int i = 0; i < DL_NODE_MAX_IN; i++)
        if (node->in[i] != DL_NO_VALUE) {
            DL_ASSERT(g->values[node->in[i]].consumer < 0);
            g->values[node->in[i]].consumer = g->n_nodes;
        }
    for (int i = 0; i < DL_NODE_MAX_OUT; i++)
        if (node->out[i] != DL_NO_VALUE) g->values[node->out[i]].producer = g->n_nodes;
    if (node->saved != DL_NO_VALUE) g->values[node->saved].producer = g->n_nodes;
    note_shared_weight(g, node);
    g->n_nodes++;
    return node;
}

/* ---- planning ------------------------------------------------------------------------ */

/* Extends the time that a buffer is alive to include a moment. */
static void touch(dl_buffer *b, int moment)
{
    if (moment < b->first) b->first = moment;
    if (moment > b->last) b->last = moment;
}

/* The moment at which a node runs backward. */
static int backward_of(const dl_graph *g, int node)
{
    return 2 * g->n_nodes - 1 - node;
}

/* An input's data is read at forward, and at backward if the operation keeps it. Its gradient is
 * written at backward. */
static void live_inputs(dl_graph *g, int i)
{
    const dl_node *node = &g->nodes[i];
    for (int k = 0; k < DL_NODE_MAX_IN; k++) {
        if (node->in[k] == DL_NO_VALUE) continue;
        const dl_value *v = &g->values[node->in[k]];
        touch(&g->buffers[v->data], i);
        if (node->op->keeps & (DL_KEEP_IN0 << k)) touch(&g->buffers[v->data], backward_of(g, i));
        if (!v->constant) touch(&g->buffers[v->grad], backward_of(g, i));
    }
}

/* An output's data is written at forward, and read at backward if kept. Its gradient is read at
 * backward. `saved` is alive from one to the other. */
static void live_outputs(dl_graph *g, int i)
{
    const dl_node *node = &g->nodes[i];
    for (int k = 0; k < DL_NODE_MAX_OUT; k++) {
        if (node->out[k] == DL_NO_VALUE) continue;
        const dl_value *v = &g->values[node->out[k]];
        touch(&g->buffers[v->data], i);
        if (node->op->keeps & (DL_KEEP_OUT0 << k)) touch(&g->buffers[v->data], backward_of(g, i));
        if (!v->constant) touch(&g->buffers[v->grad], backward_of(g, i));
    }
    if (node->saved != DL_NO_VALUE) {
        touch(&g->buffers[g->values[node->saved].data], i);
        touch(&g->buffers[g->values[node->saved].data], backward_of(g, i));
    }
}

/* n * size, or SIZE_MAX / 2 when it does not fit: such a plan is refused when allocated. */
static size_t product(size_t n, size_t size)
{
    size_t bytes;
    return dl_size_mul(&bytes, n, size) && bytes < SIZE_MAX / 2 ? bytes : SIZE_MAX / 2;
}

/* Finds each buffer's time and size. A buffer of several values has the largest size and the union
 * of their times. */
static void measure_buffers(dl_graph *g)
{
    for (int i = 0; i < g->n_buffers; i++)
        g->buffers[i] = (dl_buffer){.first = INT32_MAX, .last = -1};
    for (int i = 0; i < g->n_nodes; i++) {
        live_inputs(g, i);
        live_outputs(g, i);
    }
    size_t positions = product(g->target.max_rows, g->max_length);
    for (int i = 0; i < g->n_values; i++) {
        const dl_value *v = &g->values[i];
        size_t bytes = product(product(positions, v->width), dl_dtype_size(v->element));
        bytes = dl_size_round_up(bytes, DL_ARENA_ALIGN);
        g->buffers[v->data].bytes = dl_size_max(g->buffers[v->data].bytes, bytes);
        g->buffers[v->grad].bytes = dl_size_max(g->buffers[v->grad].bytes, bytes);
    }
}

/* Returns true if both are alive at one moment; then they must not overlap. */
static bool meet(const dl_buffer *a, const dl_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Largest first. Pointers are into one array, so their order is that of the buffers. */
static int by_size(const void *x, const void *y)
{
    const dl_buffer *a = *(dl_buffer *const *)x, *b = *(dl_buffer *const *)y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : 1; /* a fixed order, so a fixed plan */
}

/* Adds b to `placed`, which is sorted by offset. */
static void insert(dl_buffer **placed, size_t n, dl_buffer *b)
{
    for (; n > 0 && placed[n - 1]->offset > b->offset; n--)
        placed[n] = placed[n - 1];
    placed[n] = b;
}

/* Lowest free offset for b among `placed`, which is kept sorted by offset. */
static size_t lowest_gap(const dl_buffer *b, dl_buffer *const *placed, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!meet(b, placed[i])) continue;
        if (placed[i]->offset >= at + b->bytes) break;
        at = dl_size_max(at, placed[i]->offset + placed[i]->bytes);
    }
    return at;
}

/* Greedy by size: largest first at the lowest free offset. The optimum is NP-hard (dynamic storage
 * allocation). Here one pass has few large buffers, which are placed well. O(n^2) for n
 * buffers, once. */
static diloco_status place_buffers(dl_graph *g, size_t *total)
{
    size_t n = 0, placed = 0;
    dl_buffer **order = malloc(2 * ((size_t)g->n_buffers + 1) * sizeof *order);
    if (!order) return dl_fail(DILOCO_ENOMEM, "not enough memory to plan a graph");
    dl_buffer **done = order + g->n_buffers;
    for (int i = 0; i < g->n_buffers; i++)
        if (g->buffers[i].first <= g->buffers[i].last) order[n++] = &g->buffers[i];
    qsort(order, n, sizeof *order, by_size);
    *total = 0;
    for (size_t i = 0; i < n && *total < SIZE_MAX / 4; i++) {
        order[i]->offset = lowest_gap(order[i], done, placed);
        *total = dl_size_max(*total, order[i]->offset + order[i]->bytes);
        insert(done, placed++, order[i]);
    }
    free(order);
    return DILOCO_OK;
}

/* Everything but the activations themselves, in the order it is in memory. */
static void layout(dl_graph *g, dl_arena *arena, size_t activation_bytes)
{
    size_t scratch = 0, positions = product(g->target.max_rows, g->max_length);
    for (int i = 0; i < g->n_nodes; i++) {
        const dl_node *node = &g->nodes[i];
        if (node->op->scratch[g->target.device])
            scratch = dl_size_max(scratch, node->op->scratch[g->target.device](g, node));
    }
    g->parameters = DL_ARENA_ARRAY(arena, float, g->n_parameters);
    g->gradients = DL_ARENA_ARRAY(arena, float, g->n_parameters);
    g->rounded = NULL;
    if (g->target.element == DILOCO_BF16)
        g->rounded = DL_ARENA_ARRAY(arena, uint16_t, g->n_parameters);
    g->counters = DL_ARENA_ARRAY(arena, int64_t, g->n_counters);
    g->pass.inputs = DL_ARENA_ARRAY(arena, int32_t, positions);
    g->pass.targets = DL_ARENA_ARRAY(arena, int32_t, positions);
    g->pass.images = dl_arena_take(arena, product(g->target.max_rows, g->image_bytes));
    g->pass.logits = DL_ARENA_ARRAY(arena, float, g->n_logits);
    g->pass.tally = DL_ARENA_ARRAY(arena, dl_tally, 1);
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i].constant = dl_arena_take(arena, g->nodes[i].constant_bytes);
    g->work.activations = dl_arena_take(arena, activation_bytes);
    g->work.scratch = dl_arena_take(arena, scratch);
}

/* May be called without a backend. An arena without memory counts bytes, and saturates on overflow,
 * so an impossible plan is refused here and not allocated. */
diloco_status dl_graph_plan(dl_graph *g, size_t *bytes, size_t *activation_bytes)
{
    dl_arena arena = {0};
    measure_buffers(g);
    DL_TRY(place_buffers(g, activation_bytes));
    layout(g, &arena, *activation_bytes);
    *bytes = arena.used;
    if (*bytes < SIZE_MAX / 4) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "a batch of %zu sequences of %zu tokens does not fit into any"
                   " machine: make the batch, the context or the model smaller",
                   g->target.max_rows, g->max_length);
}

/* ---- running ------------------------------------------------------------------------- */

/* Fills graph->rounded, whose element i is parameter i: adjacent weights stay one matrix. NULL:
 * operations of the device work on values of f32 alone. */
static void (*const round_weights[DL_N_DEVICES])(dl_backend *backend, uint16_t *to,
                                                 const float *from, size_t n) = {
    [DL_DEVICE_CUDA] = dl_cuda_round_weights};

/* Runs one function of a node; NULL is nothing to do. A profile measures the call, so it is right
 * only on a backend that does its work in it. */
static void run_one(dl_graph *g, const dl_batch *batch, const dl_node *node, dl_op_fn fn, int way)
{
    if (!fn) return;
    dl_time begin = g->pass.profile ? dl_clock_now() : 0;
    dl_pass pass = {.graph = g,
                    .node = node,
                    .batch = *batch,
                    .positions = batch->rows * batch->length,
                    .pool = g->pool,
                    .scratch = g->work.scratch};
    dl_backend_enter(g->backend);
    fn(&pass);
    dl_backend_leave(g->backend);
    for (size_t i = 0; g->pass.profile && dl_op_at(i); i++)
        if (dl_op_at(i) == node->op)
            g->pass.profile->seconds[i][way] += dl_seconds(dl_clock_now() - begin);
}

/* An operation may do without a function, but then on every device: a column that is empty where
 * the CPU's is filled would compute nothing, and nothing would report it. */
static diloco_status check_column(const dl_op *op, const dl_op_fn column[DL_N_DEVICES],
                                  const char *what, const dl_backend *backend)
{
    if (!column[DL_DEVICE_CPU] || column[backend->ops->device]) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the %s backend has no operation %s (%s), which this model needs: train it on"
                   " the CPU",
                   backend->ops->name, op->name, what);
}

/* Checks before memory is allocated, so that a refused model costs nothing. */
static diloco_status check_operations(const dl_graph *g, const dl_backend *backend)
{
    if (g->target.element != DILOCO_F32 && !round_weights[backend->ops->device])
        return dl_fail(DILOCO_EREFUSED,
                       "the %s backend computes in f32 alone: set"
                       " trainer.precision = \"f32\"",
                       backend->ops->name);
    for (int i = 0; i < g->n_nodes; i++) {
        const dl_op *op = g->nodes[i].op;
        DL_TRY(check_column(op, op->prepare, "prepare", backend));
        DL_TRY(check_column(op, op->forward, "forward", backend));
        DL_TRY(check_column(op, op->backward, "backward", backend));
    }
    return DILOCO_OK;
}

diloco_status dl_graph_allocate(dl_graph *g, dl_backend *backend, dl_pool *pool)
{
    size_t bytes, activation_bytes;
    DL_ASSERT(dl_pool_size(pool) == g->target.n_threads &&
              backend->ops->device == g->target.device);
    DL_ASSERT(!g->memory);
    DL_TRY(check_operations(g, backend));
    DL_TRY(dl_graph_plan(g, &bytes, &activation_bytes));
    DL_TRY(dl_backend_alloc(backend, &g->memory, bytes));
    g->backend = backend;
    g->pool = pool;
    dl_arena arena = {.base = g->memory, .size = bytes};
    layout(g, &arena, activation_bytes);
    g->work.bytes = bytes - (size_t)(g->work.activations - (unsigned char *)g->memory);
    dl_backend_forget(backend, g->work.activations, g->work.bytes);
    for (int i = 0; i < g->n_nodes; i++)
        run_one(g, &(dl_batch){0}, &g->nodes[i], g->nodes[i].op->prepare[backend->ops->device], 0);
    return DILOCO_OK;
}

/* Operations write the gradient of every weight they use; gradients of frozen weights are hidden,
 * so that norms and clipping are those of the trained weights alone. */
static void clear_untrained(dl_graph *g, size_t begin, size_t end)
{
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        if (w->role == DILOCO_PARAMETER || w->dtype != DILOCO_F32) continue;
        if (w->offset < begin || w->offset >= end) continue;
        dl_backend_zero(g->backend, g->gradients + w->offset, w->rows * w->columns * sizeof(float));
    }
}

static void run_backward(dl_graph *g, const dl_batch *batch)
{
    const dl_gradient_watch *w = g->pass.watch;
    size_t n_done = 0;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        run_one(g, batch, &g->nodes[i], g->nodes[i].op->backward[g->backend->ops->device], 1);
        for (; w && n_done < w->n && w->parts[n_done].node >= i; n_done++) {
            clear_untrained(g, w->parts[n_done].begin, w->parts[n_done].end);
            w->done(w->context, n_done);
        }
    }
    if (!w) clear_untrained(g, 0, g->n_parameters);
}

/* Nodes are in order, so each input is complete when its node runs. Backward runs them in reverse:
 * each gradient is complete when its producer runs. The weights are rounded for each pass, because
 * the optimizer, an adoption and a resume write them: this reads 4 bytes a parameter and writes 2.
 */
void dl_graph_run(dl_graph *g, const dl_batch *batch)
{
    dl_device device = g->backend->ops->device;
    DL_ASSERT(batch->rows <= g->target.max_rows && batch->length <= g->max_length);
    dl_backend_forget(g->backend, g->work.activations, g->work.bytes);
    if (g->rounded) {
        dl_backend_enter(g->backend);
        round_weights[device](g->backend, g->rounded, g->parameters, g->n_parameters);
        dl_backend_leave(g->backend);
    }
    for (int i = 0; i < g->n_nodes; i++)
        run_one(g, batch, &g->nodes[i], g->nodes[i].op->forward[device], 0);
    if (batch->mode == DL_TRAIN) run_backward(g, batch);
}
