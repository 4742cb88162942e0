/* model.c - what all models share: the graph's memory, batches in, loss out. A model is a
 * file and a row. */
#include "model/model.h"

#include "base/rng.h"
#include "model/rows.h"
#include "nn/op.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    dl_model_build build;
} models[] = {
    {"gpt", dl_gpt_build},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

struct dl_model {
    dl_graph *graph;        /* owned */
    diloco_tensor *tensors; /* owned; names and data are the graph's */
    bool *hidden;           /* owned */
    uint64_t n_targets;     /* counted since the last take */
};

const char *dl_model_name_at(size_t i)
{
    return i < N_MODELS ? models[i].name : NULL;
}

static diloco_status build(dl_graph **out, const dl_config *config, size_t vocab, size_t max_rows,
                           int n_threads)
{
    *out = NULL;
    for (size_t i = 0; i < N_MODELS; i++)
        if (strcmp(models[i].name, config->model) == 0)
            return models[i].build(out, config, vocab, max_rows, n_threads);
    return dl_fail(DILOCO_EINVAL, "trainer.model_name: there is no \"%s\"; use gpt", config->model);
}

static bool is_hidden(const dl_weight *w)
{
    return w->n_dims == 2 && !w->end;
}

diloco_status dl_model_plan_for(dl_model_plan *out, const dl_config *config, size_t vocab,
                                size_t max_rows, int n_threads)
{
    dl_graph *g;
    size_t bytes = 0, activations;
    *out = (dl_model_plan){0};
    DL_TRY(build(&g, config, vocab, max_rows, n_threads));
    diloco_status status = dl_graph_plan(g, &bytes, &activations);
    out->n_parameters = g->n_parameters;
    out->parameter_bytes = out->gradient_bytes = g->n_parameters * sizeof(float);
    out->activation_bytes = bytes - dl_size_min(bytes, 2 * out->parameter_bytes);
    for (int i = 0; i < g->n_weights; i++)
        dl_inner_sizes_add(&out->inner, g->weights[i].rows, g->weights[i].columns,
                           is_hidden(&g->weights[i]));
    for (int i = 0; i < g->n_nodes; i++) /* backward takes two products for each forward one */
        if (g->nodes[i].op->flops)
            out->flops_per_token += 3 * g->nodes[i].op->flops(g, &g->nodes[i]);
    dl_graph_destroy(g);
    return status;
}

static diloco_status list_tensors(dl_model *model)
{
    const dl_graph *g = model->graph;
    model->tensors = calloc((size_t)g->n_weights, sizeof *model->tensors);
    model->hidden = calloc((size_t)g->n_weights, sizeof *model->hidden);
    if (!model->tensors || !model->hidden)
        return dl_fail(DILOCO_ENOMEM, "no memory for %d tensors", g->n_weights);
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        diloco_tensor *t = &model->tensors[i];
        *t = (diloco_tensor){.name = w->name,
                             .data = g->parameters + w->offset,
                             .dtype = DILOCO_F32,
                             .role = w->role,
                             .n_dims = w->n_dims};
        model->hidden[i] = is_hidden(w);
        if (w->n_dims == 2) t->shape[0] = w->rows;
        t->shape[w->n_dims - 1] = w->columns;
    }
    return DILOCO_OK;
}

diloco_status dl_model_create(dl_model **out, const dl_config *config, size_t vocab,
                              size_t max_rows, dl_backend *backend, dl_pool *pool)
{
    *out = NULL;
    dl_model *model = calloc(1, sizeof *model);
    if (!model) return dl_fail(DILOCO_ENOMEM, "no memory for a model");
    diloco_status status = build(&model->graph, config, vocab, max_rows, dl_pool_size(pool));
    if (!status) status = dl_graph_allocate(model->graph, backend, pool);
    if (!status) status = list_tensors(model);
    if (status) {
        dl_model_destroy(model);
        return status;
    }
    *out = model;
    return DILOCO_OK;
}

void dl_model_destroy(dl_model *model)
{
    if (!model) return;
    dl_graph_destroy(model->graph);
    free(model->tensors);
    free(model->hidden);
    free(model);
}

const diloco_tensor *dl_model_tensors(const dl_model *model, size_t *n)
{
    *n = (size_t)model->graph->n_weights;
    return model->tensors;
}

const bool *dl_model_hidden(const dl_model *model)
{
    return model->hidden;
}

