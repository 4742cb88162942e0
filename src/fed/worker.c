/* worker.c - see worker.h.
 *
 *     whose turn  sampled client i is worker i mod n's, n the live workers. Who has no more of its
 *                 own waits twice as long as its last client took, then takes over what is still
 *                 missing, from the other end.
 *     one client  its state, by the log --> theta --> its steps --> st/ --> c/ --> old st/ removed
 *
 * Both make no promise to anybody: what a client does is a function of theta, its state and its
 * samples, so two workers that train the same one put the same bytes, or, where their arithmetic
 * differs, the first counts and the state that was saved with it is the one that will be found
 * (client.h). A kill leaves a client trained and put, or not trained. */
#include "fed/worker.h"

#include "base/log.h"
#include "presets/local_steps.h"
#include "protocol/logical_clients.h"
#include "state/paths.h"
#include "tensor/isa.h"
#include "train/stop.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const dl_time SHORTEST_PATIENCE = 1 * DL_SECOND; /* before others' clients are taken over */

static dl_time limit(const dl_worker *w)
{
    return dl_time_after(dl_clock_now(), dl_time_from_seconds(w->setup->config.store_timeout_s));
}

static bool asked_to_stop(const dl_worker *w)
{
    return w->hooks && w->hooks->stop && dl_stop_asked(w->hooks->stop);
}

/* ---- opening ---------------------------------------------------------------------------- */

static diloco_status list_vectors(dl_worker *w)
{
    dl_inner *inner = w->step.inner;
    for (size_t i = 0; i < dl_inner_n_vectors(inner); i++) {
        size_t n;
        float *vector = dl_inner_vector(inner, i, &n);
        DL_ASSERT(w->n_vectors < DL_WORKER_MAX_VECTORS - 1);
        w->vectors[w->n_vectors++] = (dl_private){.name = dl_inner_vector_name(inner, i),
                                                  .data = vector,
                                                  .len = n * sizeof *vector,
                                                  .f32 = true};
    }
    w->vectors[w->n_vectors++] =
        (dl_private){.name = "inner.steps", .data = &w->inner_steps, .len = sizeof w->inner_steps};
    return DILOCO_OK;
}

/* A folder that this makes is its user's alone; one that was there stays as its owner set it. */
static diloco_status open_private_folder(dl_worker *w, const char *place)
{
    const char *path = strncmp(place, "file://", 7) ? place : place + 7;
    const bool makes = !strstr(path, "://") && access(path, F_OK);
    DL_TRY(dl_store_open(&w->private_store, place, true));
    if (makes && chmod(path, 0700)) return dl_fail_errno(errno, "close to other users", path);
    return DILOCO_OK;
}

/* clients.state, or a folder of run.state_dir. */
static diloco_status open_private_store(dl_worker *w)
{
    const dl_config *c = &w->setup->config;
    dl_config_path dir;
    char place[sizeof dir + 16];
    if (c->client_state[0]) return open_private_folder(w, c->client_state);
    DL_TRY(dl_run_state_dir(dir, c));
    snprintf(place, sizeof place, "%s/clients", dir);
    return open_private_folder(w, place);
}

diloco_status dl_worker_open(dl_worker *out, const dl_worker *borrowed)
{
    *out = *borrowed;
    out->entry = UINT64_MAX;
    DL_TRY(dl_step_init(&out->step, out->setup, false));
    out->step.whole_epochs = true;
    DL_TRY(list_vectors(out));
    return open_private_store(out);
}

/* What its codec has left out so far is the client's, as its moments are. */
static void list_residual(dl_worker *w)
{
    size_t n;
    float *residual = dl_run_residual(w->run, &n);
    if (!residual) return;
    DL_ASSERT(w->n_vectors < DL_WORKER_MAX_VECTORS);
    w->vectors[w->n_vectors++] = (dl_private){
        .name = "diloco.residual", .data = residual, .len = n * sizeof *residual, .f32 = true};
}

static diloco_status begin_simulation(dl_worker *w)
{
    const dl_runfile *file = dl_run_file(w->run);
    const size_t n = dl_clients_per_round(&file->config);
    DL_TRY(dl_simulation_init(&w->simulation, &file->config, &file->manifest));
    if (!w->simulation.config) return DILOCO_OK;
    w->simulated = calloc(n, sizeof *w->simulated);
    return w->simulated ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "no memory for %zu clients", n);
}

