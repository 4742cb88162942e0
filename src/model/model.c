/* model.c - common parts of all models: the graph's memory, batches in, loss out. The list
 * of models is in model_rows.h. */
#include "model/model.h"

#include "base/rng.h"
#include "model/model_rows.h"
#include "nn/graph_parts.h"
#include "nn/op.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;     /* of trainer.model_name */
    dl_sample_kind takes; /* of data; another kind is refused */
    dl_model_build build;
} models[] = {
#define ROW(name, takes) {#name, takes, dl_##name##_build},
    DL_MODELS(ROW)};
enum { N_MODELS = sizeof models / sizeof models[0] };

struct dl_model {
    dl_sample sample;
    dl_graph *graph;        /* owned */
    diloco_tensor *tensors; /* owned; names and data are the graph's */
    bool *hidden;           /* owned */
    uint64_t n_targets;     /* counted since the last take */
};

const char *dl_model_name_at(size_t i)
{
    return i < N_MODELS ? models[i].name : NULL;
}

/* ---- building ------------------------------------------------------------------------ */

diloco_status dl_model_classes(size_t *classes, const dl_config *config, const dl_sample *sample)
{
    size_t channels = (size_t)config->in_channels;
    *classes = config->num_classes ? (size_t)config->num_classes : sample->classes;
    if (*classes < sample->classes)
        return dl_fail(DILOCO_EINVAL,
                       "parameters.model.num_classes = %zu, but data.datasource = \"%s\" has %zu",
                       *classes, config->datasource, sample->classes);
    if (channels && channels != sample->channels)
        return dl_fail(DILOCO_EINVAL,
                       "parameters.model.in_channels = %zu, but the images of data.datasource = "
                       "\"%s\" have %zu: leave it 0",
                       channels, config->datasource, sample->channels);
    return DILOCO_OK;
}

/* Freezes the parameters whose names begin with `prefix`, of `len` bytes; buffers stay buffers.
 * Returns their number. */
static size_t freeze(dl_graph *g, const char *prefix, size_t len)
{
    size_t n = 0;
    for (int i = 0; i < g->n_weights; i++)
        if (strncmp(g->weights[i].name, prefix, len) == 0 && g->weights[i].role != DILOCO_BUFFER) {
            g->weights[i].role = DILOCO_FROZEN;
            n++;
        }
    return n;
}

/* Freezes by a list of prefixes. A prefix that fits no parameter is an error, since it is most
 * likely a misspelled name. */
static diloco_status freeze_all(dl_graph *g, const char *list)
{
    const char *end;
    size_t n_trained = 0;
    for (const char *at = list + strspn(list, " "); *at; at = end + strspn(end, ", ")) {
        end = at + strcspn(at, ", ");
        if (freeze(g, at, (size_t)(end - at)) == 0)
            return dl_fail(DILOCO_EINVAL,
                           "parameters.model.frozen: no parameter's name begins with \"%.*s\"; "
                           "the first one is %s",
                           (int)(end - at), at, g->weights[0].name);
    }
    for (int i = 0; i < g->n_weights; i++)
        n_trained += g->weights[i].role == DILOCO_PARAMETER;
    if (n_trained) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "parameters.model.frozen = \"%s\" leaves nothing to train", list);
}

/* Builds a graph from one row, and freezes what the options say. *out is NULL after an error. */
static diloco_status build_row(dl_graph **out, size_t row, const dl_config *config,
                               const dl_sample *sample, const dl_graph_target *target)
{
    if (models[row].takes != sample->kind)
        return dl_fail(DILOCO_EINVAL,
                       "trainer.model_name = \"%s\" takes %s, and data.datasource = \"%s\" gives "
                       "%s: choose one that fits the other",
                       models[row].name, dl_sample_kind_name(models[row].takes), config->datasource,
                       dl_sample_kind_name(sample->kind));
    DL_TRY(models[row].build(out, config, sample, target));
    diloco_status status = freeze_all(*out, config->frozen);
    if (status) {
        dl_graph_destroy(*out);
        *out = NULL;
    }
    return status;
}

static diloco_status build(dl_graph **out, const dl_config *config, const dl_sample *sample,
                           const dl_graph_target *target)
{
    *out = NULL;
    for (size_t i = 0; i < N_MODELS; i++)
        if (strcmp(models[i].name, config->model) == 0)
            return build_row(out, i, config, sample, target);
    return dl_fail(DILOCO_EINVAL,
                   "trainer.model_name: there is no \"%s\"; 'diloco train --help' lists them",
                   config->model);
}

/* A convolution's weight has four dimensions, so it is not one either. */
static bool is_hidden(const dl_weight *w)
{
    return w->n_dims == 2 && !w->end;
}