size_t dl_model_n_parameters(const dl_model *model)
{
    return model->graph->n_parameters;
}
float *dl_model_parameters(dl_model *model)
{
    return model->graph->parameters;
}
float *dl_model_gradients(dl_model *model)
{
    return model->graph->gradients;
}

void dl_model_initial(const dl_model *model, float *host, uint64_t seed)
{
    for (int i = 0; i < model->graph->n_weights; i++) {
        const dl_weight *w = &model->graph->weights[i];
        float *to = host + w->offset;
        size_t n = w->rows * w->columns;
        if (w->initial == DL_INITIAL_NORMAL)
            dl_rng_normal(to, n, seed, DL_STREAM(DL_STREAM_INIT, i));
        for (size_t k = 0; k < n; k++)
            to[k] = w->initial == DL_INITIAL_NORMAL ? to[k] * w->spread : 1.0f;
    }
}

/* ---- batches ------------------------------------------------------------------------- */

static diloco_status check_tokens(const dl_model *model, const int32_t *tokens, size_t n,
                                  const char *what, bool may_be_negative)
{
    size_t vocab = model->graph->n_logits;
    for (size_t i = 0; i < n; i++)
        if ((tokens[i] < 0 && !may_be_negative) || (tokens[i] >= 0 && (size_t)tokens[i] >= vocab))
            return dl_fail(DILOCO_EINVAL, "%s %zu is token %d, but the model has %zu", what, i,
                           (int)tokens[i], vocab);
    return DILOCO_OK;
}

static diloco_status load_tokens(dl_model *model, const int32_t *inputs, size_t rows, size_t length)
{
    dl_graph *g = model->graph;
    if (rows < 1 || rows > g->max_rows || length < 1 || length > g->max_length)
        return dl_fail(DILOCO_EINVAL,
                       "a batch of %zu sequences of %zu tokens; the model was made for 1 to %zu of"
                       " 1 to %zu",
                       rows, length, g->max_rows, g->max_length);
    DL_TRY(check_tokens(model, inputs, rows * length, "input", false));
    dl_backend_copy_in(g->backend, g->inputs, inputs, rows * length * sizeof *inputs);
    return DILOCO_OK;
}

static diloco_status run(dl_model *model, const int32_t *inputs, const int32_t *targets,
                         size_t rows, dl_batch batch, float scale)
{
    dl_graph *g = model->graph;
    size_t n = rows * g->max_length, counted = 0;
    DL_TRY(load_tokens(model, inputs, rows, g->max_length));
    DL_TRY(check_tokens(model, targets, n, "target", true));
    dl_backend_copy_in(g->backend, g->targets, targets, n * sizeof *targets);
    for (size_t i = 0; i < n; i++)
        counted += targets[i] >= 0;
    batch.rows = rows;
    batch.length = g->max_length;
    batch.gain = counted ? scale / (float)counted : 0;
    dl_graph_run(g, &batch);
    model->n_targets += counted;
    return DILOCO_OK;
}

diloco_status dl_model_train(dl_model *model, const int32_t *inputs, const int32_t *targets,
                             size_t rows, float scale, bool accumulate)
{
    return run(model, inputs, targets, rows, (dl_batch){.mode = DL_TRAIN, .accumulate = accumulate},
               scale);
}

diloco_status dl_model_eval(dl_model *model, const int32_t *inputs, const int32_t *targets,
                            size_t rows)
{
    return run(model, inputs, targets, rows, (dl_batch){.mode = DL_EVAL}, 1);
}

diloco_status dl_model_take_loss(dl_model *model, double *sum, uint64_t *n_targets)
{
    dl_graph *g = model->graph;
    DL_TRY(dl_backend_sync(g->backend));
    dl_backend_copy_out(g->backend, sum, &g->tally->loss, sizeof *sum);
    dl_backend_zero(g->backend, &g->tally->loss, sizeof *sum);
    *n_targets = model->n_targets;
    model->n_targets = 0;
    return DILOCO_OK;
}

diloco_status dl_model_logits(dl_model *model, float *logits, const int32_t *tokens, size_t n)
{
    dl_graph *g = model->graph;
    DL_TRY(load_tokens(model, tokens, 1, n));
    dl_graph_run(g, &(dl_batch){.rows = 1, .length = n, .mode = DL_PREDICT});
    dl_backend_copy_out(g->backend, logits, g->logits, g->n_logits * sizeof *logits);
    return DILOCO_OK;
}

void dl_model_profile(dl_model *model, struct dl_profile *profile)
{
    model->graph->profile = profile;
}
