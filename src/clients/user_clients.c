/* user_clients.c - see diloco/clients.h.
 *
 *     join --> { round: wait, and train clients meanwhile }*
 *
 *     one client: its state, by the log --> theta --> fit --> st/ --> c/
 *
 * The caller's function `fit` trains a client; this file calls it from the run's hook `work`, on
 * the caller's thread. The caller's private arrays (diloco_run_private) are the client's state. An
 * error of fit leaves no object, so the client keeps its old state. */
#include "base/json.h"
#include "base/log.h"
#include "base/sized.h"
#include "clients/turns.h"
#include "presets/checks.h"
#include "protocol/logical_clients.h"
#include <diloco/clients.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Vectors: client.c has 64 spans, of which the header takes one, and fewer than 64 are vectors.
 * LINE_MAX: bytes of a record's line at most. */
enum { MAX_VECTORS = 62, LINE_MAX = 4096 };

typedef struct user_worker {
    diloco_run *run;
    diloco_clients given; /* the caller's functions */
    dl_config config;     /* as it was opened; the run's after the join */
    dl_turns turns;
    dl_private vectors[MAX_VECTORS];
    size_t n_vectors;
} user_worker;

/* One client's turn. */
typedef struct turn {
    user_worker *user_worker;
    dl_client_facts facts; /* as loaded; after fit as it continues */
    dl_train_stats work;   /* the report of fit, for the contribution */
} turn;

static diloco_status record(const user_worker *h, const char *name, const turn *t, bool first)
{
    dl_buf line;
    dl_json j;
    dl_buf_init(&line, LINE_MAX);
    dl_json_init(&j, &line);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "event", "client");
    dl_json_str(&j, "client", name);
    dl_json_u64(&j, "entry", h->turns.entry);
    dl_json_u64(&j, "steps", t->work.steps);
    dl_json_u64(&j, "step", t->facts.steps);
    dl_json_u64(&j, "samples", t->work.samples);
    dl_json_u64(&j, "holds", t->work.holds);
    dl_json_u64(&j, "first_sample", t->work.first_sample);
    dl_json_u64(&j, "end_sample", t->work.end_sample);
    dl_json_f64(&j, "loss", t->work.loss);
    if (h->turns.simulated)
        dl_json_f64(
            &j, "simulated_s",
            dl_simulation_client(&h->turns.simulation, h->turns.entry, t->facts.client).seconds);
    dl_json_bool(&j, "first", first);
    dl_json_end(&j);
    const diloco_status status = j.status;
    if (!status) diloco_run_record(h->run, (const char *)line.data, line.len);
    dl_buf_deinit(&line);
    return status;
}

static diloco_status warn(void *user, const char *text)
{
    (void)user, (void)text; /* it is in the log already */
    return DILOCO_OK;
}

/* Checks what fit reported. A client takes H steps, or none if it has no samples (FED-20). The
 * report decides the learning rate and the place in the data of later rounds, so it is checked. */
static diloco_status check_report(const user_worker *h, const char *name,
                                  const diloco_client_report *r)
{
    const uint64_t H = (uint64_t)h->turns.config->local_steps;
    if (r->holds == 0 && (r->steps || r->samples))
        return dl_fail(DILOCO_EINVAL,
                       "%s reports %" PRIu64 " steps on %" PRIu64
                       " samples, and holds none: report how many samples it has",
                       name, r->steps, r->samples);
    if (r->holds > 0 && (r->steps == 0 || r->samples == 0))
        return dl_fail(DILOCO_EINVAL,
                       "%s holds %" PRIu64 " samples and reports %" PRIu64 " steps on %" PRIu64
                       " samples: report what it was trained on",
                       name, r->holds, r->steps, r->samples);
    if (r->holds > 0 && H > 0 && r->steps != H)
        return dl_fail(DILOCO_EINVAL,
                       "%s took %" PRIu64 " steps, and trainer.local_steps_per_round = %" PRIu64
                       ": take as many, or set 0 and trainer.epochs for clients that differ",
                       name, r->steps, H);
    return DILOCO_OK;
}

static void describe(turn *t, const diloco_client_report *r)
{
    const uint64_t H = (uint64_t)t->user_worker->turns.config->local_steps;
    const uint64_t first = t->facts.next_sample;
    t->facts.steps += r->steps;
    t->facts.next_sample += r->samples;
    t->work = (dl_train_stats){.step = t->facts.steps,
                               .steps = r->steps,
                               .samples = r->samples,
                               .tokens = r->tokens,
                               .shard = t->facts.client - 1,
                               .first_sample = first,
                               .end_sample = t->facts.next_sample,
                               .position = (t->user_worker->turns.entry + 1) * (H ? H : 1),
                               .loss = r->holds && isfinite(r->loss) ? r->loss : NAN,
                               .holds = r->holds};
}

static diloco_status keep(void *user, dl_hash body)
{
    turn *t = user;
    return dl_turns_keep(&t->user_worker->turns, &t->facts, body);
}

