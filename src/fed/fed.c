/* fed.c - see fed.h.
 *
 *     open settings, data, model --> run --> join --> { round: wait, and work meanwhile; evaluate
 * }*
 *
 * Nothing of a process is saved: the log says where the run is, and each client's state is its own
 * (client.h). So a generation begins as any other does. */
#include "fed/fed.h"

#include "base/log.h"
#include "fed/worker.h"
#include "presets/checks.h"
#include "presets/contract.h"
#include "presets/local_steps.h"
#include "train/evaluate.h"
#include "train/opening.h"
#include "train/results.h"
#include "train/stop.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct life {
    const char *name;
    const diloco_train_hooks *hooks; /* or NULL */
    dl_setup setup;
    diloco_run *run;
    dl_worker worker; /* zeroed: a server */
    dl_recorder recorder;
    dl_stop *stop;
    dl_meter meter;
    dl_results results; /* of a process that closes entries */
    bool reached;       /* trainer.target_accuracy */
    diloco_run_info now;
} life;

static bool is_role(const life *l, dl_role_choice role)
{
    return l->setup.config.role == role;
}

static void progress(const life *l, const char *phase)
{
    if (!l->hooks || !l->hooks->on_progress) return;
    const diloco_progress p = dl_meter_progress(&l->meter, &l->now, phase);
    l->hooks->on_progress(l->hooks->user, &p);
}

static diloco_status work(void *user, bool *worked)
{
    life *l = user;
    const diloco_status status = dl_worker_work(&l->worker, worked);
    if (*worked) {
        l->now = diloco_run_now(l->run);
        progress(l, "train");
    }
    return status;
}

/* ---- evaluating --------------------------------------------------------------------------- */

/* One of the closers does what follows a round: in turn, by the number in the name. */
static bool my_turn(const life *l)
{
    const dl_config *c = &l->setup.config;
    const uint64_t every = (uint64_t)c->eval_every;
    if (is_role(l, DL_ROLE_WORKER)) return false;
    if (is_role(l, DL_ROLE_SERVER)) return true;
    const uint64_t turn = every ? l->now.entry / every : l->now.entry;
    const char *digits = l->name + strcspn(l->name, "0123456789");
    return turn % (uint64_t)dl_local_replicas(c) ==
           strtoull(digits, NULL, 10) % (uint64_t)dl_local_replicas(c);
}

static bool evaluation_due(const life *l)
{
    const dl_config *c = &l->setup.config;
    const uint64_t every = (uint64_t)c->eval_every;
    if (!c->server_test || dl_data_test_samples(l->setup.data) == 0) return false;
    return l->now.entry == l->now.entries || (every > 0 && l->now.entry % every == 0);
}

static diloco_status evaluate(dl_score *score, life *l)
{
    progress(l, "eval");
    DL_TRY(dl_evaluate_shared(score, NULL, &l->setup, l->run, 0));
    dl_json *j = dl_recorder_begin(&l->recorder, "eval");
    dl_json_u64(j, "entry", l->now.entry);
    dl_json_u64(j, "step", l->now.step);
    dl_json_f64(j, "loss", score->loss);
    if (l->setup.sample->kind == DL_TOKENS) dl_json_f64(j, "perplexity", exp(score->loss));
    dl_json_f64(j, "accuracy", score->accuracy);
    dl_json_u64(j, "targets", score->n_targets);
    return dl_recorder_end(&l->recorder);
}

static void see_target(life *l, double accuracy)
{
    const double target = l->setup.config.target_accuracy;
    if (target <= 0 || !(accuracy >= target) || diloco_run_done(l->run)) return;
    l->reached = true;
    dl_log(DILOCO_LOG_WARN,
           "accuracy %.4f has reached trainer.target_accuracy = %g: stopped after %" PRIu64
           " of %" PRIu64 " rounds",
           accuracy, target, l->now.entry, l->now.entries);
}

/* Another closer of this machine, whose turn it was, may have evaluated what reached it. */
static void see_others_target(life *l)
{
    const dl_config *c = &l->setup.config;
    if (is_role(l, DL_ROLE_WORKER) || c->target_accuracy <= 0) return;
    if (dl_results_put(&l->results, l->now.entry, NULL)) {
        dl_log(DILOCO_LOG_WARN, "the results file: %s", diloco_error_text());
        return;
    }
    for (uint64_t round = l->now.entry; round >= 1 && !l->reached; round--)
        see_target(l, dl_results_accuracy(&l->results, round));
}

/* Evaluates and puts the row of the results, in the turn's order. Results that cannot be written do
 * not stop training. */
static diloco_status end_round(life *l)
{
    dl_score score;
    const bool due = evaluation_due(l);
    if (!my_turn(l)) {
        see_others_target(l);
        return DILOCO_OK;
    }
    if (due) DL_TRY(evaluate(&score, l));
    if (dl_results_put(&l->results, l->now.entry, due ? &score : NULL))
        dl_log(DILOCO_LOG_WARN, "the results file: %s", diloco_error_text());
    if (due) see_target(l, score.accuracy);
    return DILOCO_OK;
}

