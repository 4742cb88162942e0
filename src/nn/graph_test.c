/* graph_test.c - the memory plan: values that are needed at the same time never overlap, and others
 * share memory. The table of operations is complete. */
#include "check.h"
#include "nn/graph.h"
#include "nn/op.h"
#include "nn/ops.h"

enum { LAYERS = 5, WIDTH = 24 };

/* A chain of layers as in a model. */
static dl_graph *chain(size_t max_rows)
{
    dl_graph *g;
    CHECK_OK(dl_graph_create(&g, 4 * LAYERS + 2, 3 * LAYERS + 1, 10,
                             &(dl_graph_target){.max_rows = max_rows, .n_threads = 2}));
    int table = dl_graph_weight(g, 17, WIDTH, DL_INITIAL_NORMAL, 1, "table");
    int x = dl_embedding(g, table), delta = DL_NO_VALUE;
    for (int i = 0; i < LAYERS; i++) {
        int norm = dl_graph_weight(g, 0, WIDTH, DL_INITIAL_ONES, 0, "norm%d", i);
        int up = dl_graph_weight(g, 4 * WIDTH, WIDTH, DL_INITIAL_NORMAL, 1, "up%d", i);
        int down = dl_graph_weight(g, WIDTH, 2 * WIDTH, DL_INITIAL_NORMAL, 1, "down%d", i);
        int y = dl_add_norm(g, &x, x, delta, norm, 1e-5f);
        delta = dl_linear(g, dl_swiglu(g, dl_linear(g, y, up, 1)), down, 1);
    }
    dl_head_loss(g, delta, table, 0);
    return g;
}

TEST(buffers_alive_together_never_overlap)
{
    dl_graph *g = chain(3);
    size_t bytes, activations, sum = 0;
    CHECK_OK(dl_graph_plan(g, &bytes, &activations));
    for (int i = 0; i < g->n_buffers; i++) {
        const dl_buffer *a = &g->buffers[i];
        if (a->first > a->last) continue;
        CHECK(a->offset % 64 == 0 && a->offset + a->bytes <= activations);
        sum += a->bytes;
        for (int k = 0; k < i; k++) {
            const dl_buffer *b = &g->buffers[k];
            bool together = a->first <= b->last && b->first <= a->last;
            bool overlap = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            CHECK(!(together && overlap));
        }
    }
    CHECK(activations < sum); /* and others do share */
    dl_graph_destroy(g);
}

TEST(data_kept_for_backward_is_intact_until_backward)
{
    dl_graph *g = chain(3);
    size_t bytes, activations;
    CHECK_OK(dl_graph_plan(g, &bytes, &activations));
    for (int i = 0; i < g->n_nodes; i++) {
        const dl_node *node = &g->nodes[i];
        int backward = 2 * g->n_nodes - 1 - i;
        if (!(node->op->keeps & DL_KEEP_IN0)) continue;
        CHECK(g->buffers[g->values[node->in[0]].data].last >= backward);
    }
    dl_graph_destroy(g);
}

TEST(a_plan_has_the_size_of_the_allocation)
{
    dl_graph *g = chain(3);
    dl_backend *b;
    dl_pool *pool;
    size_t bytes, activations;
    CHECK_OK(dl_graph_plan(g, &bytes, &activations));
    CHECK_OK(dl_backend_create(&b, "cpu"));
    CHECK_OK(dl_pool_create(&pool, 2));
    CHECK_OK(dl_graph_allocate(g, b, pool));
    CHECK((unsigned char *)g->parameters == (unsigned char *)g->memory);
    CHECK(g->work.scratch >= g->work.activations + activations);
    CHECK(g->work.scratch < (unsigned char *)g->memory + bytes);
    dl_graph_destroy(g);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
}

TEST(a_shared_weight_is_added_to_by_the_later_of_its_gradients)
{
    dl_graph *g = chain(3);
    CHECK(g->nodes[0].grad_adds);               /* embedding: last in the backward pass */
    CHECK(!g->nodes[g->n_nodes - 1].grad_adds); /* head: first */
    CHECK(!g->nodes[1].grad_adds);
    dl_graph_destroy(g);
}

TEST(a_graph_too_large_for_any_machine_is_refused)
{
    dl_graph *g = chain(SIZE_MAX / 1000);
    size_t bytes, activations;
    CHECK_STATUS(DILOCO_EINVAL, dl_graph_plan(g, &bytes, &activations));
    CHECK_CONTAINS("does not fit", diloco_error_text());
    dl_graph_destroy(g);
}

