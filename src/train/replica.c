/* replica.c - one process of a replica: the inner loop on one side, the run on the other.
 *
 *     open data, model, optimizer --> initial parameters --> join --> { step, exchange, evaluate }*
 *                                                             ^            until the run is done
 *                                       resume: parameters, moments, counters come from here
 *
 * 1. A step depends only on the run's position and sample number, the parameters and the private
 *    vectors. So a resumed replica continues bitwise.
 * 2. The run reads and overwrites parameters, gradients and moments in host memory. On a device
 *    they go through staging.h: parameters inside the run's calls, moments and gradients around the
 *    calls that need them.
 * 3. A step whose gradient is not finite changes nothing. It still counts: its samples are used and
 *    its position passes, or it would be repeated for ever. */
#include "base/log.h"
#include "base/sized.h"
#include "presets/checks.h"
#include "presets/presets.h"
#include "state/continuation.h"
#include "state/paths.h"
#include "state/private_state.h"
#include "train/evaluate.h"
#include "train/opening.h"
#include "train/progress.h"
#include "train/recorder.h"
#include "train/setup.h"
#include "train/step.h"
#include "train/stop.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_PRIVATES = 32 };

typedef struct replica {
    const char *name;
    const diloco_train_hooks *hooks; /* or NULL */
    dl_setup setup;
    bool exists; /* the run, when this replica looked for its settings */
    bool data_parallel;
    bool inherited; /* private state of the run that this one continues from */
    dl_step step;
    diloco_run *run;
    dl_private privates[MOST_PRIVATES];
    size_t n_privates;
    dl_recorder recorder;
    dl_stop *stop;
    dl_meter meter;
    diloco_run_info now;
    /* Saved with the run's private state: */
    uint64_t inner_steps;
    uint64_t rewarming; /* steps of a joiner's warm-up that remain */
} replica;

static void progress(const replica *r, const char *phase)
{
    if (!r->hooks || !r->hooks->on_progress) return;
    diloco_progress p = dl_meter_progress(&r->meter, &r->now, phase);
    r->hooks->on_progress(r->hooks->user, &p);
}

/* ---- opening */

/* Lists this replica's private state. */
static diloco_status list_privates(replica *r)
{
    DL_TRY(dl_step_list(&r->step, r->privates, MOST_PRIVATES - 2, &r->n_privates, false));
    r->privates[r->n_privates++] =
        (dl_private){.name = "inner.rewarming", .data = &r->rewarming, .len = sizeof r->rewarming};
    r->privates[r->n_privates++] =
        (dl_private){.name = "inner.steps", .data = &r->inner_steps, .len = sizeof r->inner_steps};
    return DILOCO_OK;
}

static diloco_status register_privates(replica *r)
{
    DL_TRY(list_privates(r));
    for (size_t i = 0; i < r->n_privates; i++)
        DL_TRY(diloco_run_private(r->run, r->privates[i].name, r->privates[i].data,
                                  r->privates[i].len));
    return DILOCO_OK;
}

/* Returns whether the run continues from another one and has had no step here. */
static bool begins_from_another(const replica *r)
{
    return dl_continue_is_asked(&r->setup.config) && r->now.position == 0 && !r->now.resumed;
}

/* Copies the private state that this replica has of the other run, if that was on this machine. */
static bool inherit(replica *r)
{
    dl_config_path folder;
    if (!r->step.inner || dl_run_state_dir_of(folder, r->setup.config.init_from)) return false;
    return dl_local_inherit(folder, r->name, r->privates, r->n_privates);
}

/* Returns the shard in which its samples are numbered. The log assigns samples of all data, and
 * every shard is all data then. */
static size_t data_shard(const replica *r)
{
    return r->setup.config.deal != DL_DEAL_LOG ? (size_t)r->now.shard : 0;
}

/* ---- the record */

static void record_warning(void *user, const char *code, const char *text)
{
    replica *r = user;
    if (dl_recorder_warn(&r->recorder, code, text))
        dl_log(DILOCO_LOG_WARN, "the record: %s", diloco_error_text());
}