/* A generation that ended between a round and its row left that to the next one. */
static diloco_status begin_results(life *l)
{
    const uint64_t entry = l->now.entry;
    if (is_role(l, DL_ROLE_WORKER)) return DILOCO_OK;
    DL_TRY(dl_results_open(&l->results, &l->setup.config, entry));
    if (entry == 0) return DILOCO_OK;
    const double accuracy = dl_results_accuracy(&l->results, entry);
    if (isnan(accuracy)) return end_round(l);
    see_target(l, accuracy);
    return DILOCO_OK;
}

/* ---- a generation -------------------------------------------------------------------------------
 */

static void record_warning(void *user, const char *code, const char *text)
{
    life *l = user;
    (void)!dl_recorder_warn(&l->recorder, code, text); /* a record that fails stops nothing */
}

static diloco_status record_life(life *l)
{
    dl_json *j = dl_recorder_begin(&l->recorder, "trainer");
    dl_json_u64(j, "generation", l->now.generation);
    dl_json_str(j, "role", dl_role_choice_names[l->setup.config.role]);
    dl_json_str(j, "contract", dl_contract_name(&l->setup.config));
    dl_json_i64(j, "clients", l->setup.config.total_clients);
    dl_json_str(j, "time", l->setup.config.speed_simulation ? "simulated" : "real");
    dl_json_str(j, "program", diloco_version());
    dl_json_str(j, "isa", diloco_isa());
    dl_json_i64(j, "threads", l->setup.config.threads);
    dl_json_str(j, "data", dl_sample_kind_name(l->setup.sample->kind));
    dl_json_str(j, "data_digest", dl_data_digest(l->setup.data));
    DL_TRY(dl_recorder_end(&l->recorder));
    dl_check_warnings(&l->setup.config, record_warning, l);
    return DILOCO_OK;
}

static diloco_status join(life *l)
{
    progress(l, "join");
    DL_TRY(diloco_run_join(l->run));
    DL_TRY(dl_opening_check(&l->setup.config));
    l->now = diloco_run_now(l->run);
    dl_meter_begin(&l->meter, &l->now);
    if (!is_role(l, DL_ROLE_SERVER)) DL_TRY(dl_worker_begin(&l->worker));
    DL_TRY(record_life(l));
    return begin_results(l);
}

static diloco_status round_of_run(life *l)
{
    progress(l, "wait");
    const diloco_status status = dl_run_round(l->run);
    const uint64_t entry = l->now.entry;
    l->now = diloco_run_now(l->run);
    if (l->now.entry != entry) l->meter.ahead = 0;
    return status;
}

static bool asked_to_stop(const life *l)
{
    return l->now.interrupted || (l->hooks && l->hooks->stop && dl_stop_asked(l->hooks->stop));
}

static diloco_status loop(life *l)
{
    while (!diloco_run_done(l->run) && !l->reached) {
        const uint64_t entry = l->now.entry;
        const diloco_status status = round_of_run(l);
        if (status && status != DILOCO_EINTERRUPTED) return status;
        if (!status && l->now.entry != entry) DL_TRY(end_round(l));
        if (status || (asked_to_stop(l) && !diloco_run_done(l->run) && !l->reached))
            return dl_fail(DILOCO_EINTERRUPTED,
                           "%s stopped at entry %" PRIu64 " of %" PRIu64
                           ": the same command resumes here",
                           l->name, l->now.entry, l->now.entries);
    }
    dl_run_leave(l->run);
    return DILOCO_OK;
}

static diloco_status open_worker(life *l)
{
    const dl_worker borrowed = {.setup = &l->setup,
                                .run = l->run,
                                .recorder = &l->recorder,
                                .meter = &l->meter,
                                .now = &l->now,
                                .hooks = l->hooks};
    return is_role(l, DL_ROLE_SERVER) ? DILOCO_OK : dl_worker_open(&l->worker, &borrowed);
}

static diloco_status live(life *l, bool exists)
{
    DL_TRY(dl_local_steps_check(&l->setup.config, l->setup.data));
    DL_TRY(dl_opening_run(&l->run, &l->setup, l->name, exists));
    DL_TRY(open_worker(l));
    const dl_hands hands = {.work = is_role(l, DL_ROLE_SERVER) ? NULL : work,
                            .user = l,
                            .follows = is_role(l, DL_ROLE_WORKER)};
    dl_run_set_hands(l->run, &hands);
    DL_TRY(dl_recorder_open(&l->recorder, &l->setup.config, l->name, l->run, l->hooks));
    DL_TRY(dl_stop_create(&l->stop, l->hooks ? l->hooks->stop : NULL, l->run));
    DL_TRY(join(l));
    DL_TRY(loop(l));
    progress(l, "done");
    return DILOCO_OK;
}

diloco_status dl_fed_train(const dl_config *config, const char *name,
                           const diloco_train_hooks *hooks)
{
    life l = {.name = name, .hooks = hooks, .meter = {.loss = NAN}};
    bool exists;
    DL_TRY(dl_opening_setup(&l.setup, &exists, config, 0));
    const diloco_status status = live(&l, exists);
    char text[2048]; /* the first error, whatever goes wrong in closing */
    snprintf(text, sizeof text, "%s", diloco_error_text());
    dl_stop_destroy(l.stop);
    dl_results_close(&l.results);
    diloco_run_close(l.run);
    l.recorder.run = NULL;
    dl_recorder_close(&l.recorder); /* after the run's last line */
    dl_worker_close(&l.worker);
    dl_setup_close(&l.setup);
    return status ? dl_fail(status, "%s", text) : DILOCO_OK;
}
