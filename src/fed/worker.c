/* worker.c - see worker.h.
 *
 *     one client: its state, by the log --> theta --> its steps --> st/ --> c/
 *
 * The model, the inner optimizer and the residual exist once in memory. A client's state is loaded
 * into them before its steps and saved from them afterwards.
 *
 * The state (st/) is durable before the contribution (c/) is created. A kill leaves a client with
 * both, or with a state that no entry names, which is made again to the same bytes. */
#include "fed/worker.h"

#include "presets/local_steps.h"
#include "protocol/logical_clients.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---------------------------------------------------------------------------- */

/* Lists the inner optimizer's arrays and its step count. One place of `vectors` remains for the
 * residual. */
static diloco_status list_vectors(dl_worker *w)
{
    dl_replica *r = w->replica;
    DL_TRY(dl_step_list(&r->step, w->vectors, DL_WORKER_MAX_VECTORS - 1, &w->n_vectors, true));
    w->vectors[w->n_vectors++] =
        (dl_private){.name = "inner.steps", .data = &r->inner_steps, .len = sizeof r->inner_steps};
    return DILOCO_OK;
}

static diloco_status warn(void *worker, const char *text)
{
    const dl_worker *w = worker;
    return dl_recorder_warn(&w->replica->recorder, "client_state", text);
}

diloco_status dl_worker_open(dl_worker *out, dl_replica *replica)
{
    *out = (dl_worker){.replica = replica};
    out->turns = (dl_turns){
        .config = &replica->setup.config, .run = replica->run, .warn = warn, .user = out};
    DL_TRY(dl_step_init(&replica->step, &replica->setup, false));
    replica->step.whole_epochs = true;
    DL_TRY(list_vectors(out));
    return dl_turns_open(&out->turns);
}

/* Adds the residual of error feedback, which belongs to the client as its moments do. The run has
 * one only with server.diloco.error_feedback, and only after the join. */
static void list_residual(dl_worker *w)
{
    size_t n;
    float *residual = dl_run_residual(w->replica->run, &n);
    if (!residual) return;
    DL_ASSERT(w->n_vectors < DL_WORKER_MAX_VECTORS);
    w->vectors[w->n_vectors++] = (dl_private){
        .name = "diloco.residual", .data = residual, .len = n * sizeof *residual, .f32 = true};
}

diloco_status dl_worker_begin(dl_worker *w)
{
    list_residual(w);
    return dl_turns_begin(&w->turns, w->vectors, w->n_vectors);
}

void dl_worker_close(dl_worker *w)
{
    dl_turns_close(&w->turns);
}

/* ---- training a client ------------------------------------------------------------------ */

/* One client's turn in one entry. */
typedef struct turn {
    dl_worker *worker;
    dl_client_facts facts; /* as loaded; its steps and next_sample advance with each step */
    dl_train_stats work;   /* of this turn, for the contribution */
    double loss_sum, first_lr, last_lr, seconds;
    double norm_sum;   /* of gradient norms before clipping, over n_normed steps */
    uint64_t n_normed; /* steps that changed the parameters */
} turn;

/* Estimates how far the open round is, in steps, for the progress line. It counts the clients that
 * need no more training, and for every worker one client that is as far as this one. `steps`: of
 * this client in the round. */
static void report(const turn *t, uint64_t steps)
{
    const dl_worker *w = t->worker;
    dl_meter *meter = &w->replica->meter;
    const size_t n = dl_run_sampled(w->replica->run)->n, open = n - w->n_settled;
    const double part = (double)t->work.steps / (double)steps;
    const double here = part * (double)(w->turns.n_workers < open ? w->turns.n_workers : open);
    const double H = (double)w->replica->setup.config.local_steps;
    meter->ahead = fmax(H, 1) * ((double)w->n_settled + here) / (double)n;
    if (t->work.steps == 0 && meter->training_s <= 0) meter->began_ahead = meter->ahead;
    dl_replica_progress(w->replica, "train");
}

/* Takes one step at the learning rate of the client's own step count (PROTOCOL P13). */
static diloco_status take_step(turn *t)
{
    dl_replica *r = t->worker->replica;
    const dl_config *config = &r->setup.config;
    dl_step_facts facts;
    const uint64_t total = dl_local_steps_run(config, t->work.holds);
    const uint64_t epoch = dl_local_steps_epoch(config, t->work.holds);
    DL_TRY(dl_schedule_lr(&t->last_lr, config, t->facts.steps, total, epoch));
    DL_TRY(dl_step_take(&facts, &r->step, t->work.shard, t->facts.next_sample, t->last_lr));
    if (t->work.steps == 0) t->first_lr = t->last_lr;
    t->facts.steps++;
    t->facts.next_sample += facts.samples;
    t->work.steps++;
    t->work.samples += facts.samples;
    t->work.tokens += facts.tokens;
    t->loss_sum += facts.loss;
    t->seconds += facts.seconds;
    if (facts.applied) t->norm_sum += facts.grad_norm;
    t->n_normed += facts.applied;
    dl_meter_step(&r->meter, &facts);
    return dl_recorder_check_step(&r->recorder, &facts, t->facts.steps, (int64_t)t->facts.client);
}

