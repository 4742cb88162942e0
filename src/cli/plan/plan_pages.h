/* plan_pages.h - shared by the files of `diloco plan`.
 *
 * `diloco plan` has three kinds of answer: a forecast (question, then answer), the published tables
 * (--grid), and a replay of a record (--replay). cmd_plan.c picks one. The models themselves are in
 * src/plan, which prints nothing. */
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

/* dl_plan_ask reads the question from flags, CONFIG, the probe and a short training run. The last
 * two take seconds, so every mistake in the flags is reported before them. Returns DILOCO_EINVAL,
 * DILOCO_EREFUSED, and the errors of the store and of training. */
DL_MUST_CHECK diloco_status dl_plan_ask(dl_plan_question *out, const dl_args *args);

/* dl_plan_of_config fills in the numbers of CONFIG's own method, for a run of `steps` steps and a
 * model of `layers` blocks (plan_answer.c). Returns DILOCO_EREFUSED for a codec whose size is not
 * known and for a tau that is not below H, and DILOCO_EINVAL for rounds that are too long. */
DL_MUST_CHECK diloco_status dl_plan_of_config(dl_plan_choice *out, const dl_config *config,
                                              double steps, uint32_t layers, dl_exchange exchange);

/* dl_plan_prices reads a price table (plan_prices.c; `log` and `launch` use it, too). Returns
 * DILOCO_EINVAL with file:line:column for a mistake in it, and for a file that does not exist. */
DL_MUST_CHECK diloco_status dl_plan_prices(dl_prices *out, const char *path);

/* dl_plan_missing_price returns the name of the k-th price that the table lacks, counted from 0, or
 * NULL. `store`: of the prices of the store; else of machine time. A price of 0 is not missing. */
const char *dl_plan_missing_price(const dl_prices *prices, bool store, size_t k);
/* dl_plan_missing_prices writes all of them as "egress_per_gb, get_per_1000", or "". Returns out.
 */
enum { DL_PLAN_MISSING = 96 };
const char *dl_plan_missing_prices(char out[DL_PLAN_MISSING], const dl_prices *prices, bool store);

/* dl_plan_measure measures the seconds of an optimizer step of this CONFIG on this machine, with
 * the threads of one of run.local_replicas (plan_measure.c). It trains for a few seconds in a
 * temporary folder, and reports that on stderr. It is not reentrant. Returns DILOCO_EIO without
 * such a folder, DILOCO_EINVAL if no step was measured, and the errors of training. */
DL_MUST_CHECK diloco_status dl_plan_measure(double *step_s, const dl_config *config);

/* plan_advice.c: the advice of scaling laws, as lines, and as the member "advice". */
void dl_plan_print_advice(const dl_plan_task *task, uint32_t sync_every);
void dl_plan_add_advice(dl_json *json, const dl_plan_task *task, uint32_t sync_every);

/* dl_plan_answer computes and prints the whole answer, as lines or with --json as one object. It is
 * not reentrant. Returns DILOCO_EREFUSED for a tau that is not below H, and for a codec of CONFIG
 * whose size is not known. */
DL_MUST_CHECK diloco_status dl_plan_answer(const dl_plan_question *q, const dl_args *args);

#endif
