/* opening.c - see opening.h. Options that were not given here are the run's, and the model depends
 * on them. So the run's settings are read first, if it exists, and the model is built from the
 * merged ones. dl_opening_check() detects that another replica has created the run meanwhile. */
#include "train/opening.h"

#include "presets/checks.h"
#include "presets/fragments.h"
#include "presets/presets.h"
#include "protocol/logical_clients.h"
#include "run/extension.h"
#include "run/own_trainer.h"
#include "run/run_moves.h"
#include "train/weights.h"
#include <diloco/inspect.h>

#include <stdlib.h>

/* PROTOCOL P22: each step is an entry, so the schedule sets the entries' learning rate. */
static double entry_lr(void *user, uint64_t entry)
{
    const dl_config *config = user;
    double lr = 0;
    diloco_status status = dl_schedule_lr(&lr, config, entry, (uint64_t)config->rounds, 0);
    DL_ASSERT(!status); /* the name was checked */
    return lr;
}

/* Registers the tensors. The run itself copies those on a device, for the fragments that it needs.
 */
static diloco_status register_all(diloco_run *run, dl_setup *s, int *fragment)
{
    size_t n_tensors;
    int n_fragments;
    diloco_device device;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    DL_TRY(dl_fragments_assign(fragment, &n_fragments, tensors, n_tensors, &s->config));
    if (dl_staging_device(&device, s->backend)) {
        device.name = s->device_name;
        DL_TRY(diloco_run_device(run, &device));
    }
    for (size_t i = 0; i < n_tensors; i++) {
        diloco_tensor t = tensors[i];
        t.fragment = fragment[i];
        DL_TRY(diloco_run_tensor(run, &t));
    }
    return DILOCO_OK;
}

/* Registers gradients of parameters, on the same device; the run takes the movement of buffers.
 * Both arrays of a parameter are at the same offset. */
static diloco_status register_gradients(diloco_run *run, dl_setup *s)
{
    const float *gradients = dl_model_gradients(s->model);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const diloco_tensor *t = &s->tensors[i];
        if (t->role != DILOCO_PARAMETER) continue;
        const size_t at = (size_t)((const float *)t->data - s->parameters);
        DL_TRY(diloco_run_gradient(run, t->name, gradients + at));
    }
    diloco_run_on_lr(run, entry_lr, &s->config);
    return DILOCO_OK;
}

/* Registers all tensors, the gradients in data_parallel, and the data's digest. Private pieces,
 * which are registered later, are in host memory. */
static diloco_status register_tensors(diloco_run *run, dl_setup *s, bool data_parallel)
{
    int *fragment = calloc(s->n_tensors, sizeof *fragment);
    if (!fragment) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", s->n_tensors);
    const diloco_status status = register_all(run, s, fragment);
    free(fragment);
    DL_TRY(status);
    if (data_parallel) DL_TRY(register_gradients(run, s));
    DL_TRY(diloco_run_device(run, NULL));
    return diloco_run_data_digest(run, dl_data_digest(s->data));
}

/* A backend in host memory needs no such functions: the run computes on its memory. */
static void offer_moves(diloco_run *run, dl_setup *s)
{
    size_t n_tensors;
    if (!s->config.device_exchange || s->backend->ops->in_host_memory) return;
    s->device_exchange.backend = s->backend;
    s->device_exchange.tensors = dl_model_tensors(s->model, &n_tensors);
    const dl_device_moves moves = dl_device_exchange_moves(&s->device_exchange);
    dl_run_set_moves(run, &moves);
}

/* Sets the initial state of a new run. An existing run has its own. */
static diloco_status set_initial(dl_setup *s, bool exists)
{
    const bool reads = s->config.init_from[0] && !exists;
    if (reads && s->config.init_as == DL_INIT_MODEL) return dl_weights_init(s, s->config.init_from);
    dl_model_initial(s->model, s->parameters, (uint64_t)s->config.seed);
    dl_staging_push(&s->staged_parameters);
    return reads ? dl_weights_continue(s, s->config.init_from) : DILOCO_OK;
}

diloco_status dl_opening_run(diloco_run **run, dl_setup *s, const char *name, bool exists)
{
    DL_TRY(diloco_run_open(run, &s->config, name));
    dl_run_set_own_trainer(*run);
    DL_TRY(register_tensors(*run, s, dl_preset_is(&s->config, "data_parallel")));
    offer_moves(*run, s);
    return set_initial(s, exists);
}

diloco_status dl_opening_setup(dl_setup *s, bool *exists, bool *asked, const dl_config *config,
                               size_t max_rows)
{
    dl_config *merged = malloc(sizeof *merged);
    *asked = false;
    if (!merged) return dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    *merged = *config;
    diloco_status status = config->store[0] ? dl_setup_take_run(merged, false) : DILOCO_OK;
    *exists = config->store[0] && !status;
    if (status == DILOCO_ENOENT) status = DILOCO_OK; /* this replica may be the first */
    *asked = !status;
    if (!status) status = dl_check_config(merged);
    if (!status && !*exists) status = dl_run_extend(merged, "");
    if (!max_rows) max_rows = (size_t)merged->batch_size;
    if (!status) status = dl_setup_open(s, merged, dl_clients_shards(merged), max_rows);
    free(merged);
    return status;
}

diloco_status dl_opening_check(const dl_config *config)
{
    dl_hash ours, runs;
    dl_config *run = malloc(sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    *run = *config;
    diloco_status status = diloco_run_config(run, config->store);
    if (!status) status = dl_options_digest(&ours, dl_config_table, config);
    if (!status) status = dl_options_digest(&runs, dl_config_table, run);
    if (!status && !dl_hash_equal(ours, runs))
        status = dl_fail(DILOCO_EDIFFERS,
                         "the run in %s was created with other settings while this replica "
                         "started: start it again, and it takes them from the run",
                         config->store);
    free(run);
    return status;
}