/* The run writes "run"; this event has the settings of this machine. */
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
    dl_recorder_put_inner(j, &r->setup.config);
    DL_TRY(dl_recorder_end(&r->recorder));
    dl_check_warnings(&r->setup.config, record_warning, r);
    dl_continue_text pace, start;
    if (begins_from_another(r)) {
        dl_continue_start(start, &r->setup.config, r->inherited);
        record_warning(r, "continuation", start);
    }
    if (dl_continue_pace(pace, &r->setup.config)) record_warning(r, "continuation", pace);
    return DILOCO_OK;
}

/* ---- the shared model, evaluated */

/* Returns whether the state after entry - 1 is to be evaluated, by this replica. */
static bool evaluation_due(const replica *r)
{
    const dl_config *config = &r->setup.config;
    uint64_t entry = r->now.entry, every = (uint64_t)config->eval_every * r->now.fragments;
    if (dl_data_test_samples(r->setup.data) == 0 || !config->server_test) return false;
    if (entry != r->now.entries && (every == 0 || entry % every != 0)) return false;
    uint64_t turn = every ? entry / every : entry;
    return turn % (uint64_t)config->replicas == (uint64_t)r->now.shard;
}

/* "loss_after_sync" is the shared model's loss on the samples that this replica trains on next. It
 * compares with the entry's inner_loss, the replicas' loss before it. */
