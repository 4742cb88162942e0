/* replica.c - one replica's life: the inner loop on one side, the run on the other.
 *
 *     open data, model, optimizer --> initial parameters --> join --> { step, exchange, evaluate }*
 *                                                             ^            until the run is done
 *                                       resume: parameters, moments, counters come from here
 *
 * 1. All that decides a step is the run's position and sample number, the parameters and the
 *    private vectors; so a resumed replica goes on bitwise.
 * 2. The run reads and overwrites parameters, gradients and moments on the host. It does so
 *    inside dl_backend_enter, as an operation of a backend on this machine's processors does.
 * 3. A step whose gradient is not finite changes nothing. It still counts: its samples are used
 *    up and its position passes, or it would come again for ever. */
#include "base/log.h"
#include "train/checks.h"
#include "train/evaluate.h"
#include "train/fragments.h"
#include "train/presets.h"
#include "train/progress.h"
#include "train/recorder.h"
#include "train/setup.h"
#include "train/step.h"
#include "train/stop.h"
#include "train/weights.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many steps in a row without a finite gradient, and the replica gives up. */
enum { MAX_BAD_STEPS = 100 };

typedef struct replica {
    const char *name;
    const diloco_train_hooks *hooks; /* or NULL */
    dl_setup setup;
    bool exists; /* the run, when this replica looked for its settings */
    bool data_parallel;
    dl_step step;
    diloco_run *run;
    dl_recorder recorder;
    dl_stop *stop;
    dl_meter meter;
    diloco_run_info now;
    /* Saved with the run's private state: */
    uint64_t inner_steps;
    uint64_t rewarming; /* steps of a joiner's warm-up that are still to come */
    uint64_t bad_steps; /* in a row */
} replica;

static void progress(const replica *r, const char *phase)
{
    if (!r->hooks || !r->hooks->on_progress) return;
    diloco_progress p = dl_meter_progress(&r->meter, &r->now, phase);
    r->hooks->on_progress(r->hooks->user, &p);
}

/* ---- opening */

/* Both arrays of a parameter lie at the same offset. */
static float *gradient_of(dl_model *model, const diloco_tensor *tensor)
{
    return dl_model_gradients(model) + ((const float *)tensor->data - dl_model_parameters(model));
}

/* PROTOCOL P22: the entries are the steps, so the schedule sets their learning rate. */
static double entry_lr(void *user, uint64_t entry)
{
    const dl_config *config = user;
    double lr = 0;
    diloco_status status = dl_schedule_lr(&lr, config, entry, (uint64_t)config->rounds);
    DL_ASSERT(!status); /* the name was checked */
    return lr;
}

static diloco_status register_all(diloco_run *run, dl_setup *s, bool data_parallel, int *fragment)
{
    size_t n_tensors;
    int n_fragments;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    DL_TRY(dl_fragments_assign(fragment, &n_fragments, tensors, n_tensors, &s->config));
    for (size_t i = 0; i < n_tensors; i++) {
        diloco_tensor t = tensors[i];
        t.fragment = fragment[i];
        DL_TRY(diloco_run_tensor(run, &t));
        if (data_parallel && t.role == DILOCO_PARAMETER) /* of buffers the movement */
            DL_TRY(diloco_run_gradient(run, t.name, gradient_of(s->model, &t)));
    }
    return DILOCO_OK;
}

static diloco_status register_tensors(diloco_run *run, dl_setup *s, bool data_parallel)
{
    size_t n_tensors;
    dl_model_tensors(s->model, &n_tensors);
    int *fragment = calloc(n_tensors, sizeof *fragment);
    if (!fragment) return dl_fail(DILOCO_ENOMEM, "no memory for %zu tensors", n_tensors);
    const diloco_status status = register_all(run, s, data_parallel, fragment);
    free(fragment);
    DL_TRY(status);
    if (data_parallel) diloco_run_on_lr(run, entry_lr, &s->config);
    return diloco_run_data_digest(run, dl_data_digest(s->data));
}

static diloco_status register_privates(replica *r)
{
    dl_inner *inner = r->step.inner;
    for (size_t i = 0; inner && i < dl_inner_n_vectors(inner); i++) {
        size_t n;
        float *vector = dl_inner_vector(inner, i, &n);
        DL_TRY(
            diloco_run_private(r->run, dl_inner_vector_name(inner, i), vector, n * sizeof *vector));
    }
    DL_TRY(diloco_run_private(r->run, "inner.rewarming", &r->rewarming, sizeof r->rewarming));
    return diloco_run_private(r->run, "inner.steps", &r->inner_steps, sizeof r->inner_steps);
}

