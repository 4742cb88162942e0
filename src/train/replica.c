/* replica.c - one process of a replica: the operations that replica_loop.h calls. They connect the
 * inner loop (step.h) to the run (diloco/run.h).
 *
 *     open data, model, optimizer --> initial parameters --> join --> { step, exchange, evaluate }*
 *                                                             ^            until the run is done
 *                                       resume: parameters, moments, counters come from here
 *
 * 1. A step depends only on the run's position and sample number, the parameters and the private
 *    vectors. So a resumed replica continues bitwise.
 * 2. The run reads gradients, and reads and overwrites parameters and moments, inside its calls
 *    only. On a device it copies parameters and gradients itself, and moments go through staging.h.
 * 3. A step whose gradient is not finite changes nothing. It still counts: its samples are used and
 *    its position passes, or it would be repeated for ever. */
#include "base/log.h"
#include "base/sized.h"
#include "presets/presets.h"
#include "run/announce_stop.h"
#include "state/continuation.h"
#include "state/paths.h"
#include "state/private_state.h"
#include "train/opening.h"
#include "train/replica_loop.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_PRIVATES = 32 }; /* the inner optimizer's vectors and two counters */

typedef struct replica {
    dl_replica base; /* the part that the loop knows */
    bool inherited;  /* private state of the run that this one continues from */
    dl_private privates[MOST_PRIVATES];
    size_t n_privates;
} replica;

/* ---- opening */

/* Lists this replica's private state. */
static diloco_status list_privates(replica *r)
{
    dl_replica *b = &r->base;
    DL_TRY(dl_step_list(&b->step, r->privates, MOST_PRIVATES - 2, &r->n_privates, false));
    r->privates[r->n_privates++] =
        (dl_private){.name = "inner.rewarming", .data = &b->rewarming, .len = sizeof b->rewarming};
    r->privates[r->n_privates++] =
        (dl_private){.name = "inner.steps", .data = &b->inner_steps, .len = sizeof b->inner_steps};
    return DILOCO_OK;
}

/* Returns the array of private piece i that is in a device's memory, or NULL if it is in host
 * memory. The optimizer's vectors are the first pieces. */
static dl_staged *on_device(const replica *r, size_t i)
{
    const dl_staging *vectors = &r->base.step.vectors;
    const bool apart = i < vectors->n && !dl_staged_is_shared(&vectors->all[i]);
    return apart ? &vectors->all[i] : NULL;
}

/* The run saves and loads these arrays in place, so they must not move until it is closed. It
 * copies a vector from a device only when it saves: most of the arrays' bytes are moments. */
static diloco_status register_privates(replica *r)
{
    DL_TRY(list_privates(r));
    for (size_t i = 0; i < r->n_privates; i++) {
        const dl_private *p = &r->privates[i];
        dl_staged *staged = on_device(r, i);
        DL_TRY(diloco_run_private_by(r->base.run, p->name, p->data, p->len,
                                     staged ? dl_staging_fill : NULL, staged));
    }
    return DILOCO_OK;
}

/* Returns whether the run continues from another one and has had no step here. */
static bool begins_from_another(const dl_replica *b)
{
    return dl_continue_is_asked(&b->setup.config) && b->now.position == 0 && !b->now.resumed;
}

/* Copies the private state that this replica has of the other run, if that was on this machine. */
static bool inherit(replica *r)
{
    dl_config_path folder;
    if (!r->base.step.inner || dl_run_state_dir_of(folder, r->base.setup.config.init_from))
        return false;
    return dl_local_inherit(folder, r->base.name, r->privates, r->n_privates);
}

/* Returns the shard in which its samples are numbered. The log assigns samples of all data, and
 * every shard is all data then. */
static size_t data_shard(const dl_replica *b)
{
    return b->setup.config.deal != DL_DEAL_LOG ? (size_t)b->now.shard : 0;
}

/* The function of check.probe: the held-out loss of a model that the run asks about. */
static diloco_status probe(void *user, double *loss, const void *const *data, size_t n)
{
    dl_score held_out;
    const dl_replica *b = user;
    (void)n;
    DL_TRY(dl_evaluate_other(&held_out, &b->setup, data));
    *loss = held_out.loss;
    return DILOCO_OK;
}

static diloco_status offer_probe(dl_replica *b)
{
    if (b->setup.config.check_probe <= 0) return DILOCO_OK;
    if (dl_data_test_samples(b->setup.data) == 0)
        return dl_fail(DILOCO_EINVAL, "check.probe needs held-out data: set data.test_fraction or "
                                      "data.test_path, or leave check.probe 0");
    diloco_run_on_probe(b->run, probe, b);
    return DILOCO_OK;
}

/* The operation `open`. The step is made before the run, as its vectors are registered there. */
static diloco_status open_run(void *user)
{
    replica *r = user;
    dl_replica *b = &r->base;
    DL_TRY(dl_step_init(&b->step, &b->setup, dl_preset_is(&b->setup.config, "data_parallel")));
    DL_TRY(dl_opening_run(&b->run, &b->setup, b->name, b->exists));
    DL_TRY(register_privates(r));
    return offer_probe(b);
}

/* ---- joining */

/* PROTOCOL P14: a replica that joined without moments of its own warms up again, wherever the
 * schedule is. In an extended run it is not at its start. */
static void begin_rewarming(const replica *r, dl_replica *b)
{
    const bool joined_late = b->now.position + (uint64_t)b->setup.config.first_step > 0;
    if (b->step.inner && !b->now.resumed && !r->inherited && joined_late)
        b->rewarming = (uint64_t)b->setup.config.rewarm_steps;
}

