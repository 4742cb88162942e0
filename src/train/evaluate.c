/* evaluate.c - validation samples in order, each target counted once. The losses are added up on
 * the backend and read once. */
#include "train/evaluate.h"

#include <diloco/train.h>

#include <math.h>

/* The model's losses so far as a mean. */
static diloco_status take(dl_score *out, const dl_setup *s)
{
    dl_model_loss loss;
    DL_TRY(dl_model_take_loss(s->model, &loss));
    double n = (double)loss.n_targets;
    *out = (dl_score){loss.sum / n, (double)loss.n_correct / n, loss.n_targets};
    return DILOCO_OK;
}

diloco_status dl_evaluate(dl_score *out, const dl_setup *s, uint64_t n_batches)
{
    if (dl_data_test_samples(s->data) == 0)
        return dl_fail(DILOCO_EINVAL,
                       "no validation data: data.test_fraction is 0 and data.test_path is empty");
    uint64_t first = 0;
    for (uint64_t batch = 0; n_batches == 0 || batch < n_batches; batch++) {
        size_t rows = dl_data_test_batch(s->data, s->inputs, s->targets, first, s->max_rows);
        if (rows == 0) break;
        DL_TRY(dl_model_eval(s->model, s->inputs, s->targets, rows));
        first += rows;
    }
    return take(out, s);
}

diloco_status dl_evaluate_samples(dl_score *out, const dl_setup *s, size_t shard, uint64_t first,
                                  size_t rows)
{
    dl_data_batch(s->data, s->inputs, s->targets, shard, first, rows);
    DL_TRY(dl_model_eval(s->model, s->inputs, s->targets, rows));
    return take(out, s);
}

/* theta takes the parameters' place for a while; what was there waits in the gradient's memory,
 * which is free between steps. */
diloco_status dl_evaluate_shared(dl_score *held_out, dl_score *next, const dl_setup *s,
                                 const diloco_run *run, size_t shard)
{
    size_t n_tensors, bytes = dl_model_n_parameters(s->model) * sizeof(float);
    float *parameters = dl_model_parameters(s->model), *aside = dl_model_gradients(s->model);
    dl_model_tensors(s->model, &n_tensors);

    dl_backend_copy_within(s->backend, aside, parameters, bytes);
    DL_TRY(dl_backend_sync(s->backend));
    dl_backend_enter(s->backend);
    diloco_status status = diloco_run_theta(run, s->places, n_tensors);
    dl_backend_leave(s->backend);
    if (!status) status = dl_evaluate(held_out, s, (uint64_t)s->config.eval_batches);
    if (!status && next)
        status = dl_evaluate_samples(next, s, shard, diloco_run_now(run).sample,
                                     (size_t)s->config.batch_size);
    dl_backend_copy_within(s->backend, parameters, aside, bytes);
    return status;
}

diloco_status diloco_eval(diloco_eval_result *out, const diloco_config *config)
{
    enum { ROWS = 8 }; /* enough to fill the matrix products */
    dl_setup s;
    dl_score score = {0};
    *out = (diloco_eval_result){.entry = 0};
    DL_TRY(dl_setup_open_run(&s, &out->entry, config, 1, ROWS));
    diloco_status status = dl_evaluate(&score, &s, 0);
    out->loss = score.loss;
    out->perplexity = exp(score.loss);
    out->accuracy = score.accuracy;
    out->targets = score.n_targets;
    out->images = s.sample->kind == DL_IMAGES;
    dl_setup_close(&s);
    return status;
}