static diloco_status evaluate(replica *r)
{
    dl_score held_out, next;
    progress(r, "eval");
    DL_TRY(dl_evaluate_shared(&held_out, &next, &r->setup, r->run, data_shard(r)));
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

/* check.probe */
static diloco_status probe(void *user, double *loss, const void *const *data, size_t n)
{
    dl_score held_out;
    const replica *r = user;
    (void)n;
    DL_TRY(dl_evaluate_other(&held_out, &r->setup, data));
    *loss = held_out.loss;
    return DILOCO_OK;
}

static diloco_status offer_probe(replica *r)
{
    if (r->setup.config.check_probe <= 0) return DILOCO_OK;
    if (dl_data_test_samples(r->setup.data) == 0)
        return dl_fail(DILOCO_EINVAL, "check.probe needs held-out data: set data.test_fraction or "
                                      "data.test_path, or leave check.probe 0");
    diloco_run_on_probe(r->run, probe, r);
    return DILOCO_OK;
}

/* ---- the loop */

/* PROTOCOL P14: a replica that joined without moments of its own warms up again, wherever the
 * schedule is. */
static void begin_rewarming(replica *r)
{
    if (r->step.inner && !r->now.resumed && r->now.position > 0)
        r->rewarming = (uint64_t)r->setup.config.rewarm_steps;
}

static diloco_status train_step(replica *r, diloco_step_report *report)
{
    dl_step_facts facts;
    double lr;
    DL_TRY(dl_schedule_lr(&lr, &r->setup.config, r->now.position, r->now.positions, 0));
    lr = dl_step_rewarmed(&r->setup.config, r->rewarming, lr);
    DL_TRY(dl_step_take(&facts, &r->step, data_shard(r), r->now.sample, lr));
    if (r->rewarming) r->rewarming--;
    if (r->step.inner) r->inner_steps = dl_inner_steps(r->step.inner);
    dl_meter_step(&r->meter, &facts);
    DL_TRY(dl_recorder_check_step(&r->recorder, &facts, r->now.step + 1, -1));
    *report =
        (diloco_step_report){.loss = facts.loss, .samples = facts.samples, .tokens = facts.tokens};
    return dl_recorder_step(&r->recorder, &facts, lr, r->now.step + 1, r->now.position + 1,
                            r->now.entry);
}

/* Reports a step to the run. If something is due, the run exchanges, and may wait. */
static diloco_status report_step(replica *r, const diloco_step_report *report)
{
    const bool due = r->now.position + 1 >= r->now.next_stop;
    progress(r, due ? "exchange" : "train");
    DL_TRY(dl_backend_sync(r->setup.backend));
    if (due) DL_TRY(dl_staging_pull(&r->step.vectors)); /* the run saves them there */
    DL_TRY(dl_staging_pull(&r->setup.staged_gradients));
    const diloco_status status = diloco_step(r->run, report);
    r->now = diloco_run_now(r->run);
    return status;
}

static diloco_status stop_here(replica *r)
{
    DL_TRY(dl_staging_pull(&r->step.vectors));
    DL_TRY(diloco_run_save(r->run));
    return dl_fail(DILOCO_EINTERRUPTED,
                   "%s stopped at step %" PRIu64 " of %" PRIu64
                   " with its state saved: the same command resumes here",
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

/* ---- a generation */

static diloco_status join(replica *r)
{
    progress(r, "join");
    DL_TRY(diloco_run_join(r->run));
    DL_TRY(dl_opening_check(&r->setup.config));
    r->now = diloco_run_now(r->run);
    DL_TRY(dl_data_take(r->setup.data, (size_t)r->now.shard));
    r->inherited = begins_from_another(r) && inherit(r);
    dl_staging_push(&r->step.vectors);
    if (r->step.inner) dl_inner_set_steps(r->step.inner, r->inner_steps);
    begin_rewarming(r);
    dl_meter_begin(&r->meter, &r->now);
    return record_trainer(r);
}

static diloco_status live(replica *r)
{
    DL_TRY(dl_step_init(&r->step, &r->setup, r->data_parallel));
    DL_TRY(dl_opening_run(&r->run, &r->setup, r->name, r->exists));
    DL_TRY(register_privates(r));
    DL_TRY(offer_probe(r));
    DL_TRY(dl_recorder_open(&r->recorder, &r->setup.config, r->name, r->run, r->hooks));
    DL_TRY(dl_stop_create(&r->stop, r->hooks ? r->hooks->stop : NULL, r->run));
    DL_TRY(join(r));
    DL_TRY(loop(r));
    progress(r, "done");
    return DILOCO_OK;
}

diloco_status diloco_train_sized(const diloco_config *config, const char *name,
                                 const diloco_train_hooks *given, size_t size)
{
    diloco_train_hooks hooks;
    replica r = {.name = name, .hooks = given ? &hooks : NULL, .meter = {.loss = NAN}};
    if (given) DL_TRY(dl_sized_in(&hooks, sizeof hooks, given, size, "diloco_train_hooks"));
    DL_TRY(dl_opening_setup(&r.setup, &r.exists, config, 0));
    r.data_parallel = dl_preset_is(&r.setup.config, "data_parallel");
    diloco_status status = live(&r);
    char text[2048]; /* the error, which closing may overwrite */
    snprintf(text, sizeof text, "%s", diloco_error_text());
    dl_stop_destroy(r.stop);
    diloco_run_close(r.run);
    r.recorder.run = NULL;
    dl_recorder_close(&r.recorder); /* after the run's last line */
    dl_step_deinit(&r.step);
    dl_setup_close(&r.setup);
    return status ? dl_fail(status, "%s", text) : DILOCO_OK;
}

static diloco_status create(const diloco_config *config, const diloco_train_hooks *hooks)
{
    dl_setup s;
    diloco_run *run = NULL;
    bool exists;
    DL_TRY(dl_opening_setup(&s, &exists, config, 1));
    if (exists && config->init_from[0])
        dl_log(DILOCO_LOG_WARN,
               "trainer.init_from has no effect: the run in %s exists and resumes from its "
               "newest entry",
               config->store);
    diloco_status status = dl_opening_run(&run, &s, "create", exists);
    if (!status && hooks) diloco_run_on_record(run, hooks->on_record, hooks->user);
    if (!status) status = diloco_run_create(run);
    diloco_run_close(run);
    dl_setup_close(&s);
    return status;
}

diloco_status diloco_train_create(const diloco_config *config)
{
    return create(config, NULL);
}

diloco_status diloco_train_create_with_sized(const diloco_config *config,
                                             const diloco_train_hooks *given, size_t size)
{
    diloco_train_hooks hooks;
    DL_TRY(dl_sized_in(&hooks, sizeof hooks, given, size, "diloco_train_hooks"));
    return create(config, &hooks);
}
