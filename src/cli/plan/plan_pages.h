/* plan_pages.h - shared by the files of `diloco plan`. */
#ifndef DL_CLI_PLAN_PLAN_PAGES_H
#define DL_CLI_PLAN_PLAN_PAGES_H

#include "base/config.h"
#include "cli/cli.h"
#include "plan/forecast.h"

/* plan_question.c: a whole number flag of at least 1, `fallback` when not given; DILOCO_EINVAL with
 * the range. */
DL_MUST_CHECK diloco_status dl_plan_count(uint32_t *out, const dl_args *args, dl_flag flag,
                                          uint32_t fallback, uint32_t max);

/* plan_grid.c: --grid. plan_replay.c: --replay. */
DL_MUST_CHECK diloco_status dl_plan_grid(const dl_args *args);
DL_MUST_CHECK diloco_status dl_plan_replay(const dl_args *args);

/* ---- the planner: its question (plan_question.c) and its answer (plan_answer.c) */

/* The question, read from flags and a configuration. It is large, because it holds the
 * configuration. */
typedef struct dl_plan_question {
    dl_config config; /* of args->target, where there is one */
    bool has_config;
    bool measured_step; /* task.step_s was measured here */
    bool has_prices;
    dl_prices prices;
    dl_plan_task task;                /* numbers of the model, the run and the link */
    uint32_t layers, fragment_layers; /* blocks of the model; blocks of a fragment */
    double target;                    /* utilisation */
    dl_exchange exchange;
    const dl_plan_method *method; /* only this one; NULL: all */
    /* values of the command line over the methods' own; < 0: none */
    int64_t sync_every, tau;
    double bits; /* of a value on the wire */
} dl_plan_question;

/* From flags, CONFIG, the probe and a short training run. DILOCO_EINVAL, DILOCO_EREFUSED, and what
 * the store and the training say. */
DL_MUST_CHECK diloco_status dl_plan_ask(dl_plan_question *out, const dl_args *args);

/* plan_prices.c: a price table, of `log` too; DILOCO_EINVAL with file:line:column. */
DL_MUST_CHECK diloco_status dl_plan_prices(dl_prices *out, const char *path);

/* plan_measure.c: seconds of a step of this CONFIG on this machine, as one of run.local_replicas.
 * Trains for a few seconds in a folder that goes away; says so on stderr. */
DL_MUST_CHECK diloco_status dl_plan_measure(double *step_s, const dl_config *config);

/* plan_advice.c: the advice of scaling laws, as lines, and as the member "advice". */
void dl_plan_print_advice(const dl_plan_task *task, uint32_t sync_every);
void dl_plan_add_advice(dl_json *json, const dl_plan_task *task, uint32_t sync_every);

DL_MUST_CHECK diloco_status dl_plan_answer(const dl_plan_question *q, const dl_args *args);

#endif