/* What a run that begins here begins from. One that is there has its own beginning. */
static diloco_status set_initial(dl_setup *s, bool exists)
{
    if (s->config.init_from[0] && !exists) return dl_weights_init(s, s->config.init_from);
    dl_backend_enter(s->backend);
    dl_model_initial(s->model, dl_model_parameters(s->model), (uint64_t)s->config.seed);
    dl_backend_leave(s->backend);
    return DILOCO_OK;
}

static diloco_status open_run(diloco_run **run, dl_setup *s, const char *name, bool exists)
{
    DL_TRY(diloco_run_open(run, &s->config, name));
    DL_TRY(register_tensors(*run, s, dl_preset_is(&s->config, "data_parallel")));
    return set_initial(s, exists);
}

/* *exists: the run is there. */
static diloco_status open_setup(dl_setup *s, bool *exists, const dl_config *config, size_t max_rows)
{
    dl_config *merged = malloc(sizeof *merged);
    if (!merged) return dl_fail(DILOCO_ENOMEM, "no memory for the settings");
    *merged = *config;
    diloco_status status = config->store[0] ? dl_setup_take_run(merged, false) : DILOCO_OK;
    *exists = config->store[0] && !status;
    if (status == DILOCO_ENOENT) status = DILOCO_OK; /* this replica may be the first */
    if (!status) status = dl_check_config(merged);
    if (!max_rows) max_rows = (size_t)merged->batch_size;
    if (!status) status = dl_setup_open(s, merged, (size_t)merged->replicas, max_rows);
    free(merged);
    return status;
}

/* Another replica may have created the run since this one looked for its settings: then those
 * that nobody gave here are not what the model was built from. */