TEST(every_operation_has_a_name_a_shape_and_both_ways_on_the_cpu)
{
    for (size_t i = 0; dl_op_at(i); i++) {
        const dl_op *op = dl_op_at(i);
        CHECK(op->name && op->shape);
        CHECK(op->forward[DL_DEVICE_CPU] && op->backward[DL_DEVICE_CPU]);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(op->name, dl_op_at(k)->name) != 0);
    }
}

/* ---- the plan of a long chain, against one that is made without a sorted list ------------- */

enum { LINKS = 200 };

/* Widths are uneven, and many are equal. */
static void shape_of_link(dl_graph *g, dl_node *node)
{
    node->out[0] = dl_graph_value(g, 16 * (size_t)(1 + g->n_nodes * 7919 % 31));
}

static bool overlap(const dl_buffer *a, size_t at, const dl_buffer *b)
{
    return a->first <= b->last && b->first <= a->last && at < b->offset + b->bytes &&
           b->offset < at + a->bytes;
}

/* The largest buffer that is not placed yet, and of equal ones the first. NULL: all are. */
static const dl_buffer *next_of(const dl_graph *g, const bool *placed)
{
    const dl_buffer *largest = NULL;
    for (int i = 0; i < g->n_buffers; i++) {
        const dl_buffer *b = &g->buffers[i];
        if (b->first <= b->last && !placed[i] && (!largest || b->bytes > largest->bytes))
            largest = b;
    }
    return largest;
}

/* The lowest offset at which b overlaps no placed buffer: 0, or the end of one. */
static size_t lowest(const dl_graph *g, const bool *placed, const dl_buffer *b)
{
    size_t best = SIZE_MAX;
    for (int i = -1; i < g->n_buffers; i++) {
        if (i >= 0 && !placed[i]) continue;
        const size_t at = i < 0 ? 0 : g->buffers[i].offset + g->buffers[i].bytes;
        bool free = at < best;
        for (int k = 0; free && k < g->n_buffers; k++)
            free = !placed[k] || !overlap(b, at, &g->buffers[k]);
        if (free) best = at;
    }
    return best;
}

TEST(each_buffer_from_the_largest_on_has_the_lowest_offset_that_is_free)
{
    static bool placed[4 * LINKS];
    static const dl_op kinds[2] = {{.name = "kept", .shape = shape_of_link, .keeps = DL_KEEP_IN0},
                                   {.name = "not kept", .shape = shape_of_link}};
    const dl_graph_target target = {.max_rows = 1, .n_threads = 1};
    dl_graph *g;
    size_t bytes, activations, peak = 0;
    int x = DL_NO_VALUE;
    CHECK_OK(dl_graph_create(&g, LINKS, 1, 4, &target));
    for (int i = 0; i < LINKS; i++)
        x = dl_graph_add(g, &kinds[i % 3 == 0], x, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0)->out[0];
    CHECK_OK(dl_graph_plan(g, &bytes, &activations));
    CHECK(g->n_buffers == 2 * LINKS);
    for (const dl_buffer *b; (b = next_of(g, placed)); placed[b - g->buffers] = true) {
        CHECK_INT(lowest(g, placed, b), b->offset);
        peak = b->offset + b->bytes > peak ? b->offset + b->bytes : peak;
    }
    CHECK_INT(peak, activations);
    dl_graph_destroy(g);
}

/* ---- a device with empty columns ------------------------------------------------------ */

static void no_shape(dl_graph *g, dl_node *node)
{
    (void)g, (void)node;
}

static void no_work(const dl_pass *p)
{
    (void)p;
}

/* The status of a graph of one operation `whole` on the device CUDA, whose functions are those of
 * the CPU without the function at `missing`. */
static diloco_status allocate_without(int missing)
{
    dl_graph *g;
    dl_backend *b;
    dl_pool *pool;
    dl_op op = {.name = "whole", .shape = no_shape};
    dl_op_fn *const columns[3] = {op.prepare, op.forward, op.backward};
    for (int i = 0; i < 3; i++) {
        columns[i][DL_DEVICE_CPU] = no_work;
        columns[i][DL_DEVICE_CUDA] = i == missing ? NULL : no_work;
    }
    CHECK_OK(dl_backend_create(&b, "cpu"));
    const dl_backend_ops *own = b->ops;
    dl_backend_ops other = *own;
    other.name = "other";
    other.device = DL_DEVICE_CUDA;
    b->ops = &other;
    CHECK_OK(dl_pool_create(&pool, 1));
    const dl_graph_target target = {.max_rows = 1, .n_threads = 1, .device = DL_DEVICE_CUDA};
    CHECK_OK(dl_graph_create(&g, 1, 1, 1, &target));
    dl_graph_add(g, &op, DL_NO_VALUE, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0);
    const diloco_status status = dl_graph_allocate(g, b, pool);
    dl_graph_destroy(g);
    dl_pool_destroy(pool);
    b->ops = own;
    dl_backend_destroy(b);
    return status;
}

