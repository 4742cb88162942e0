/* recommend.h - which method, how often, how coarse: the choice nearest to data-parallel training
 * that keeps the machines busy.
 *
 * Candidates are tried from the one that costs the least quality on, and the first that reaches the
 * target utilisation is taken. By the papers (docs/planner.md) a longer H costs most quality (loss
 * +.02 from H 30 to 100 at 35 M parameters). A coarser codec is next, then fragments and overlap,
 * which cost next to nothing up to tau 5; sparse contributions are last. So data_parallel is tried
 * first, then each H of 30, 50, 100, 200, 500, none above half of the run's steps. For each H come
 * codecs from fine to coarse, each with diloco, then with streaming at the least tau from 1 to 5
 * that does; then sparse. */
#ifndef DL_PLAN_RECOMMEND_H
#define DL_PLAN_RECOMMEND_H

#include "plan/forecast.h"

/* May a row of values be recommended? ("preset", "streaming"), ("codec", "e3m0") */
typedef bool (*dl_plan_offered)(void *user, const char *kind, const char *name);

typedef struct dl_recommendation {
    const dl_plan_method *method;
    const char *codec;
    dl_plan_choice choice;
    dl_forecast forecast;
    bool reached;     /* the target; otherwise this is the candidate with the best utilisation */
    char reason[384]; /* one sentence */
} dl_recommendation;

/* DILOCO_EREFUSED: nothing is offered. */
DL_MUST_CHECK diloco_status dl_plan_recommend(dl_recommendation *out, const dl_plan_task *task,
                                              uint32_t layers, uint32_t fragment_layers,
                                              dl_exchange exchange, double target,
                                              const dl_prices *prices, dl_plan_offered offered,
                                              void *user);

#endif