static void warn_of_continuation(replica *r)
{
    dl_continue_text text;
    dl_replica *b = &r->base;
    if (begins_from_another(b)) {
        dl_continue_start(text, &b->setup.config, r->inherited);
        dl_replica_warn(b, "continuation", text);
    }
    if (dl_continue_pace(text, &b->setup.config)) dl_replica_warn(b, "continuation", text);
}

/* The operation `join`. After it, moments and counters are the saved ones of an earlier generation,
 * those of the run that this one continues, or zero. */
static diloco_status join(void *user)
{
    replica *r = user;
    dl_replica *b = &r->base;
    DL_TRY(diloco_run_join(b->run));
    DL_TRY(dl_opening_check(&b->setup.config));
    b->now = diloco_run_now(b->run);
    DL_TRY(dl_data_take(b->setup.data, (size_t)b->now.shard));
    r->inherited = begins_from_another(b) && inherit(r);
    dl_staging_push(&b->step.vectors);
    if (b->step.inner) dl_inner_set_steps(b->step.inner, b->inner_steps);
    begin_rewarming(r, b);
    dl_meter_begin(&b->meter, &b->now);
    DL_TRY(dl_replica_record_trainer(b)); /* the run writes "run" */
    warn_of_continuation(r);
    return DILOCO_OK;
}

/* ---- the loop */

/* Takes a step and records it with the counts after it; the run counts it in report_step(). */
static diloco_status train_step(dl_replica *b, diloco_step_report *report)
{
    double lr;
    dl_step_facts facts;
    DL_TRY(dl_replica_step(&facts, &lr, b, data_shard(b)));
    DL_TRY(dl_recorder_check_step(&b->recorder, &facts, b->now.step + 1, -1));
    *report =
        (diloco_step_report){.loss = facts.loss, .samples = facts.samples, .tokens = facts.tokens};
    return dl_recorder_step(&b->recorder, &facts, lr, b->now.step + 1, b->now.position + 1,
                            b->now.entry);
}

/* Reports a step to the run. If something is due, the run exchanges, and may wait. */
static diloco_status report_step(dl_replica *b, const diloco_step_report *report)
{
    const bool due = b->now.position + 1 >= b->now.next_stop;
    dl_replica_progress(b, due ? "exchange" : "train");
    DL_TRY(dl_backend_sync(b->setup.backend));
    const diloco_status status = diloco_step(b->run, report);
    b->now = diloco_run_now(b->run);
    return status;
}

static diloco_status advance(void *user, bool *applied)
{
    replica *r = user;
    diloco_step_report report;
    const uint64_t entry = r->base.now.entry;
    DL_TRY(train_step(&r->base, &report));
    const diloco_status status = report_step(&r->base, &report);
    *applied = r->base.now.entry != entry;
    return status;
}

/* "loss_after_sync" is the shared model's loss on the samples that this replica trains on next. It
 * compares with the entry's inner_loss, the replicas' loss before it. */
static diloco_status evaluate_in_turn(void *user)
{
    replica *r = user;
    dl_replica *b = &r->base;
    dl_score held_out, next;
    const uint64_t replicas = (uint64_t)b->setup.config.replicas;
    if (!dl_replica_evaluation_due(b)) return DILOCO_OK;
    if (dl_replica_evaluation_turn(b) % replicas != (uint64_t)b->now.shard) return DILOCO_OK;
    dl_replica_progress(b, "eval");
    DL_TRY(dl_evaluate_shared(&held_out, &next, &b->setup, b->run, data_shard(b)));
    return dl_replica_record_eval(b, &held_out, &next);
}

/* The watcher ends first. It may see the flag later than the loop has, and would interrupt the save
 * that the stop asks for. */
static diloco_status stop_here(void *user)
{
    replica *r = user;
    dl_replica *b = &r->base;
    dl_stop_destroy(b->stop);
    b->stop = NULL;
    DL_TRY(diloco_run_save(b->run));
    dl_run_announce_stop(b->run);
    return dl_fail(DILOCO_EINTERRUPTED,
                   "%s stopped at step %" PRIu64 " of %" PRIu64
                   " with its state saved: the same command resumes here",
                   b->name, b->now.position, b->now.positions);
}

static bool over(const void *user)
{
    const replica *r = user;
    return diloco_run_done(r->base.run);
}

static const dl_replica_ops ops = {.open = open_run,
                                   .join = join,
                                   .over = over,
                                   .advance = advance,
                                   .applied = evaluate_in_turn,
                                   .stop = stop_here};

diloco_status diloco_train_sized(const diloco_config *config, const char *name,
                                 const diloco_train_hooks *given, size_t size)
{
    diloco_train_hooks hooks;
    replica r = {.base = {.name = name, .hooks = given ? &hooks : NULL, .ops = &ops}};
    r.base.user = &r;
    if (given) DL_TRY(dl_sized_in(&hooks, sizeof hooks, given, size, "diloco_train_hooks"));
    return dl_replica_live(&r.base, config);
}

/* Creates a run without training. The model's initial parameters are the first state. */
static diloco_status create(const diloco_config *config, const diloco_train_hooks *hooks)
{
    dl_setup s;
    diloco_run *run = NULL;
    bool exists, asked;
    DL_TRY(dl_opening_setup(&s, &exists, &asked, config, 1));
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
