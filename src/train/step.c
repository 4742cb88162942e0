/* step.c - the inner loop's body.
 *
 *     for each micro-batch: gradient += 1/n grad mean loss        n micro-batches of equal size
 *     gradient += mu (parameters - anchor)                        FedProx (1812.06127), where asked
 *     inner optimizer: norm, clip factor, update                  one fused pass of the backend
 *     loss, norm -> host                                          the only wait
 *
 * For data_parallel the second line is clipping alone, by this replica's own norm. */
#include "train/step.h"

#include "base/clock.h"
#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>

diloco_status dl_step_init(dl_step *out, const dl_setup *s, bool data_parallel)
{
    size_t n_tensors, n = dl_model_n_parameters(s->model);
    *out = (dl_step){.setup = s};
    if (s->config.proximal_mu > 0) {
        out->anchor = calloc(n, sizeof *out->anchor);
        if (!out->anchor) return dl_fail(DILOCO_ENOMEM, "no memory for %zu parameters", n);
    }
    if (data_parallel) return DILOCO_OK;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    const dl_inner_model model = {.tensors = tensors,
                                  .hidden = dl_model_hidden(s->model),
                                  .n_tensors = n_tensors,
                                  .parameters = dl_model_parameters(s->model),
                                  .gradients = dl_model_gradients(s->model),
                                  .backend = s->backend,
                                  .pool = s->pool};
    return dl_inner_create(&out->inner, &s->config, &model);
}

void dl_step_deinit(dl_step *step)
{
    dl_inner_destroy(step->inner);
    step->inner = NULL;
    free(step->anchor);
    step->anchor = NULL;
}

void dl_step_anchor(dl_step *step)
{
    const dl_setup *s = step->setup;
    if (!step->anchor) return;
    dl_backend_copy_out(s->backend, step->anchor, dl_model_parameters(s->model),
                        dl_model_n_parameters(s->model) * sizeof *step->anchor);
}

/* Samples of the micro-batch that begins there. */
static size_t batch_at(const dl_step *step, size_t shard, uint64_t first)
{
    const dl_setup *s = step->setup;
    const uint64_t rows = (uint64_t)s->config.batch_size;
    if (!step->whole_epochs) return rows;
    const uint64_t epoch = dl_data_samples(s->data, shard), left = epoch - first % epoch;
    return left < rows ? left : rows;
}

/* *samples: that it took. */
static diloco_status gradient(uint64_t *samples, const dl_step *step, size_t shard, uint64_t first)
{
    const dl_setup *s = step->setup;
    const float scale = 1.0f / (float)s->config.accumulation;
    *samples = 0;
    for (int64_t i = 0; i < s->config.accumulation; i++) {
        const size_t rows = batch_at(step, shard, first);
        *samples += rows;
        dl_data_batch(s->data, s->inputs, s->targets, shard, first, rows);
        DL_TRY(dl_model_train(s->model, s->inputs, s->targets, rows, scale, i > 0));
        first += rows;
    }
    return DILOCO_OK;
}

static void pull_tensor(const dl_step *step, const diloco_tensor *t, float mu)
{
    const dl_setup *s = step->setup;
    const float *parameters = dl_model_parameters(s->model);
    const size_t begin = (size_t)((const float *)t->data - parameters);
    const float *x = parameters + begin, *anchor = step->anchor + begin;
    float *g = dl_model_gradients(s->model) + begin;
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    for (size_t i = 0; i < n; i++)
        g[i] = fmaf(mu, x[i] - anchor[i], g[i]);
}

/* The gradient of mu / 2 ||x - anchor||^2, of what trains, on the host. */
static diloco_status pull(const dl_step *step)
{
    const dl_setup *s = step->setup;
    size_t n;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n);
    if (!step->anchor) return DILOCO_OK;
    DL_TRY(dl_backend_sync(s->backend));
    dl_backend_enter(s->backend);
    for (size_t i = 0; i < n; i++)
        if (tensors[i].role == DILOCO_PARAMETER)
            pull_tensor(step, &tensors[i], (float)s->config.proximal_mu);
    dl_backend_leave(s->backend);
    return DILOCO_OK;
}

/* Gradient to at most gradient_clip, on the host; to zero when it is not finite, so that the
 * mean of the replicas goes without it. */
static diloco_status clip(double *norm, const dl_setup *s)
{
    size_t n = dl_model_n_parameters(s->model);
    double most = s->config.gradient_clip;
    DL_TRY(dl_backend_sync(s->backend));
    dl_backend_enter(s->backend);
    dl_fp_state saved = dl_fp_enter();
    float *g = dl_model_gradients(s->model);
    *norm = sqrt(dl_norm2(g, n));
    size_t bad = isfinite(*norm) ? n : dl_first_bad(g, n, INFINITY);
    float factor = most > 0 && *norm > most ? (float)(most / *norm) : 1;
    for (size_t i = 0; i < n && factor != 1; i++)
        g[i] *= factor;
    dl_fp_leave(saved);
    dl_backend_leave(s->backend);
    if (isfinite(*norm)) return DILOCO_OK;
    dl_backend_zero(s->backend, g, n * sizeof *g);
    return dl_fail(DILOCO_ENUMERIC, "the gradient is not finite, first in element %zu of %zu", bad,
                   n);
}

/* Update and norm; DILOCO_ENUMERIC as dl_inner_norm. */
static diloco_status apply(double *norm, dl_step *step, double lr)
{
    if (!step->inner) return clip(norm, step->setup);
    DL_TRY(dl_inner_step(step->inner, lr));
    return dl_inner_norm(step->inner, norm);
}

diloco_status dl_step_take(dl_step_facts *out, dl_step *step, size_t shard, uint64_t first,
                           double lr)
{
    const dl_setup *s = step->setup;
    dl_time begin = dl_clock_now();
    dl_model_loss loss;
    DL_TRY(gradient(&out->samples, step, shard, first));
    DL_TRY(pull(step));
    diloco_status status = apply(&out->grad_norm, step, lr);
    if (status && status != DILOCO_ENUMERIC) return status;
    out->applied = !status;
    if (status) out->grad_norm = NAN;
    DL_TRY(dl_model_take_loss(s->model, &loss));
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