static diloco_status train_client(user_worker *h, const char *name, bool *worked)
{
    turn t = {.user_worker = h, .facts = {.client = dl_client_number(name)}};
    dl_exec_client c = {.stats = &t.work, .keep = keep, .user = &t};
    diloco_client_report report = {.loss = NAN};
    bool late, first;
    DL_TRY(dl_turns_take_up(&h->turns, &t.facts, &late));
    if (late) return DILOCO_OK;
    dl_run_load_theta(h->run);
    const diloco_client_turn ask = {.client = t.facts.client,
                                    .entry = h->turns.entry,
                                    .steps = t.facts.steps,
                                    .next_sample = t.facts.next_sample,
                                    .fresh = h->turns.fresh};
    DL_TRY(h->given.fit(h->given.user, &ask, &report));
    DL_TRY(check_report(h, name, &report));
    describe(&t, &report);
    snprintf(c.generation.replica, sizeof c.generation.replica, "%s", name);
    const diloco_status status = dl_run_put_client(h->run, &first, &c);
    if (status) return dl_fail_context(status, "%s", name);
    *worked = true;
    return record(h, name, &t, first);
}

static diloco_status work(void *user, bool *worked)
{
    user_worker *h = user;
    const dl_time began = dl_clock_now();
    const char *client;
    *worked = false;
    if (diloco_run_now(h->run).interrupted) return DILOCO_OK;
    DL_TRY(dl_turns_next(&h->turns, &client));
    if (!client) return DILOCO_OK;
    DL_TRY(train_client(h, client, worked));
    h->turns.client_took = dl_clock_now() - began;
    return DILOCO_OK;
}

/* ---- a generation ----------------------------------------------------------------------- */

/* Lists the caller's private arrays. One place remains for the residual. A client's state is read
 * and written in the arrays themselves. A piece that is put together at a save, or read from a
 * device, has none. */
static diloco_status list_vectors(user_worker *h)
{
    size_t n;
    const dl_private *mine = dl_run_privates(h->run, &n);
    if (n >= MAX_VECTORS)
        return dl_fail(DILOCO_EINVAL, "more than %d private pieces of a client", MAX_VECTORS - 1);
    for (size_t i = 0; i < n; i++)
        if (mine[i].fill)
            return dl_fail(DILOCO_EREFUSED,
                           "%s: a client's private piece is an array in host memory "
                           "(diloco_run_private), not on a device, nor a function that fills one",
                           mine[i].name);
    memcpy(h->vectors, mine, n * sizeof *mine);
    h->n_vectors = n;
    return DILOCO_OK;
}

/* Adds the residual of error feedback, which belongs to the client as its private arrays do. */
static void list_residual(user_worker *h)
{
    size_t n;
    float *residual = dl_run_residual(h->run, &n);
    if (!residual) return;
    h->vectors[h->n_vectors++] = (dl_private){
        .name = "diloco.residual", .data = residual, .len = n * sizeof *residual, .f32 = true};
}

static diloco_status join(user_worker *h, bool trains)
{
    DL_TRY(diloco_run_join(h->run));
    h->config = *dl_run_config(h->run); /* options that were not given are the run's now */
    DL_TRY(dl_check_clients(&h->config));
    if (!trains) return DILOCO_OK;
    list_residual(h);
    return dl_turns_begin(&h->turns, h->vectors, h->n_vectors);
}

static diloco_status loop(user_worker *h)
{
    while (!diloco_run_done(h->run)) {
        const uint64_t entry = diloco_run_now(h->run).entry;
        const diloco_status status = dl_run_round(h->run);
        const diloco_run_info now = diloco_run_now(h->run);
        if (status || now.interrupted)
            return status ? status : dl_fail(DILOCO_EINTERRUPTED, "interrupted");
        if (now.entry == entry) continue;
        dl_run_load_theta(h->run);
        if (h->given.round) DL_TRY(h->given.round(h->given.user, entry));
    }
    dl_run_load_theta(h->run);
    dl_run_leave(h->run);
    return DILOCO_OK;
}

static diloco_status live(user_worker *h)
{
    const bool serves = h->config.role == DL_ROLE_SERVER;
    if (!dl_config_federated(&h->config))
        return dl_fail(DILOCO_EINVAL,
                       "the run has no logical clients: set clients.total_clients to their number");
    if (!h->given.fit && !serves)
        return dl_fail(DILOCO_EINVAL, "clients need a function that trains one (fit), except in a "
                                      "process with run.role = \"server\"");
    DL_TRY(dl_check_clients(&h->config));
    DL_TRY(list_vectors(h));
    if (!serves) DL_TRY(dl_turns_open(&h->turns));
    const dl_worker_hooks calls = {
        .work = serves ? NULL : work, .user = h, .follows = h->config.role == DL_ROLE_WORKER};
    dl_run_set_worker_hooks(h->run, &calls);
    DL_TRY(join(h, !serves));
    return loop(h);
}

diloco_status diloco_clients_run_sized(diloco_run *run, const diloco_clients *clients, size_t size)
{
    user_worker h = {.run = run};
    DL_TRY(dl_sized_in(&h.given, sizeof h.given, clients, size, "diloco_clients"));
    h.config = *dl_run_config(run);
    h.turns = (dl_turns){.config = &h.config, .run = run, .warn = warn};
    const diloco_status status = live(&h);
    char text[2048]; /* the first error, whatever goes wrong in closing */
    snprintf(text, sizeof text, "%s", diloco_error_text());
    dl_turns_close(&h.turns);
    return status ? dl_fail(status, "%s", text) : DILOCO_OK;
}