diloco_status dl_worker_begin(dl_worker *w)
{
    const dl_runfile *file = dl_run_file(w->run);
    list_residual(w);
    const dl_hash layout =
        dl_client_layout(&file->config, file->manifest.digest, w->vectors, w->n_vectors);
    dl_client_store_init(&w->clients, w->private_store, file->id, layout, w->vectors, w->n_vectors);
    return begin_simulation(w);
}

void dl_worker_close(dl_worker *w)
{
    dl_client_store_deinit(&w->clients);
    dl_store_close(w->private_store);
    dl_step_deinit(&w->step);
    free(w->simulated);
}

/* ---- whose turn ------------------------------------------------------------------------- */

static diloco_status begin_entry(dl_worker *w)
{
    if (w->entry == dl_run_open_entry(w->run)) return DILOCO_OK;
    DL_TRY(dl_run_crew(w->run, &w->place, &w->crew));
    w->entry = dl_run_open_entry(w->run);
    w->idle_since = 0;
    if (w->simulated)
        (void)dl_simulation_round(w->simulated, &w->simulation, w->entry, dl_run_asked(w->run));
    return DILOCO_OK;
}

/* Is there something to do about the i-th that is asked? Whose answer comes too late is not
 * trained: what is not counted never happened. */
static bool is_awaited(const dl_worker *w, size_t i)
{
    if (w->simulated && !w->simulated[i].awaited) return false;
    return !dl_run_is_there(w->run, dl_run_asked(w->run)->names[i]);
}

static size_t count_settled(const dl_worker *w)
{
    size_t n = 0;
    for (size_t i = 0; i < dl_run_asked(w->run)->n; i++)
        n += !is_awaited(w, i);
    return n;
}

static const char *own_turn(const dl_worker *w)
{
    const dl_roster *asked = dl_run_asked(w->run);
    for (size_t i = w->place; i < asked->n; i += w->crew)
        if (is_awaited(w, i)) return asked->names[i];
    return NULL;
}

static const char *others_turn(dl_worker *w)
{
    const dl_roster *asked = dl_run_asked(w->run);
    const dl_time now = dl_clock_now(), twice = 2 * w->client_took;
    if (!w->idle_since) w->idle_since = now;
    if (now - w->idle_since < (twice > SHORTEST_PATIENCE ? twice : SHORTEST_PATIENCE)) return NULL;
    for (size_t i = asked->n; i-- > 0;)
        if (is_awaited(w, i)) return asked->names[i];
    return NULL;
}

/* ---- a client's state ------------------------------------------------------------------- */

static void begin_anew(dl_worker *w, dl_client_facts *f)
{
    for (size_t i = 0; i < w->n_vectors; i++)
        memset(w->vectors[i].data, 0, w->vectors[i].len);
    f->steps = f->next_sample = 0;
}

/* The newest entry before `before` that counted the client; what it counted. */
static diloco_status last_counted(const dl_worker *w, bool *found, dl_member *member,
                                  uint64_t *entry, uint64_t client, uint64_t before)
{
    dl_client_name name;
    dl_client_name_of(name, client);
    *found = false;
    for (uint64_t e = before; e-- > 0 && !*found;) {
        *entry = e;
        if (dl_clients_sampled(&w->setup->config, e, client))
            DL_TRY(dl_run_member(w->run, found, member, e, name));
    }
    return DILOCO_OK;
}