/* The hook dl_exec_client.keep: saves the state once the contribution's digest is known, and before
 * the contribution is created (FED-36). */
static diloco_status keep(void *user, dl_hash body)
{
    turn *t = user;
    dl_worker *w = t->worker;
    return dl_turns_keep(&w->turns, &t->facts, body);
}

static diloco_status record(const turn *t, const char *client, bool first)
{
    const dl_worker *w = t->worker;
    dl_json *j = dl_recorder_begin(&w->replica->recorder, "client");
    dl_json_str(j, "client", client);
    dl_json_u64(j, "entry", w->turns.entry);
    dl_json_u64(j, "steps", t->work.steps);
    dl_json_u64(j, "step", t->facts.steps);
    dl_json_u64(j, "samples", t->work.samples);
    dl_json_u64(j, "holds", t->work.holds);
    dl_json_u64(j, "first_sample", t->work.first_sample);
    dl_json_u64(j, "end_sample", t->work.end_sample);
    dl_json_f64(j, "loss", t->work.loss);
    dl_json_f64(j, "inner_grad_norm", t->n_normed ? t->norm_sum / (double)t->n_normed : NAN);
    dl_json_f64(j, "first_lr", t->first_lr);
    dl_json_f64(j, "last_lr", t->last_lr);
    dl_json_f64(j, "seconds", t->seconds);
    if (w->turns.simulated)
        dl_json_f64(
            j, "simulated_s",
            dl_simulation_client(&w->turns.simulation, w->turns.entry, t->facts.client).seconds);
    dl_json_str(j, "isa", diloco_isa());
    dl_json_i64(j, "threads", w->replica->setup.config.threads);
    dl_json_bool(j, "first", first);
    return dl_recorder_end(&w->replica->recorder);
}

/* Completes the contribution's facts after the last step. `position` counts H steps for each round
 * of the run, whatever the client's own step count is. */
static void describe(turn *t)
{
    const uint64_t H = (uint64_t)t->worker->replica->setup.config.local_steps;
    t->work.step = t->facts.steps;
    t->work.end_sample = t->facts.next_sample;
    t->work.position = (t->worker->turns.entry + 1) * (H ? H : 1);
    t->work.loss = dl_mean_loss(t->loss_sum, t->work.steps);
}

/* Uploads the state and the contribution. *first is false if another worker has uploaded other
 * bytes for this client; those count then. */
static diloco_status put(turn *t, const char *client, bool *first)
{
    dl_replica *r = t->worker->replica;
    dl_exec_client c = {.stats = &t->work, .keep = keep, .user = t};
    snprintf(c.generation.replica, sizeof c.generation.replica, "%s", client);
    r->inner_steps = dl_inner_steps(r->step.inner);
    describe(t);
    DL_TRY(dl_backend_sync(r->setup.backend));
    DL_TRY(dl_staging_pull(&r->step.vectors)); /* keep() saves them there */
    return dl_run_put_client(r->run, first, &c);
}

/* Loads a client's state and takes its steps of the round. *done is false if the process was asked
 * to stop before the last step, or if the entry is committed already. Nothing is uploaded then, so
 * the client keeps its old state. */
static diloco_status train(turn *t, bool *done)
{
    dl_worker *w = t->worker;
    dl_replica *r = w->replica;
    const uint64_t steps = dl_local_steps(&r->setup.config, t->work.holds);
    bool late;
    *done = false;
    DL_TRY(dl_data_take(r->setup.data, t->work.shard));
    DL_TRY(dl_turns_take_up(&w->turns, &t->facts, &late));
    if (late) return DILOCO_OK;
    dl_staging_push(&r->step.vectors);
    dl_inner_set_steps(r->step.inner, r->inner_steps);
    t->work.first_sample = t->facts.next_sample;
    dl_run_load_theta(r->run);
    dl_step_anchor(&r->step);
    w->n_settled = dl_turns_settled(&w->turns);
    for (report(t, steps); t->work.steps < steps && !dl_replica_asked_to_stop(r); report(t, steps))
        DL_TRY(take_step(t));
    *done = t->work.steps == steps;
    return DILOCO_OK;
}

static diloco_status train_client(dl_worker *w, const char *client, bool *worked)
{
    turn t = {.worker = w, .facts = {.client = dl_client_number(client)}};
    const dl_time began = dl_clock_now();
    bool first;
    t.work.shard = t.facts.client - 1;
    t.work.holds = dl_data_samples(w->replica->setup.data, t.work.shard);
    DL_TRY(train(&t, worked));
    if (!*worked) return DILOCO_OK;
    DL_TRY(put(&t, client, &first));
    w->turns.client_took = dl_clock_now() - began;
    return record(&t, client, first);
}

diloco_status dl_worker_work(void *worker, bool *worked)
{
    dl_worker *w = worker;
    *worked = false;
    if (dl_replica_asked_to_stop(w->replica)) return DILOCO_OK;
    const char *client;
    DL_TRY(dl_turns_next(&w->turns, &client));
    if (!client) return DILOCO_OK;
    return train_client(w, client, worked);
}