diloco_status dl_model_plan_for(dl_model_plan *out, const dl_config *config,
                                const dl_sample *sample, const dl_graph_target *target)
{
    dl_graph *g;
    size_t bytes = 0, activations;
    *out = (dl_model_plan){0};
    DL_TRY(build(&g, config, sample, target));
    diloco_status status = dl_graph_plan(g, &bytes, &activations);
    out->n_floats = g->n_parameters;
    out->parameter_bytes = out->gradient_bytes = g->n_parameters * sizeof(float);
    out->activation_bytes = bytes - dl_size_min(bytes, 2 * out->parameter_bytes);
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        if (w->role != DILOCO_BUFFER) out->n_parameters += w->rows * w->columns;
        if (w->dtype == DILOCO_F32)
            dl_inner_sizes_add(&out->inner, w->rows, w->columns, is_hidden(w));
    }
    for (int i = 0; i < g->n_nodes; i++) /* backward takes two products for each forward one */
        if (g->nodes[i].op->flops)
            out->flops_per_token += 3 * g->nodes[i].op->flops(g, &g->nodes[i]);
    dl_graph_destroy(g);
    return status;
}

/* Describes the graph's weights as tensors; data is NULL in a sketch. */
static diloco_status list_tensors(dl_model *model)
{
    const dl_graph *g = model->graph;
    model->tensors = calloc((size_t)g->n_weights, sizeof *model->tensors);
    model->hidden = calloc((size_t)g->n_weights, sizeof *model->hidden);
    if (!model->tensors || !model->hidden)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %d tensors", g->n_weights);
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        diloco_tensor *t = &model->tensors[i];
        *t = (diloco_tensor){
            .name = w->name, .dtype = w->dtype, .role = w->role, .n_dims = w->n_dims};
        if (g->memory && w->dtype == DILOCO_I64)
            t->data = g->counters + w->offset;
        else if (g->memory)
            t->data = g->parameters + w->offset;
        memcpy(t->shape, w->shape, sizeof t->shape);
        model->hidden[i] = is_hidden(w);
    }
    return DILOCO_OK;
}

diloco_dtype dl_model_element(const dl_config *config, dl_device device)
{
    const bool narrow = config->precision == DL_PRECISION_BF16 && device != DL_DEVICE_CPU;
    return narrow ? DILOCO_BF16 : DILOCO_F32;
}

/* Builds the graph, and allocates its memory unless backend is NULL. */
static diloco_status make(dl_model **out, const dl_config *config, const dl_sample *sample,
                          size_t max_rows, dl_backend *backend, dl_pool *pool)
{
    *out = NULL;
    dl_model *model = calloc(1, sizeof *model);
    if (!model) return dl_fail(DILOCO_ENOMEM, "out of memory for a model");
    model->sample = *sample;
    const dl_device device = backend ? backend->ops->device : DL_DEVICE_CPU;
    const dl_graph_target target = {.max_rows = max_rows,
                                    .device = device,
                                    .element = dl_model_element(config, device),
                                    .n_threads = backend ? dl_pool_size(pool) : 1};
    diloco_status status = build(&model->graph, config, sample, &target);
    if (!status && backend) status = dl_graph_allocate(model->graph, backend, pool);
    if (!status) status = list_tensors(model);
    if (status) {
        dl_model_destroy(model);
        return status;
    }
    *out = model;
    return DILOCO_OK;
}

diloco_status dl_model_create(dl_model **out, const dl_config *config, const dl_sample *sample,
                              size_t max_rows, dl_backend *backend, dl_pool *pool)
{
    return make(out, config, sample, max_rows, backend, pool);
}

diloco_status dl_model_sketch(dl_model **out, const dl_config *config, const dl_sample *sample)
{
    return make(out, config, sample, 1, NULL, NULL);
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

/* Uniform in [-spread, spread). Each tensor has its own stream, so their order does not matter. */
static void draw_uniform(float *to, size_t n, float spread, uint64_t seed, uint64_t stream)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, stream, 0);
    for (size_t k = 0; k < n; k++)
        to[k] = spread * (2 * dl_rng_f32(&rng) - 1);
}

void dl_model_initial(const dl_model *model, float *host, uint64_t seed)
{
    for (int i = 0; i < model->graph->n_weights; i++) {
        const dl_weight *w = &model->graph->weights[i];
        float *to = host + w->offset;
        size_t n = w->dtype == DILOCO_F32 ? w->rows * w->columns : 0;
        uint64_t stream = DL_STREAM(DL_STREAM_INIT, i);
        if (w->initial == DL_INITIAL_NORMAL)
            dl_rng_normal(to, n, seed, stream);
        else if (w->initial == DL_INITIAL_UNIFORM)
            draw_uniform(to, n, w->spread, seed, stream);
        for (size_t k = 0; k < n; k++) {
            if (w->initial == DL_INITIAL_NORMAL) to[k] *= w->spread;
            if (w->initial == DL_INITIAL_ONES) to[k] = 1;
            if (w->initial == DL_INITIAL_ZEROS) to[k] = 0;
        }
    }
}

/* ---- batches ------------------------------------------------------------------------- */

/* Checks indices before they reach an operation, which would read outside of a table. Only targets
 * may be negative: such a position is not counted. */