/* FED-37: it is not there whole. Where it stood in its data the log tells; its moments are lost. */
static diloco_status reset_or_stop(dl_worker *w, dl_client_facts *f, diloco_status lost)
{
    char why[512], text[768];
    uint64_t entry = w->entry;
    bool found = true;
    if (lost != DILOCO_ENOENT && lost != DILOCO_EPROTO && lost != DILOCO_EDIFFERS) return lost;
    snprintf(why, sizeof why, "%s", lost == DILOCO_ENOENT ? "it is gone" : diloco_error_text());
    if (strcmp(w->setup->config.on_lost_state, "reset") != 0)
        return dl_fail(DILOCO_EDIFFERS,
                       "the state of client%" PRIu64 " after entry %" PRIu64
                       " cannot be taken up (%s): bring it back (clients.state says where all "
                       "workers keep it), or set clients.on_lost_state = \"reset\" to begin its "
                       "optimizer anew",
                       f->client, f->entry, why);
    begin_anew(w, f);
    while (found) {
        dl_member m;
        DL_TRY(last_counted(w, &found, &m, &entry, f->client, entry));
        if (!found) break;
        f->steps += m.steps;
        f->next_sample += m.samples;
    }
    snprintf(text, sizeof text,
             "the state of client%" PRIu64 " after entry %" PRIu64
             " cannot be taken up (%s): its optimizer begins anew, its data goes on",
             f->client, f->entry, why);
    dl_log(DILOCO_LOG_WARN, "%s", text);
    return dl_recorder_warn(w->recorder, "client_state", text);
}

/* *late: the entry stands without us, and what it was trained from may be collected already. */
static diloco_status take_up(dl_worker *w, dl_client_facts *f, bool *late)
{
    bool found;
    dl_member member;
    *late = false;
    DL_TRY(last_counted(w, &found, &member, &f->entry, f->client, w->entry));
    begin_anew(w, f);
    if (found) {
        f->body = member.body;
        const diloco_status status = dl_client_load(&w->clients, f, limit(w));
        if (status == DILOCO_ENOENT) DL_TRY(dl_run_is_late(w->run, late));
        if (*late) return DILOCO_OK;
        if (status)
            DL_TRY(reset_or_stop(w, f, status));
        else
            DL_TRY(dl_client_collect(&w->clients, f, limit(w)));
    }
    if (!strcmp(w->setup->config.stream, "restart")) f->next_sample = 0;
    dl_inner_set_steps(w->step.inner, w->inner_steps);
    return DILOCO_OK;
}

/* ---- training it ------------------------------------------------------------------------ */

typedef struct turn {
    dl_worker *worker;
    dl_client_facts facts; /* of the state that it goes on from; then as it goes on */
    dl_exec_work work;
    double loss_sum, first_lr, last_lr, seconds;
} turn;

/* The round's clients that are there, and this one as far as it is; the other workers' likewise. */
static void tell(const turn *t, uint64_t steps)
{
    dl_worker *w = t->worker;
    const size_t n = dl_run_asked(w->run)->n, open = n - w->n_settled;
    const double part = (double)t->work.steps / (double)steps;
    const double here = part * (double)(w->crew < open ? w->crew : open);
    const double H = (double)w->setup->config.local_steps;
    w->meter->ahead = fmax(H, 1) * ((double)w->n_settled + here) / (double)n;
    if (t->work.steps == 0 && w->meter->training_s <= 0) w->meter->began_ahead = w->meter->ahead;
    if (!w->hooks || !w->hooks->on_progress) return;
    const diloco_progress p = dl_meter_progress(w->meter, w->now, "train");
    w->hooks->on_progress(w->hooks->user, &p);
}

/* By the client's own steps (PROTOCOL P13). */
static diloco_status take_step(turn *t)
{
    dl_worker *w = t->worker;
    dl_step_facts facts;
    const uint64_t total = dl_local_steps_run(&w->setup->config, t->work.holds);
    const uint64_t epoch = dl_local_steps_epoch(&w->setup->config, t->work.holds);
    DL_TRY(dl_schedule_lr(&t->last_lr, &w->setup->config, t->facts.steps, total, epoch));
    DL_TRY(dl_step_take(&facts, &w->step, t->work.shard, t->facts.next_sample, t->last_lr));
    if (t->work.steps == 0) t->first_lr = t->last_lr;
    t->facts.steps++;
    t->facts.next_sample += facts.samples;
    t->work.steps++;
    t->work.samples += facts.samples;
    t->work.tokens += facts.tokens;
    t->loss_sum += facts.loss;
    t->seconds += facts.seconds;
    dl_meter_step(w->meter, &facts);
    return dl_recorder_check_step(w->recorder, &facts, t->facts.steps, (int64_t)t->facts.client);
}

