/* setup.c - opens settings, data, threads, backend and model in this order, and closes them in the
 * reverse one. Each step needs the one before: the vocabulary of a model may come from its data. */
#include "train/setup.h"

#include "nn/device.h"
#include "run/extension.h"
#include "train/weights.h"
#include <diloco/inspect.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dl_setup_threads(const dl_config *config)
{
    int64_t each = dl_cores() / dl_local_replicas(config);
    if (config->threads) return (int)config->threads;
    return each > 1 ? (int)each : 1;
}

/* ---- settings */

/* Sets the options on which replicas agree, and which were not given, from the run's settings. */
static diloco_status copy_agreed(dl_config *to, const dl_config *run)
{
    dl_buf text;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&text, 2 * DL_PATH_MAX);
    for (size_t i = 0; !status && i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!(row->flags & DL_OPTION_AGREE) || dl_config_given(to, row->name)) continue;
        dl_buf_clear(&text);
        status = dl_option_text(&text, row, run);
        const char *value = status ? NULL : dl_buf_str(&text);
        if (!status && !value)
            status = dl_fail(DILOCO_ENOMEM, "out of memory for an option's text");
        if (!status) status = dl_config_set(to, row->name, value, "run");
    }
    dl_buf_deinit(&text);
    return status;
}

diloco_status dl_setup_take_run(dl_config *config, bool all)
{
    if (all) return diloco_run_config(config, config->store);
    dl_config *run = malloc(sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "out of memory for the run's settings");
    *run = *config;
    diloco_status status = diloco_run_config(run, config->store);
    if (!status) status = copy_agreed(config, run);
    if (!status) dl_run_take_first_step(config, run); /* also if 0 was given */
    free(run);
    return status;
}

/* ---- opening */

/* Takes parameters.model.vocab from the data if it is 0. */
static diloco_status resolve_vocab(dl_setup *s)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", s->sample->classes);
    if (s->config.vocab || s->sample->kind != DL_TOKENS) return DILOCO_OK;
    return dl_config_set(&s->config, "parameters.model.vocab", text, "data");
}

/* The run's tokenizer is the one it began with. */
static diloco_status resolve_tokenizer(dl_setup *s)
{
    const char *ours = dl_data_tokenizer_digest(s->data), *runs = s->config.tokenizer_digest;
    if (*runs && strcmp(ours, runs) != 0)
        return dl_fail(DILOCO_EDIFFERS,
                       "data.tokenizer_path = \"%s\" has digest %s, and the run's tokenizer %s: "
                       "take the file that the run began with",
                       s->config.tokenizer_path, ours, runs);
    if (!*ours) return DILOCO_OK;
    return dl_config_set(&s->config, "data.tokenizer_digest", ours, "data");
}

/* Parameters and float buffers are one array; a counter is apart from it. */
static diloco_status stage_tensor(dl_setup *s, diloco_tensor *t)
{
    if (t->dtype != DILOCO_F32)
        return dl_staging_add(&s->staged_counters, &t->data, t->data, sizeof(int64_t));
    t->data = s->parameters + ((const float *)t->data - dl_model_parameters(s->model));
    return DILOCO_OK;
}

/* Makes the host places of the model's tensors. */
static diloco_status stage_model(dl_setup *s)
{
    void *host;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &s->n_tensors);
    s->staged_parameters.backend = s->staged_counters.backend = s->backend;
    s->tensors = calloc(s->n_tensors, sizeof *s->tensors);
    s->places = calloc(s->n_tensors, sizeof *s->places);
    if (!s->tensors || !s->places)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", s->n_tensors);
    DL_TRY(dl_staging_add(&s->staged_parameters, &host, dl_model_parameters(s->model),
                          dl_model_n_parameters(s->model) * sizeof(float)));
    s->parameters = host;
    for (size_t i = 0; i < s->n_tensors; i++) {
        s->tensors[i] = tensors[i];
        DL_TRY(stage_tensor(s, &s->tensors[i]));
        s->places[i] = tensors[i].dtype == DILOCO_F32 ? s->tensors[i].data : NULL;
    }
    return DILOCO_OK;
}