static diloco_status check_same_settings(const dl_config *config)
{
    dl_hash ours, runs;
    dl_config *run = malloc(sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "no memory for the settings");
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

/* ---- the record */

static void record_warning(void *user, const char *code, const char *text)
{
    replica *r = user;
    if (dl_recorder_warn(&r->recorder, code, text))
        dl_log(DILOCO_LOG_WARN, "the record: %s", diloco_error_text());
}

/* Beside the run's own "run": what this machine makes of it. */
static diloco_status record_trainer(replica *r)
{
    dl_json *j = dl_recorder_begin(&r->recorder, "trainer");
    dl_json_u64(j, "generation", r->now.generation);
    dl_json_u64(j, "shard", (uint64_t)r->now.shard);
    dl_json_bool(j, "resumed", r->now.resumed);
    dl_json_u64(j, "step", r->now.step);
    dl_json_str(j, "program", diloco_version());
    dl_json_str(j, "isa", diloco_isa());
    dl_json_i64(j, "threads", r->setup.config.threads);
    dl_json_str(j, "data", dl_sample_kind_name(r->setup.sample->kind));
    dl_json_str(j, "data_digest", dl_data_digest(r->setup.data));
    DL_TRY(dl_recorder_end(&r->recorder));
    dl_check_warnings(&r->setup.config, record_warning, r);
    return DILOCO_OK;
}

static diloco_status record_step(replica *r, const dl_step_facts *facts, double lr)
{
    dl_json *j = dl_recorder_begin(&r->recorder, "step");
    dl_json_u64(j, "step", r->now.step + 1);
    dl_json_u64(j, "position", r->now.position + 1);
    dl_json_u64(j, "entry", r->now.entry);
    dl_json_u64(j, "tokens", facts->tokens);
    dl_json_u64(j, "samples", facts->samples);
    dl_json_f64(j, "loss", facts->loss);
    dl_json_f64(j, "lr", lr);
    dl_json_f64(j, "grad_norm", facts->grad_norm);
    dl_json_f64(j, "tokens_per_s", (double)facts->tokens / fmax(facts->seconds, 1e-9));
    return dl_recorder_end(&r->recorder);
}

/* ---- the shared model, evaluated */

/* theta takes the parameters' place for a while; what was there waits in the gradient's memory,
 * which is free between steps. */
static diloco_status evaluate_theta(replica *r, dl_score *held_out, dl_score *next)
{
    dl_setup *s = &r->setup;
    size_t n_tensors, bytes = dl_model_n_parameters(s->model) * sizeof(float);
    float *parameters = dl_model_parameters(s->model), *aside = dl_model_gradients(s->model);
    dl_model_tensors(s->model, &n_tensors);

    dl_backend_copy_within(s->backend, aside, parameters, bytes);
    DL_TRY(dl_backend_sync(s->backend));
    dl_backend_enter(s->backend);
    diloco_status status = diloco_run_theta(r->run, s->places, n_tensors);
    dl_backend_leave(s->backend);
    if (!status) status = dl_evaluate(held_out, s, (uint64_t)s->config.eval_batches);
    if (!status)
        status = dl_evaluate_samples(next, s, (size_t)r->now.shard, r->now.sample,
                                     (size_t)s->config.batch_size);
    dl_backend_copy_within(s->backend, parameters, aside, bytes);
    return status;
}

/* Is the state after entry - 1 one to evaluate, and is it this replica's turn? */
static bool evaluation_due(const replica *r)
{
    const dl_config *config = &r->setup.config;
    uint64_t entry = r->now.entry, every = (uint64_t)config->eval_every * r->now.fragments;
    if (dl_data_test_samples(r->setup.data) == 0 || !config->server_test) return false;
    if (entry != r->now.entries && (every == 0 || entry % every != 0)) return false;
    uint64_t turn = every ? entry / every : entry;
    return turn % (uint64_t)config->replicas == (uint64_t)r->now.shard;
}

/* "loss_after_sync" is the shared model's loss on the samples this replica trains on next: to be
 * held beside the entry's inner_loss, which says what the replicas had before. */
static diloco_status evaluate(replica *r)
{
    dl_score held_out, next;
    progress(r, "eval");
    DL_TRY(evaluate_theta(r, &held_out, &next));
    dl_json *j = dl_recorder_begin(&r->recorder, "eval");
    dl_json_u64(j, "entry", r->now.entry);
    dl_json_u64(j, "step", r->now.step);
    dl_json_f64(j, "loss", held_out.loss);
    if (r->setup.sample->kind == DL_TOKENS) dl_json_f64(j, "perplexity", exp(held_out.loss));
    dl_json_f64(j, "accuracy", held_out.accuracy);
    dl_json_f64(j, "loss_after_sync", next.loss);
    dl_json_u64(j, "targets", held_out.n_targets);
    return dl_recorder_end(&r->recorder);
}

/* ---- the loop */

static diloco_status note_bad_step(replica *r, bool applied)
{
    if (applied) {
        r->bad_steps = 0;
        return DILOCO_OK;
    }
    char text[512];
    snprintf(text, sizeof text, "step %" PRIu64 " changed nothing: %s", r->now.step + 1,
             diloco_error_text());
    dl_log(DILOCO_LOG_WARN, "%s: %s", r->name, text);
    DL_TRY(dl_recorder_warn(&r->recorder, "gradient", text));
    if (++r->bad_steps < MAX_BAD_STEPS) return DILOCO_OK;
    return dl_fail(DILOCO_ENUMERIC,
                   "%d steps in a row had no finite gradient, the last: %s; lower "
                   "parameters.optimizer.lr or look at the data",
                   MAX_BAD_STEPS, text);
}

/* PROTOCOL P14: who came without moments of its own warms up anew, wherever the schedule is. */
static void begin_rewarming(replica *r)
{
    if (r->step.inner && !r->now.resumed && r->now.position > 0)
        r->rewarming = (uint64_t)r->setup.config.rewarm_steps;
}

static double rewarmed(const replica *r, double lr)
{
    double all = (double)r->setup.config.rewarm_steps;
    return r->rewarming ? lr * (all - (double)r->rewarming + 1) / all : lr;
}

static diloco_status train_step(replica *r, diloco_step_report *report)
{
    dl_step_facts facts;
    double lr;
    DL_TRY(dl_schedule_lr(&lr, &r->setup.config, r->now.position, r->now.positions));
    lr = rewarmed(r, lr);
    DL_TRY(dl_step_take(&facts, &r->step, (size_t)r->now.shard, r->now.sample, lr));
    if (r->rewarming) r->rewarming--;
    if (r->step.inner) r->inner_steps = dl_inner_steps(r->step.inner);
    dl_meter_step(&r->meter, &facts);
    DL_TRY(note_bad_step(r, facts.applied));
    *report =
        (diloco_step_report){.loss = facts.loss, .samples = facts.samples, .tokens = facts.tokens};
    return record_step(r, &facts, lr);
}

/* Tell the run of a step; where something is due it exchanges, and may wait. */
static diloco_status report_step(replica *r, const diloco_step_report *report)
{
    dl_backend *backend = r->setup.backend;
    bool due = r->now.position + 1 >= r->now.next_stop;
    progress(r, due ? "exchange" : "train");
    DL_TRY(dl_backend_sync(backend));
    dl_backend_enter(backend);
    diloco_status status = diloco_step(r->run, report);
    dl_backend_leave(backend);
    r->now = diloco_run_now(r->run);
    return status;
}

static diloco_status stop_here(replica *r)
{
    DL_TRY(diloco_run_save(r->run));
    return dl_fail(DILOCO_EINTERRUPTED,
                   "%s stopped at step %" PRIu64 " of %" PRIu64
                   " with its state saved: the same command goes on from here",
                   r->name, r->now.position, r->now.positions);
}

static bool asked_to_stop(const replica *r)
{
    return r->now.interrupted || (r->hooks && r->hooks->stop && dl_stop_asked(r->hooks->stop));
}

static diloco_status loop(replica *r)
{
    while (!diloco_run_done(r->run)) {
        diloco_step_report report;
        uint64_t entry = r->now.entry;
        DL_TRY(train_step(r, &report));
        diloco_status status = report_step(r, &report);
        if (status && status != DILOCO_EINTERRUPTED) return status;
        if (!status && r->now.entry != entry && evaluation_due(r)) DL_TRY(evaluate(r));
        if (status || (asked_to_stop(r) && !diloco_run_done(r->run))) return stop_here(r);
    }
    return DILOCO_OK;
}

/* ---- a life */

static diloco_status join(replica *r)
{
    progress(r, "join");
    dl_backend_enter(r->setup.backend);
    diloco_status status = diloco_run_join(r->run);
    dl_backend_leave(r->setup.backend);
    if (status) return status;
    DL_TRY(check_same_settings(&r->setup.config));
    r->now = diloco_run_now(r->run);
    DL_TRY(dl_data_take(r->setup.data, (size_t)r->now.shard));
    if (r->step.inner) dl_inner_set_steps(r->step.inner, r->inner_steps);
    begin_rewarming(r);
    dl_meter_begin(&r->meter, &r->now);
    return record_trainer(r);
}

static diloco_status live(replica *r)
{
    DL_TRY(dl_step_init(&r->step, &r->setup, r->data_parallel));
    DL_TRY(open_run(&r->run, &r->setup, r->name, r->exists));
    DL_TRY(register_privates(r));
    DL_TRY(dl_recorder_open(&r->recorder, &r->setup.config, r->name, r->run, r->hooks));
    DL_TRY(dl_stop_create(&r->stop, r->hooks ? r->hooks->stop : NULL, r->run));
    DL_TRY(join(r));
    DL_TRY(loop(r));
    progress(r, "done");
    return DILOCO_OK;
}

diloco_status diloco_train(const diloco_config *config, const char *name,
                           const diloco_train_hooks *hooks)
{
    replica r = {.name = name, .hooks = hooks, .meter = {.loss = NAN}};
    DL_TRY(open_setup(&r.setup, &r.exists, config, 0));
    r.data_parallel = dl_preset_is(&r.setup.config, "data_parallel");
    diloco_status status = live(&r);
    char text[2048]; /* what went wrong, whatever goes wrong in closing */
    snprintf(text, sizeof text, "%s", diloco_error_text());
    dl_stop_destroy(r.stop);
    dl_recorder_close(&r.recorder);
    diloco_run_close(r.run);
    dl_step_deinit(&r.step);
    dl_setup_close(&r.setup);
    return status ? dl_fail(status, "%s", text) : DILOCO_OK;
}

diloco_status diloco_train_create(const diloco_config *config)
{
    dl_setup s;
    diloco_run *run = NULL;
    bool exists;
    DL_TRY(open_setup(&s, &exists, config, 1));
    if (exists && config->init_from[0])
        dl_log(DILOCO_LOG_WARN,
               "trainer.init_from has no effect: the run in %s is there and goes on from where it "
               "is",
               config->store);
    diloco_status status = open_run(&run, &s, "create", exists);
    dl_backend_enter(s.backend);
    if (!status) status = diloco_run_create(run);
    dl_backend_leave(s.backend);
    diloco_run_close(run);
    dl_setup_close(&s);
    return status;
}