static size_t scratch_of_cpu(const dl_graph *g, const dl_node *node)
{
    (void)g, (void)node;
    return 1 << 10;
}

/* Writes its value and its scratch in a training pass alone, and adds both to the loss. */
static void make_value(dl_graph *g, dl_node *node)
{
    node->out[0] = dl_graph_value(g, 1);
}

static void write_in_training(const dl_pass *p)
{
    float *value = dl_data(p, p->node->out[0]), *scratch = p->scratch;
    if (p->batch.mode == DL_TRAIN) *value = *scratch = 1;
    p->graph->pass.tally->loss += (double)*value + (double)*scratch;
}

TEST(values_of_the_pass_before_are_nan_on_the_trap_backend)
{
    dl_graph *g;
    dl_backend *b;
    dl_pool *pool;
    dl_tally tally;
    const dl_op op = {.name = "written once",
                      .shape = make_value,
                      .scratch = {[DL_DEVICE_CPU] = scratch_of_cpu},
                      .forward = {[DL_DEVICE_CPU] = write_in_training}};
    CHECK_OK(dl_backend_create(&b, "trap"));
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_OK(dl_graph_create(&g, 1, 1, 1, &(dl_graph_target){.max_rows = 1, .n_threads = 1}));
    dl_graph_add(g, &op, DL_NO_VALUE, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0);
    CHECK_OK(dl_graph_allocate(g, b, pool));
    for (dl_mode mode = DL_TRAIN; mode <= DL_EVAL; mode++) {
        dl_graph_run(g, &(dl_batch){.rows = 1, .length = 1, .mode = mode});
        dl_backend_copy_out(b, &tally, g->pass.tally, sizeof tally);
        CHECK(mode == DL_TRAIN ? tally.loss == 2 : isnan(tally.loss));
    }
    dl_graph_destroy(g);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
}

static size_t scratch_of_cuda(const dl_graph *g, const dl_node *node)
{
    (void)g, (void)node;
    return 1 << 20;
}

static size_t planned_with_scratch(dl_device device)
{
    dl_graph *g;
    size_t bytes, activations;
    const dl_op op = {
        .name = "whole",
        .shape = no_shape,
        .scratch = {[DL_DEVICE_CPU] = scratch_of_cpu, [DL_DEVICE_CUDA] = scratch_of_cuda}};
    const dl_graph_target target = {.max_rows = 1, .n_threads = 1, .device = device};
    CHECK_OK(dl_graph_create(&g, 1, 1, 1, &target));
    dl_graph_add(g, &op, DL_NO_VALUE, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0);
    CHECK_OK(dl_graph_plan(g, &bytes, &activations));
    dl_graph_destroy(g);
    return bytes;
}

TEST(scratch_is_planned_for_the_device)
{
    CHECK_INT((1 << 20) - (1 << 10),
              planned_with_scratch(DL_DEVICE_CUDA) - planned_with_scratch(DL_DEVICE_CPU));
}

static void shape_by_device(dl_graph *g, dl_node *node)
{
    node->out[0] = dl_graph_value(g, g->target.device == DL_DEVICE_CUDA ? 100 : 10);
    node->saved = dl_graph_value_f32(g, 1);
}

/* Bytes of a value's data, one row of 256 positions. */
static size_t bytes_of_data(const dl_graph *g, int value)
{
    return g->buffers[g->values[value].data].bytes;
}

static void check_shape(dl_device device, diloco_dtype element, size_t out, size_t saved)
{
    dl_graph *g;
    size_t bytes, activations;
    const dl_op op = {.name = "shaped", .shape = shape_by_device};
    const dl_graph_target target = {
        .max_rows = 1, .n_threads = 1, .device = device, .element = element};
    CHECK_OK(dl_graph_create(&g, 1, 1, 256, &target));
    const dl_node *node = dl_graph_add(g, &op, DL_NO_VALUE, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0);
    CHECK_OK(dl_graph_plan(g, &bytes, &activations));
    CHECK_INT(out, bytes_of_data(g, node->out[0]));
    CHECK_INT(saved, bytes_of_data(g, node->saved));
    dl_graph_destroy(g);
}

