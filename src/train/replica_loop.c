/* replica_loop.c - see replica_loop.h. The order of closing counts: the run writes its last line
 * when it is closed, so the record is closed after it. The run uses the model's tensors, so the
 * setup is closed last. */
#include "train/replica_loop.h"

#include "base/log.h"
#include "presets/checks.h"
#include "run/store_patience.h"
#include "state/paths.h"
#include "state/private_state.h"
#include "train/opening.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void dl_replica_progress(const dl_replica *r, const char *phase)
{
    if (!r->hooks || !r->hooks->on_progress) return;
    const diloco_progress p = dl_meter_progress(&r->meter, &r->now, phase);
    r->hooks->on_progress(r->hooks->user, &p);
}

bool dl_replica_asked_to_stop(const dl_replica *r)
{
    return r->now.interrupted || (r->hooks && r->hooks->stop && dl_stop_asked(r->hooks->stop));
}

diloco_status dl_replica_step(dl_step_facts *facts, double *lr, dl_replica *r, size_t shard)
{
    const dl_config *config = &r->setup.config;
    DL_TRY(dl_schedule_lr(lr, config, r->now.position, r->now.positions, 0));
    *lr = dl_step_rewarmed(config, r->rewarming, *lr);
    DL_TRY(dl_step_take(facts, &r->step, shard, r->now.sample, *lr));
    if (r->rewarming) r->rewarming--;
    if (r->step.inner) r->inner_steps = dl_inner_steps(r->step.inner);
    dl_meter_step(&r->meter, facts);
    return DILOCO_OK;
}

/* ---- evaluation */

/* Returns the entries between two evaluations; 0: only the last entry is evaluated. */
static uint64_t evaluation_every(const dl_replica *r)
{
    return (uint64_t)r->setup.config.eval_every * r->now.fragments;
}

bool dl_replica_evaluation_due(const dl_replica *r)
{
    const uint64_t every = evaluation_every(r);
    if (dl_data_test_samples(r->setup.data) == 0 || !r->setup.config.server_test) return false;
    return r->now.entry == r->now.entries || (every > 0 && r->now.entry % every == 0);
}

uint64_t dl_replica_evaluation_turn(const dl_replica *r)
{
    const uint64_t every = evaluation_every(r);
    return every ? r->now.entry / every : r->now.entry;
}

/* ---- the record */

void dl_replica_warn(dl_replica *r, const char *code, const char *text)
{
    if (dl_recorder_warn(&r->recorder, code, text))
        dl_log(DILOCO_LOG_WARN, "the record: %s", diloco_error_text());
}

/* The function that dl_check_warnings() calls with each warning. */
static void record_warning(void *user, const char *code, const char *text)
{
    dl_replica_warn(user, code, text);
}

diloco_status dl_replica_record_trainer(dl_replica *r)
{
    const dl_config *config = &r->setup.config;
    dl_json *j = dl_recorder_begin(&r->recorder, "trainer");
    dl_json_u64(j, "generation", r->now.generation);
    if (r->ops->describe) {
        r->ops->describe(r->user, j);
    } else {
        dl_json_u64(j, "shard", (uint64_t)r->now.shard);
        dl_json_bool(j, "resumed", r->now.resumed);
        dl_json_u64(j, "step", r->now.step);
    }
    dl_json_str(j, "program", diloco_version());
    dl_json_str(j, "isa", diloco_isa());
    dl_json_i64(j, "threads", config->threads);
    dl_json_str(j, "data", dl_sample_kind_name(r->setup.sample->kind));
    dl_json_str(j, "data_digest", dl_data_digest(r->setup.data));
    if (!r->ops->describe) dl_recorder_put_inner(j, config);
    DL_TRY(dl_recorder_end(&r->recorder));
    dl_check_warnings(config, record_warning, r);
    return DILOCO_OK;
}

