/* step.c - the inner loop's body.
 *
 *     for each micro-batch: gradient += 1/n grad mean loss        n micro-batches of equal size, on
 *                                                                 all devices (ranks.h)
 *     gradient += mu (parameters - anchor)                        FedProx (1812.06127), where asked
 *     inner optimizer: norm, clip factor, update                  one fused pass of the backend
 *     loss, norm -> host                                          the only wait
 *
 * For data_parallel the second line is clipping alone, by this replica's own norm. */
#include "train/step.h"

#include "base/arena.h"
#include "base/clock.h"

#include <math.h>

/* The anchor and, where no inner optimizer clips, the memory that clipping needs. */
static void layout(dl_step *step, dl_arena *arena, bool data_parallel)
{
    const size_t n = dl_model_n_parameters(step->setup->model);
    const bool pulls = step->setup->config.proximal_mu > 0;
    step->anchor = pulls ? DL_ARENA_ARRAY(arena, float, n) : NULL;
    if (!data_parallel) return;
    step->gradient.squares = DL_ARENA_ARRAY(arena, double, dl_gradient_blocks(n));
    step->gradient.verdict = DL_ARENA_ARRAY(arena, dl_verdict, 1);
}

/* Takes the memory that layout() needs, in one piece: it is called first to measure and then to
 * place. */
static diloco_status take_memory(dl_step *step, bool data_parallel)
{
    const dl_setup *s = step->setup;
    dl_arena measure = {0};
    step->gradient = (dl_gradient){.backend = s->backend,
                                   .pool = s->pool,
                                   .values = dl_model_gradients(s->model),
                                   .n = dl_model_n_parameters(s->model),
                                   .clip = s->config.gradient_clip};
    layout(step, &measure, data_parallel);
    if (measure.used == 0) return DILOCO_OK;
    DL_TRY(dl_backend_alloc(s->backend, &step->memory, measure.used));
    layout(step, &(dl_arena){.base = step->memory, .size = measure.used}, data_parallel);
    return DILOCO_OK;
}

diloco_status dl_step_init(dl_step *out, const dl_setup *s, bool data_parallel)
{
    size_t n_tensors;
    *out = (dl_step){.setup = s};
    DL_TRY(dl_ranks_open(&out->ranks, s));
    DL_TRY(take_memory(out, data_parallel));
    if (data_parallel) return DILOCO_OK;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    const dl_inner_model model = {.tensors = tensors,
                                  .hidden = dl_model_hidden(s->model),
                                  .n_tensors = n_tensors,
                                  .parameters = dl_model_parameters(s->model),
                                  .gradients = dl_model_gradients(s->model),
                                  .backend = s->backend,
                                  .pool = s->pool};
    if (out->ranks && s->config.zero_stage) return dl_ranks_divide(out->ranks, &out->inner, s);
    return dl_inner_create(&out->inner, &s->config, &model);
}

/* Fills the parts of vector i on all devices that have one. Ranks have their elements in order, so
 * together they are the vector of an optimizer that is not divided. Returns their number. */
static size_t vector_slices(dl_slice *out, const dl_step *step, size_t i)
{
    const size_t n_ranks = dl_ranks_count(step->ranks);
    size_t n = 0;
    for (size_t rank = 0; rank < n_ranks; rank++) {
        size_t count;
        dl_inner *inner = rank ? dl_ranks_inner(step->ranks, rank) : step->inner;
        if (!inner) continue; /* the optimizer is the first one's alone */
        float *vector = dl_inner_vector(inner, i, &count);
        out[n++] =
            (dl_slice){.backend = rank ? dl_ranks_backend(step->ranks, rank) : step->setup->backend,
                       .memory = vector,
                       .bytes = count * sizeof *vector};
    }
    return n;
}

diloco_status dl_step_list(dl_step *step, dl_private *out, size_t cap, size_t *n, bool f32)
{
    *n = 0;
    step->vectors.backend = step->setup->backend;
    for (size_t i = 0; step->inner && i < dl_inner_n_vectors(step->inner); i++) {
        dl_slice slices[DL_MAX_CARDS];
        dl_private *p = &out[*n];
        DL_ASSERT(*n < cap);
        *p = (dl_private){.name = dl_inner_vector_name(step->inner, i), .f32 = f32};
        const size_t n_slices = vector_slices(slices, step, i);
        for (size_t k = 0; k < n_slices; k++)
            p->len += slices[k].bytes;
        DL_TRY(dl_staging_add_slices(&step->vectors, &p->data, slices, n_slices));
        ++*n;
    }
    return DILOCO_OK;
}

void dl_step_deinit(dl_step *step)
{
    dl_staging_deinit(&step->vectors);
    dl_inner_destroy(step->inner);
    dl_ranks_close(step->ranks);
    step->inner = NULL;
    step->ranks = NULL;
    if (step->memory) dl_backend_release(step->setup->backend, step->memory);
    step->memory = NULL;
    step->anchor = NULL;
}

void dl_step_anchor(dl_step *step)
{
    const dl_setup *s = step->setup;
    if (!step->anchor) return;
    dl_backend_copy_within(s->backend, step->anchor, dl_model_parameters(s->model),
                           dl_model_n_parameters(s->model) * sizeof *step->anchor);
}

/* Returns the number of samples of the micro-batch that begins there. */
static size_t batch_at(const dl_step *step, size_t shard, uint64_t first)
{
    const dl_setup *s = step->setup;
    const uint64_t rows = (uint64_t)s->config.batch_size;
    if (!step->whole_epochs) return rows;
    const uint64_t epoch = dl_data_samples(s->data, shard), left = epoch - first % epoch;
    return left < rows ? left : rows;
}