TEST(values_have_the_graphs_type_and_the_shape_of_its_device)
{
    check_shape(DL_DEVICE_CPU, DILOCO_F32, 4 * 10 * 256, 4 * 256);
    check_shape(DL_DEVICE_CUDA, DILOCO_F32, 4 * 100 * 256, 4 * 256);
    check_shape(DL_DEVICE_CUDA, DILOCO_BF16, 2 * 100 * 256, 4 * 256); /* sums stay f32 */
}

TEST(a_device_without_a_function_of_an_operation_refuses_the_graph_by_name)
{
    static const char *const names[] = {"whole (prepare)", "whole (forward)", "whole (backward)"};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(DILOCO_EREFUSED, allocate_without(i));
        CHECK_CONTAINS(names[i], diloco_error_text());
        CHECK_CONTAINS("the other backend", diloco_error_text());
    }
    CHECK_OK(allocate_without(-1));
}

TEST(values_of_two_bytes_on_the_cpu_are_refused)
{
    dl_graph *g;
    dl_pool *pool;
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_OK(dl_graph_create(
        &g, 1, 1, 1, &(dl_graph_target){.max_rows = 1, .n_threads = 1, .element = DILOCO_BF16}));
    CHECK_STATUS(DILOCO_EREFUSED, dl_graph_allocate(g, b, pool));
    CHECK_CONTAINS("the cpu backend computes in f32 alone", diloco_error_text());
    dl_graph_destroy(g);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
}

TEST(the_gradient_of_a_weight_that_does_not_train_is_zero_and_the_others_do_not_change)
{
    enum { UP0 = 2, ROWS = 2, LENGTH = 10 };
    dl_graph *g = chain(ROWS);
    dl_backend *backend;
    dl_pool *pool;
    CHECK_OK(dl_backend_create(&backend, "trap"));
    CHECK_OK(dl_pool_create(&pool, 2));
    CHECK_OK(dl_graph_allocate(g, backend, pool));
    const size_t n = g->n_parameters, begin = g->weights[UP0].offset;
    const size_t end = begin + g->weights[UP0].rows * g->weights[UP0].columns;
    float *host = malloc(n * sizeof *host), *trained = malloc(n * sizeof *host);
    int32_t tokens[ROWS * LENGTH];
    for (size_t i = 0; i < n; i++)
        host[i] = sinf((float)i);
    for (int i = 0; i < ROWS * LENGTH; i++)
        tokens[i] = i % 17;
    dl_backend_copy_in(backend, g->parameters, host, n * sizeof *host);
    dl_backend_copy_in(backend, g->pass.inputs, tokens, sizeof tokens);
    dl_backend_copy_in(backend, g->pass.targets, tokens, sizeof tokens);

    const dl_batch batch = {.rows = ROWS, .length = LENGTH, .mode = DL_TRAIN, .gain = 1};
    dl_graph_run(g, &batch);
    dl_backend_copy_out(backend, trained, g->gradients, n * sizeof *host);
    dl_graph_set_role(g, UP0, DILOCO_FROZEN);
    dl_graph_run(g, &batch);
    dl_backend_copy_out(backend, host, g->gradients, n * sizeof *host);
    double before = 0;
    for (size_t i = 0; i < n; i++) {
        const bool frozen = i >= begin && i < end;
        CHECK(host[i] == (frozen ? 0 : trained[i]));
        if (frozen) before += fabs((double)trained[i]);
    }
    CHECK(before > 0);
    free(host), free(trained);
    dl_graph_destroy(g);
    dl_pool_destroy(pool);
    dl_backend_destroy(backend);
}

TEST_MAIN(values_of_two_bytes_on_the_cpu_are_refused,
          the_gradient_of_a_weight_that_does_not_train_is_zero_and_the_others_do_not_change,
          buffers_alive_together_never_overlap,
          each_buffer_from_the_largest_on_has_the_lowest_offset_that_is_free,
          data_kept_for_backward_is_intact_until_backward, a_plan_has_the_size_of_the_allocation,
          a_shared_weight_is_added_to_by_the_later_of_its_gradients,
          a_graph_too_large_for_any_machine_is_refused,
          every_operation_has_a_name_a_shape_and_both_ways_on_the_cpu,
          a_device_without_a_function_of_an_operation_refuses_the_graph_by_name,
          scratch_is_planned_for_the_device, values_of_the_pass_before_are_nan_on_the_trap_backend,
          values_have_the_graphs_type_and_the_shape_of_its_device)