diloco_status dl_replica_record_eval(dl_replica *r, const dl_score *held_out, const dl_score *next)
{
    dl_json *j = dl_recorder_begin(&r->recorder, "eval");
    if (!r->run) dl_json_str(j, "consensus", "none");
    dl_json_u64(j, "entry", r->now.entry);
    dl_json_u64(j, "step", r->now.step);
    dl_json_f64(j, "loss", held_out->loss);
    if (r->setup.sample->kind == DL_TOKENS) dl_json_f64(j, "perplexity", exp(held_out->loss));
    dl_json_f64(j, "accuracy", held_out->accuracy);
    if (next) dl_json_f64(j, "loss_after_sync", next->loss);
    dl_json_u64(j, "targets", held_out->n_targets);
    return dl_recorder_end(&r->recorder);
}

/* ---- the loop */

/* Advances until the run is over. A request to stop is looked for after each advance, so that a
 * round that has ended is evaluated before the state is saved. */
static diloco_status loop(const dl_replica *r)
{
    const dl_replica_ops *ops = r->ops;
    while (!ops->over(r->user)) {
        bool applied = false;
        const diloco_status status = ops->advance(r->user, &applied);
        if (status && status != DILOCO_EINTERRUPTED) return status;
        if (!status && applied) DL_TRY(ops->applied(r->user));
        if (status || (dl_replica_asked_to_stop(r) && !ops->over(r->user)))
            return ops->stop(r->user);
    }
    return DILOCO_OK;
}

/* Opens, joins and loops. The record is open before the join, so it has the run's first lines. */
static diloco_status live(dl_replica *r)
{
    DL_TRY(r->ops->open(r->user));
    DL_TRY(dl_recorder_open(&r->recorder, &r->setup.config, r->name, r->run, r->hooks));
    if (r->run) DL_TRY(dl_stop_create(&r->stop, r->hooks ? r->hooks->stop : NULL, r->run));
    dl_replica_progress(r, "join");
    DL_TRY(r->ops->join(r->user));
    DL_TRY(loop(r));
    dl_replica_progress(r, "done");
    return r->ops->end ? r->ops->end(r->user) : DILOCO_OK;
}

/* ---- opening */

static bool is_stopped(const void *user)
{
    const dl_replica *r = user;
    return r->hooks && r->hooks->stop && dl_stop_asked(r->hooks->stop);
}

/* Returns whether the store has failed in a way that may recover. `asked`: the run's settings were
 * read, so EIO and EFULL are those of the data or the model. */
static bool may_recover(diloco_status status, bool asked)
{
    return status == DILOCO_EUNREACHABLE || status == DILOCO_ETIMEDOUT ||
           (!asked && (status == DILOCO_EIO || status == DILOCO_EFULL));
}

/* Reads the run's settings, and opens data and model. A process that is started again waits up to
 * run.store_timeout for a store that fails. The first process of a replica does not, because its
 * store may have been misspelled. */
static diloco_status set_up(dl_replica *r, const dl_config *config)
{
    dl_patience p = {0};
    for (;;) {
        bool asked;
        diloco_status status = dl_opening_setup(&r->setup, &r->exists, &asked, config, 0);
        const bool failed = may_recover(status, asked) && dl_run_was_here(config, r->name);
        if (!dl_patience_again(&p, failed, &status, config->store_timeout_s)) return status;
        if (p.first)
            dl_log(DILOCO_LOG_WARN, "%s waits for its store: %s", r->name, diloco_error_text());
        dl_patience_pause(&p, is_stopped, r);
        if (is_stopped(r)) return dl_fail(DILOCO_EINTERRUPTED, "interrupted before training");
    }
}

diloco_status dl_replica_live(dl_replica *r, const dl_config *config)
{
    r->meter.loss = NAN;
    DL_TRY(set_up(r, config));
    const diloco_status status = live(r);
    char text[2048]; /* the error, which closing may overwrite */
    snprintf(text, sizeof text, "%s", diloco_error_text());
    dl_stop_destroy(r->stop);
    diloco_run_close(r->run);
    r->recorder.run = NULL;
    dl_recorder_close(&r->recorder); /* after the run's last line */
    if (r->ops->close) r->ops->close(r->user);
    dl_step_deinit(&r->step);
    dl_setup_close(&r->setup);
    return status ? dl_fail(status, "%s", text) : DILOCO_OK;
}