/* Queues micro-batch i on its rank: rank i mod n, which adds it to its earlier ones. */
static diloco_status queue_batch(const dl_step *step, int64_t i, size_t shard, uint64_t first,
                                 size_t rows)
{
    const dl_setup *s = step->setup;
    const size_t rank = (size_t)i % dl_ranks_count(step->ranks);
    const float scale = 1.0f / (float)s->config.accumulation;
    dl_backend *backend = step->ranks ? dl_ranks_backend(step->ranks, rank) : s->backend;
    DL_TRY(dl_data_await(s->data, shard, first, rows));
    dl_data_batch(s->data, s->inputs, s->targets, shard, first, rows);
    if (step->ranks) {
        DL_TRY(dl_ranks_make_room(step->ranks, rank, rows));
        DL_TRY(dl_ranks_train(step->ranks, i, s->inputs, s->targets, rows, scale));
    } else {
        DL_TRY(dl_model_train(s->model, s->inputs, s->targets, rows, scale, i > 0));
    }
    /* The device works while the host makes the next one. The update adds to the last one. */
    if (i + 1 < s->config.accumulation) dl_backend_submit(backend);
    return DILOCO_OK;
}

/* Computes a gradient. *samples: how many it used. */
static diloco_status gradient(uint64_t *samples, const dl_step *step, size_t shard, uint64_t first)
{
    const dl_setup *s = step->setup;
    *samples = 0;
    if (step->ranks) dl_ranks_spread(step->ranks);
    for (int64_t i = 0; i < s->config.accumulation; i++) {
        const size_t rows = batch_at(step, shard, first);
        *samples += rows;
        DL_TRY(queue_batch(step, i, shard, first, rows));
        first += rows;
    }
    if (step->ranks) dl_ranks_sum(step->ranks);
    return DILOCO_OK;
}

static void pull_tensor(const dl_step *step, const diloco_tensor *t)
{
    const dl_setup *s = step->setup;
    const float *parameters = dl_model_parameters(s->model);
    const size_t begin = (size_t)((const float *)t->data - parameters);
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    const dl_pull p = {.parameters = parameters,
                       .anchor = step->anchor,
                       .begin = begin,
                       .end = begin + n,
                       .mu = (float)s->config.proximal_mu};
    dl_gradient_pull(&step->gradient, &p);
}

/* Adds the gradient of mu / 2 ||x - anchor||^2 to that of the trained tensors. */
static void pull(const dl_step *step)
{
    size_t n;
    const diloco_tensor *tensors = dl_model_tensors(step->setup->model, &n);
    for (size_t i = 0; i < n && step->anchor; i++)
        if (tensors[i].role == DILOCO_PARAMETER) pull_tensor(step, &tensors[i]);
}

/* Precedes each wait for rank 0. */
static diloco_status wait_for_ranks(const dl_step *step)
{
    return step->ranks ? dl_ranks_wait(step->ranks) : DILOCO_OK;
}

/* Scales the gradient to at most gradient_clip, or to zero if it is not finite, so that the
 * replicas' mean does not contain it. */
static diloco_status clip(double *norm, const dl_step *step)
{
    const dl_gradient *g = &step->gradient;
    dl_verdict v;
    dl_gradient_judge(g);
    dl_gradient_scale(g);
    DL_TRY(wait_for_ranks(step));
    DL_TRY(dl_backend_sync(g->backend));
    dl_backend_copy_out(g->backend, &v, g->verdict, sizeof v);
    *norm = v.norm;
    if (!v.skipped) return DILOCO_OK;
    return dl_fail(DILOCO_ENUMERIC, "the gradient is not finite, first in element %zu of %zu",
                   (size_t)v.bad, g->n);
}

/* Updates the parameters and computes the norm. Returns DILOCO_ENUMERIC as dl_inner_norm. */
static diloco_status apply(double *norm, dl_step *step, double lr)
{
    if (!step->inner) return clip(norm, step);
    if (step->ranks && step->setup->config.zero_stage)
        dl_ranks_update(step->ranks, step->inner, lr);
    else
        DL_TRY(dl_inner_step(step->inner, lr));
    DL_TRY(wait_for_ranks(step));
    return dl_inner_norm(step->inner, norm);
}

diloco_status dl_step_take(dl_step_facts *out, dl_step *step, size_t shard, uint64_t first,
                           double lr)
{
    const dl_setup *s = step->setup;
    dl_time begin = dl_clock_now();
    dl_model_loss loss;
    DL_TRY(gradient(&out->samples, step, shard, first));
    pull(step);
    diloco_status status = apply(&out->grad_norm, step, lr);
    if (status && status != DILOCO_ENUMERIC) return status;
    out->applied = !status;
    if (status) out->grad_norm = NAN;
    DL_TRY(dl_model_take_loss(s->model, &loss));
    if (step->ranks) DL_TRY(dl_ranks_add_loss(step->ranks, &loss));
    out->loss = loss.sum / (double)loss.n_targets;
    out->tokens = out->samples * s->sample->length;
    out->seconds = dl_seconds(dl_clock_now() - begin);
    return DILOCO_OK;
}

double dl_step_rewarmed(const dl_config *config, uint64_t to_come, double lr)
{
    const double all = (double)config->rewarm_steps;
    return to_come ? lr * (all - (double)to_come + 1) / all : lr;
}