/* FED-36: beside the contribution, before it. */
static diloco_status keep(void *user, dl_hash body)
{
    turn *t = user;
    dl_worker *w = t->worker;
    t->facts.entry = w->entry;
    t->facts.body = body;
    return dl_client_save(&w->clients, &t->facts, limit(w));
}

static diloco_status record(const turn *t, const char *client, bool first)
{
    const dl_worker *w = t->worker;
    dl_json *j = dl_recorder_begin(w->recorder, "client");
    dl_json_str(j, "client", client);
    dl_json_u64(j, "entry", w->entry);
    dl_json_u64(j, "steps", t->work.steps);
    dl_json_u64(j, "step", t->facts.steps);
    dl_json_u64(j, "samples", t->work.samples);
    dl_json_u64(j, "holds", t->work.holds);
    dl_json_u64(j, "first_sample", t->work.first_sample);
    dl_json_u64(j, "end_sample", t->work.end_sample);
    dl_json_f64(j, "loss", t->work.loss);
    dl_json_f64(j, "first_lr", t->first_lr);
    dl_json_f64(j, "last_lr", t->last_lr);
    dl_json_f64(j, "seconds", t->seconds);
    if (w->simulated)
        dl_json_f64(j, "simulated_s",
                    dl_simulation_client(&w->simulation, w->entry, t->facts.client).seconds);
    dl_json_str(j, "isa", diloco_isa());
    dl_json_i64(j, "threads", w->setup->config.threads);
    dl_json_bool(j, "first", first);
    return dl_recorder_end(w->recorder);
}

static void describe(turn *t)
{
    const uint64_t H = (uint64_t)t->worker->setup->config.local_steps;
    t->work.step = t->facts.steps;
    t->work.end_sample = t->facts.next_sample;
    t->work.position = (t->worker->entry + 1) * (H ? H : 1);
    t->work.loss = t->work.steps ? t->loss_sum / (double)t->work.steps : NAN;
}

static diloco_status put(turn *t, const char *client, bool *first)
{
    dl_worker *w = t->worker;
    dl_exec_client c = {.work = &t->work, .keep = keep, .user = t};
    snprintf(c.life.replica, sizeof c.life.replica, "%s", client);
    w->inner_steps = dl_inner_steps(w->step.inner);
    describe(t);
    DL_TRY(dl_backend_sync(w->setup->backend));
    dl_backend_enter(w->setup->backend);
    const diloco_status status = dl_run_put_client(w->run, first, &c);
    dl_backend_leave(w->setup->backend);
    return status;
}

/* *done false: asked to stop before the last step, or too late; nothing happened. */
static diloco_status train(turn *t, bool *done)
{
    dl_worker *w = t->worker;
    const uint64_t steps = dl_local_steps(&w->setup->config, t->work.holds);
    bool late;
    *done = false;
    DL_TRY(dl_data_take(w->setup->data, t->work.shard));
    DL_TRY(take_up(w, &t->facts, &late));
    if (late) return DILOCO_OK;
    t->work.first_sample = t->facts.next_sample;
    dl_backend_enter(w->setup->backend);
    dl_run_give_theta(w->run);
    dl_backend_leave(w->setup->backend);
    dl_step_anchor(&w->step);
    w->n_settled = count_settled(w);
    for (tell(t, steps); t->work.steps < steps && !asked_to_stop(w); tell(t, steps))
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
    t.work.holds = dl_data_samples(w->setup->data, t.work.shard);
    DL_TRY(train(&t, worked));
    if (!*worked) return DILOCO_OK;
    DL_TRY(put(&t, client, &first));
    w->client_took = dl_clock_now() - began;
    return record(&t, client, first);
}

diloco_status dl_worker_work(void *worker, bool *worked)
{
    dl_worker *w = worker;
    *worked = false;
    if (asked_to_stop(w)) return DILOCO_OK;
    DL_TRY(begin_entry(w));
    const char *client = own_turn(w);
    if (!client) client = others_turn(w);
    if (!client) return DILOCO_OK;
    dl_backend_leave(w->setup->backend); /* the run's calls are made inside it */
    const diloco_status status = train_client(w, client, worked);
    dl_backend_enter(w->setup->backend);
    return status;
}
