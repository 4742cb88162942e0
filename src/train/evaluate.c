/* evaluate.c - validation samples in order, each target counted once. The losses are added up on
 * the backend and read once, so that the host waits once for all batches. */
#include "train/evaluate.h"

#include "base/sized.h"
#include "data/corpus.h"
#include <diloco/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the mean of the model's losses so far. */
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
        DL_TRY(dl_data_await_test(s->data, first, s->max_rows));
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
    DL_TRY(dl_data_await(s->data, shard, first, rows));
    dl_data_batch(s->data, s->inputs, s->targets, shard, first, rows);
    DL_TRY(dl_model_eval(s->model, s->inputs, s->targets, rows));
    return take(out, s);
}

/* Copies the parameters to the gradients' memory, which is free between steps, while other values
 * are evaluated. */
static diloco_status set_aside(const dl_setup *s)
{
    dl_backend_copy_within(s->backend, dl_model_gradients(s->model), dl_model_parameters(s->model),
                           dl_model_n_parameters(s->model) * sizeof(float));
    return dl_backend_sync(s->backend);
}

/* Restores the parameters that set_aside() has copied. */
static void put_back(const dl_setup *s)
{
    dl_backend_copy_within(s->backend, dl_model_parameters(s->model), dl_model_gradients(s->model),
                           dl_model_n_parameters(s->model) * sizeof(float));
}

diloco_status dl_evaluate_shared(dl_score *held_out, dl_score *next, const dl_setup *s,
                                 const diloco_run *run, size_t shard)
{
    DL_TRY(set_aside(s));
    diloco_status status = diloco_run_theta(run, s->places, s->n_tensors);
    if (!status) dl_staging_push(&s->staged_parameters);
    if (!status) status = dl_evaluate(held_out, s, (uint64_t)s->config.eval_batches);
    if (!status && next)
        status = dl_evaluate_samples(next, s, shard, diloco_run_now(run).sample,
                                     (size_t)s->config.batch_size);
    put_back(s);
    return status;
}

/* A tensor with a place is float32. */
static size_t bytes_of(const diloco_tensor *t)
{
    size_t n = sizeof(float);
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

diloco_status dl_evaluate_other(dl_score *held_out, const dl_setup *s, const void *const *data)
{
    DL_TRY(set_aside(s));
    for (size_t i = 0; i < s->n_tensors; i++)
        if (s->places[i]) memcpy(s->places[i], data[i], bytes_of(&s->tensors[i]));
    dl_staging_push(&s->staged_parameters);
    diloco_status status = dl_evaluate(held_out, s, (uint64_t)s->config.eval_batches);
    put_back(s);
    const diloco_status waited = dl_backend_sync(s->backend);
    return status ? status : waited;
}

/* Evaluates the newest model of a run on all of its validation data. */
static diloco_status evaluate_run(diloco_eval_result *out, const diloco_config *config)
{
    enum { ROWS = 8 }; /* enough to fill the matrix products */
    dl_setup s;
    dl_score score = {0};
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

diloco_status diloco_eval_sized(diloco_eval_result *out, size_t size, const diloco_config *config)
{
    diloco_eval_result result = {.entry = 0};
    const diloco_status status = evaluate_run(&result, config);
    dl_sized_out(out, size, &result, sizeof result);
    return status;
}

/* ---- any text */

enum { ROWS_OF_TEXT = 8 }; /* windows of one batch */

/* A text as one row of tokens. */
typedef struct text {
    int32_t *tokens; /* owned */
    size_t n, bytes; /* bytes: of all but the first token */
} text;

/* Encodes all files of the text, one after the other. The first token is never a target, so its
 * bytes do not count for bits_per_byte. */
static diloco_status encode_text(text *t, const dl_setup *s, const dl_corpus *corpus)
{
    size_t len = 0, first;
    char room[16];
    t->tokens = malloc(dl_size_max((size_t)corpus->n, 1) * sizeof *t->tokens);
    if (!t->tokens)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a text of %zu bytes", (size_t)corpus->n);
    for (size_t i = 0; i < corpus->n_files; i++) {
        const dl_map *map = &corpus->files[i].map;
        DL_TRY(dl_data_encode(s->data, t->tokens + t->n, &len, (const char *)map->data, map->len));
        t->n += len;
    }
    if (t->n < 2)
        return dl_fail(DILOCO_EINVAL,
                       "the text gives %zu tokens; two are needed, and a run whose "
                       "tokenizer is known",
                       t->n);
    dl_data_token_text(s->data, &first, room, t->tokens[0]);
    t->bytes = (size_t)corpus->n - first;
    return DILOCO_OK;
}

/* Cuts a window: targets are tokens first + 1 … first + T; tokens after the text's end do not
 * count. */
static void cut_window(int32_t *inputs, int32_t *targets, const text *t, size_t first, size_t T)
{
    for (size_t i = 0; i < T; i++) {
        bool inside = first + i + 1 < t->n;
        inputs[i] = inside ? t->tokens[first + i] : 0;
        targets[i] = inside ? t->tokens[first + i + 1] : -1;
    }
}

/* Windows do not overlap: each token but the first is a target once, with up to T - 1 tokens before
 * it as its context. */
static diloco_status score_text(dl_score *out, const dl_setup *s, const text *t)
{
    size_t T = s->sample->length, first = 0;
    int32_t *inputs = s->inputs;
    while (first + 1 < t->n) {
        size_t rows = 0;
        for (; rows < s->max_rows && first + 1 < t->n; rows++, first += T)
            cut_window(inputs + rows * T, s->targets + rows * T, t, first, T);
        DL_TRY(dl_model_eval(s->model, inputs, s->targets, rows));
    }
    return take(out, s);
}

static diloco_status evaluate_text(diloco_text_result *out, const dl_setup *s, const char *list)
{
    dl_corpus corpus;
    dl_score score = {0};
    text t = {.n = 0};
    if (s->sample->kind != DL_TOKENS)
        return dl_fail(DILOCO_EREFUSED, "the run's model takes images, not text");
    DL_TRY(dl_corpus_open(&corpus, &dl_source_text, list, "the text"));
    diloco_status status = encode_text(&t, s, &corpus);
    if (!status) status = score_text(&score, s, &t);
    out->targets = score.n_targets;
    out->bytes = t.bytes;
    out->loss = score.loss;
    out->perplexity = exp(score.loss);
    out->accuracy = score.accuracy;
    out->bits_per_byte = score.loss / log(2) * (double)score.n_targets / (double)t.bytes;
    free(t.tokens);
    dl_corpus_close(&corpus);
    return status;
}

diloco_status diloco_eval_text_sized(diloco_text_result *out, size_t size,
                                     const diloco_config *config, const char *list)
{
    dl_setup s;
    diloco_text_result result = {.entry = 0};
    dl_sized_out(out, size, &result, sizeof result);
    DL_TRY(dl_setup_open_run(&s, &result.entry, config, 0, ROWS_OF_TEXT));
    diloco_status status = evaluate_text(&result, &s, list);
    dl_setup_close(&s);
    dl_sized_out(out, size, &result, sizeof result);
    return status;
}