static diloco_status check_tokens(const dl_model *model, const int32_t *tokens, size_t n,
                                  const char *what, bool may_be_negative)
{
    size_t vocab = model->graph->n_logits;
    const char *unit = model->sample.kind == DL_TOKENS ? "token" : "class";
    for (size_t i = 0; i < n; i++)
        if ((tokens[i] < 0 && !may_be_negative) || (tokens[i] >= 0 && (size_t)tokens[i] >= vocab))
            return dl_fail(DILOCO_EINVAL, "%s %zu is %s %d, but the model has %zu", what, i, unit,
                           (int)tokens[i], vocab);
    return DILOCO_OK;
}

static diloco_status load_inputs(dl_model *model, const void *inputs, size_t rows, size_t length)
{
    dl_graph *g = model->graph;
    if (rows < 1 || rows > g->target.max_rows || length < 1 || length > g->max_length)
        return dl_fail(DILOCO_EINVAL,
                       "a batch of %zu samples of length %zu; the model was made for 1 to %zu of"
                       " length 1 to %zu",
                       rows, length, g->target.max_rows, g->max_length);
    if (model->sample.kind == DL_IMAGES) {
        dl_backend_copy_in(g->backend, g->pass.images, inputs, rows * g->image_bytes);
        return DILOCO_OK;
    }
    DL_TRY(check_tokens(model, inputs, rows * length, "input", false));
    dl_backend_copy_in(g->backend, g->pass.inputs, inputs, rows * length * sizeof(int32_t));
    return DILOCO_OK;
}

size_t dl_model_batch_bytes(const dl_model *model, size_t rows)
{
    const dl_graph *g = model->graph;
    const size_t targets = g->max_length * sizeof(int32_t);
    return rows * (targets + (model->sample.kind == DL_IMAGES ? g->image_bytes : targets));
}

/* Copies a batch to the backend and queues its pass. After an error no gradient and no loss has
 * changed. A batch without counted targets has gain 0, and so gradients of 0. */
static diloco_status run(dl_model *model, const void *inputs, const int32_t *targets, size_t rows,
                         dl_batch batch, float scale)
{
    dl_graph *g = model->graph;
    size_t n = rows * g->max_length, counted = 0;
    DL_TRY(load_inputs(model, inputs, rows, g->max_length));
    DL_TRY(check_tokens(model, targets, n, "target", true));
    dl_backend_copy_in(g->backend, g->pass.targets, targets, n * sizeof *targets);
    for (size_t i = 0; i < n; i++)
        counted += targets[i] >= 0;
    batch.rows = rows;
    batch.length = g->max_length;
    batch.gain = counted ? scale / (float)counted : 0;
    dl_graph_run(g, &batch);
    if (batch.mode == DL_EVAL) dl_backend_submit(g->backend); /* the optimizer adds nothing to it */
    model->n_targets += counted;
    return DILOCO_OK;
}

diloco_status dl_model_train(dl_model *model, const void *inputs, const int32_t *targets,
                             size_t rows, float scale, bool accumulate)
{
    return dl_model_train_watched(model, inputs, targets, rows, scale, accumulate, NULL);
}

diloco_status dl_model_train_watched(dl_model *model, const void *inputs, const int32_t *targets,
                                     size_t rows, float scale, bool accumulate,
                                     const dl_gradient_watch *watch)
{
    const dl_batch batch = {.mode = DL_TRAIN, .accumulate = accumulate};
    model->graph->pass.watch = watch;
    const diloco_status status = run(model, inputs, targets, rows, batch, scale);
    model->graph->pass.watch = NULL;
    return status;
}

size_t dl_model_parts(const dl_model *model, dl_gradient_part *out, size_t cap, size_t least)
{
    return dl_graph_parts(model->graph, out, cap, least);
}

diloco_status dl_model_eval(dl_model *model, const void *inputs, const int32_t *targets,
                            size_t rows)
{
    return run(model, inputs, targets, rows, (dl_batch){.mode = DL_EVAL}, 1);
}

/* The sums come from the backend, n_targets from the host, which counted it while it queued. After
 * a failure of the device copy_out writes zeros, and only the sync after it reports that. */
diloco_status dl_model_take_loss(dl_model *model, dl_model_loss *out)
{
    dl_graph *g = model->graph;
    dl_tally tally;
    dl_backend_copy_out(g->backend, &tally, g->pass.tally, sizeof tally);
    DL_TRY(dl_backend_sync(g->backend));
    dl_backend_zero(g->backend, g->pass.tally, sizeof tally);
    *out = (dl_model_loss){tally.loss, model->n_targets, tally.n_correct};
    model->n_targets = 0;
    return DILOCO_OK;
}

/* copy_out waits, so no sync is needed. A failure of the device shows as zeros here, and as an
 * error of the next sync. */
diloco_status dl_model_logits(dl_model *model, float *logits, const void *input, size_t n)
{
    dl_graph *g = model->graph;
    DL_TRY(load_inputs(model, input, 1, n));
    dl_graph_run(g, &(dl_batch){.rows = 1, .length = n, .mode = DL_PREDICT});
    dl_backend_copy_out(g->backend, logits, g->pass.logits, g->n_logits * sizeof *logits);
    return DILOCO_OK;
}

void dl_model_profile(dl_model *model, struct dl_profile *profile)
{
    model->graph->pass.profile = profile;
}