static diloco_status take_memory(dl_setup *s)
{
    size_t bytes;
    bool fits = dl_size_mul(&bytes, s->max_rows, dl_sample_bytes(s->sample));
    s->inputs = fits ? malloc(bytes) : NULL;
    fits = dl_size_mul(&bytes, s->max_rows * sizeof(int32_t), s->sample->length);
    s->targets = fits ? malloc(bytes) : NULL;
    if (!s->inputs || !s->targets)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a batch of %zu samples", s->max_rows);
    return stage_model(s);
}

/* Opens the first device. The others' models train only, so the step opens them (ranks.h). Their
 * number is in the name, since it decides the order in which gradients are added. So is another
 * precision than f32, which makes other bits. */
static diloco_status open_device(dl_setup *s)
{
    dl_device_list list;
    DL_TRY(dl_device_of_name(&list, s->config.device));
    DL_TRY(dl_device_open(&s->backend, s->config.device, 0));
    const char *card = dl_backend_card(s->backend);
    const bool narrow = dl_model_element(&s->config, s->backend->ops->device) == DILOCO_BF16;
    char number[32] = "";
    if (list.n > 1) snprintf(number, sizeof number, "%zu x ", list.n);
    snprintf(s->device_name, sizeof s->device_name, "%s%.100s%s", number, card,
             narrow ? ", bf16" : "");
    return DILOCO_OK;
}

/* The tokenizer is resolved before the model is made, since a wrong one is an error. */
static diloco_status open_all(dl_setup *s, size_t n_shards)
{
    DL_TRY(n_shards ? dl_data_open(&s->data, &s->config, n_shards)
                    : dl_data_open_words(&s->data, &s->config));
    s->sample = dl_data_sample(s->data);
    DL_TRY(resolve_vocab(s));
    DL_TRY(resolve_tokenizer(s));
    DL_TRY(dl_pool_create(&s->pool, (int)s->config.threads));
    DL_TRY(open_device(s));
    DL_TRY(dl_model_create(&s->model, &s->config, s->sample, s->max_rows, s->backend, s->pool));
    return take_memory(s);
}

diloco_status dl_setup_open(dl_setup *out, const dl_config *config, size_t n_shards,
                            size_t max_rows)
{
    *out = (dl_setup){.config = *config, .max_rows = max_rows};
    out->config.threads = dl_setup_threads(config);
    diloco_status status = open_all(out, n_shards);
    if (status) dl_setup_close(out);
    return status;
}

void dl_setup_close(dl_setup *s)
{
    free(s->inputs);
    free(s->targets);
    free(s->places);
    free(s->tensors);
    dl_staging_deinit(&s->staged_parameters);
    dl_staging_deinit(&s->staged_counters);
    dl_device_exchange_deinit(&s->device_exchange);
    dl_model_destroy(s->model);
    dl_backend_destroy(s->backend);
    dl_pool_destroy(s->pool);
    dl_data_close(s->data);
    *s = (dl_setup){.data = NULL};
}

/* ---- the shared model of a run */

/* Loads the newest shared model. Returns DILOCO_EPROTO if its tensors do not fit the run's
 * settings. */
static diloco_status load_theta(const dl_setup *s, uint64_t *entry)
{
    void *bytes;
    size_t len;
    dl_st theta;
    DL_TRY(diloco_theta_read(&bytes, &len, entry, s->config.store, UINT64_MAX));
    diloco_status status = dl_st_open(&theta, bytes, len);
    if (!status) {
        status = dl_weights_load(s, &theta);
        if (status)
            status = dl_fail_context(DILOCO_EPROTO, "the shared model of %s", s->config.store);
        dl_st_close(&theta);
    }
    diloco_free(bytes);
    return status;
}

diloco_status dl_setup_open_run(dl_setup *out, uint64_t *entry, const dl_config *config,
                                size_t n_shards, size_t max_rows)
{
    dl_config *merged = malloc(sizeof *merged);
    if (!merged) return dl_fail(DILOCO_ENOMEM, "out of memory for the run's settings");
    *merged = *config;
    /* One model on the whole machine. */
    merged->local_replicas = 1;
    diloco_status status = dl_setup_take_run(merged, true);
    if (!status) status = dl_setup_open(out, merged, n_shards, max_rows);
    free(merged);
    if (status) return status;
    status = load_theta(out, entry);
    if (status) dl_setup_close(out);
    return status;
}
