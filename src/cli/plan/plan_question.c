/* plan_question.c - the planner's question: the model, the run, the link, the prices, and the
 * values that the command line puts over the methods' own. Begin with dl_plan_ask.
 *
 * Each part has its own function. The cheap parts come first: settings, overrides, prices. Then the
 * link may be probed, and the time of a step may be measured by training for seconds. */
#include "cli/crew/crew.h"
#include "cli/plan/plan_pages.h"
#include "cli/settings/settings.h"
#include "plan/published.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <string.h>

/* A short name, as this file asks for many flags. */
static bool has(const dl_args *args, dl_flag flag)
{
    return dl_args_has(args, flag);
}

/* A count of 0 is refused by name: as a divisor or a length it would have no meaning. */
diloco_status dl_plan_count(uint32_t *out, const dl_args *args, dl_flag flag, uint32_t fallback,
                            uint32_t max)
{
    uint64_t n;
    DL_TRY(dl_args_u64(&n, args, flag, fallback, max));
    if (!n) return dl_fail(DILOCO_EINVAL, "%s 0: at least 1", dl_flag_rows[flag].name);
    *out = (uint32_t)n;
    return DILOCO_OK;
}

/* Read a number flag that has to be positive. *out stays when it is not given. */
static diloco_status positive(double *out, const dl_args *args, dl_flag flag, double max)
{
    if (!has(args, flag)) return DILOCO_OK;
    DL_TRY(dl_args_f64(out, args, flag, 0, max));
    if (*out > 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s %s: more than 0", dl_flag_rows[flag].name, args->flags[flag]);
}

/* ---- the model */

/* diloco_train_plan counts the parameters and the steps; the rest is the configuration's. */
static diloco_status of_config(dl_plan_question *q, const dl_args *args)
{
    diloco_memory_plan memory;
    if (has(args, DL_FLAG_PARAMS) || has(args, DL_FLAG_LAYERS))
        return dl_fail(DILOCO_EINVAL, "CONFIG says what the model is; --params and --layers go "
                                      "without one");
    DL_TRY(dl_settings_load(&q->config, args));
    /* The step time depends on the threads of a replica, so these are chosen as for training. */
    DL_TRY(dl_crew_fill_in(&q->config));
    DL_TRY(diloco_train_plan(&memory, &q->config));
    q->has_config = true;
    q->layers = (uint32_t)q->config.layers;
    q->task.parameters = (double)memory.parameters;
    q->task.steps = (double)memory.steps;
    q->task.replicas = (uint32_t)q->config.replicas;
    /* Background traffic is part of the forecast (P25). */
    q->task.heartbeat_s = q->config.heartbeat_s;
    q->task.snapshot_s = q->config.snapshot_s;
    return DILOCO_OK;
}

/* Without a configuration the run has 2 replicas and 10,000 steps unless flags say otherwise. */
static diloco_status of_flags(dl_plan_question *q, const dl_args *args)
{
    if (!has(args, DL_FLAG_PARAMS) || !has(args, DL_FLAG_LAYERS))
        return dl_fail(DILOCO_EINVAL, "plan needs a model: a CONFIG, or --params N --layers L "
                                      "--step-seconds S");
    if (!has(args, DL_FLAG_STEP_SECONDS))
        return dl_fail(DILOCO_EINVAL, "--step-seconds S is needed: without a CONFIG there is no "
                                      "model to measure it with");
    if (args->n_sets) return dl_fail(DILOCO_EINVAL, "--set changes a CONFIG: name one");
    dl_config_init(&q->config);
    DL_TRY(positive(&q->task.parameters, args, DL_FLAG_PARAMS, 1e18));
    /* Defaults of a plan without a configuration. */
    q->task.steps = 10000;
    q->task.replicas = 2;
    q->task.heartbeat_s = q->config.heartbeat_s;
    q->task.snapshot_s = q->config.snapshot_s;
    return dl_plan_count(&q->layers, args, DL_FLAG_LAYERS, 1, DL_PLAN_MAX_LAYERS);
}

/* Find the seconds of a step. It is measured last, when all else is known to be right. */
static diloco_status step_time(dl_plan_question *q, const dl_args *args)
{
    if (has(args, DL_FLAG_STEP_SECONDS))
        return positive(&q->task.step_s, args, DL_FLAG_STEP_SECONDS, 1e9);
    if (!*q->config.train_path)
        return dl_fail(DILOCO_EINVAL, "measuring a step needs data.train_path in CONFIG; or give "
                                      "--step-seconds S");
    DL_TRY(diloco_train_check(&q->config));
    q->measured_step = true;
    return dl_plan_measure(&q->task.step_s, &q->config);
}

/* ---- the link */

/* A store that cannot be measured gives no link. MB/s are decimal, hence 8e6 bits. */
static diloco_status probe(dl_plan_link *link, const char *url)
{
    diloco_store_report report;
    DL_TRY(diloco_store_check(&report, url));
    if (!(report.write_mb_per_s > 0 && report.read_mb_per_s > 0))
        return dl_fail(DILOCO_EIO, "--probe %s: the store was too fast or too slow to be measured",
                       url);
    *link = (dl_plan_link){.up_bps = 8e6 * report.write_mb_per_s,
                           .down_bps = 8e6 * report.read_mb_per_s,
                           .latency_s = (report.create_ms + report.read_ms) / 2000};
    return DILOCO_OK;
}

/* Exactly one of the three ways to give a link; --probe may go through --link, which slows it
 * down. */
static diloco_status link_of(dl_plan_link *link, const dl_args *args)
{
    double gbit = 0, latency_ms;
    const bool probes = has(args, DL_FLAG_PROBE);
    /* --link with --probe counts as one: the probe goes through that link. */
    const int n = has(args, DL_FLAG_GBIT) + (has(args, DL_FLAG_LINK) || probes);
    if (n != 1)
        return dl_fail(DILOCO_EINVAL,
                       "plan needs %s link: --gbit X [--latency MS], --link "
                       "50mbit,100ms, or --probe URL, which measures it",
                       n ? "one" : "a");
    if (has(args, DL_FLAG_LATENCY) && !has(args, DL_FLAG_GBIT))
        return dl_fail(DILOCO_EINVAL, "--latency goes with --gbit");
    if (probes && has(args, DL_FLAG_LINK)) DL_TRY(diloco_store_link(args->flags[DL_FLAG_LINK]));
    if (probes) return probe(link, args->flags[DL_FLAG_PROBE]);
    if (has(args, DL_FLAG_LINK))
        return dl_plan_link_parse(link, "--link", args->flags[DL_FLAG_LINK]);
    DL_TRY(positive(&gbit, args, DL_FLAG_GBIT, 1e9));
    DL_TRY(dl_args_f64(&latency_ms, args, DL_FLAG_LATENCY, 0, 1e9));
    *link = (dl_plan_link){gbit * 1e9, gbit * 1e9, latency_ms / 1000};
    return DILOCO_OK;
}

/* ---- values over the methods' own */

/* Without the flag it is allgather, as with `diloco train`. */
static diloco_status exchange_of(dl_exchange *out, const dl_args *args)
{
    const char *name = args->flags[DL_FLAG_EXCHANGE];
    *out = DL_ALLGATHER;
    for (int e = 0; name && e < DL_N_EXCHANGES; e++)
        if (strcmp(name, dl_exchange_names[e]) == 0) {
            *out = (dl_exchange)e;
            return DILOCO_OK;
        }
    if (!name) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "--exchange %.60s is unknown; there is: allgather, leader, sharded", name);
}

/* -1 marks values that the methods choose. */
static diloco_status overrides(dl_plan_question *q, const dl_args *args)
{
    uint64_t n;
    q->sync_every = q->tau = -1;
    q->bits = -1;
    if (has(args, DL_FLAG_METHOD))
        DL_TRY(dl_plan_method_find(&q->method, args->flags[DL_FLAG_METHOD]));
    if (has(args, DL_FLAG_SYNC_EVERY)) {
        uint32_t H = 0;
        DL_TRY(dl_plan_count(&H, args, DL_FLAG_SYNC_EVERY, 1, DL_PLAN_MAX_SYNC));
        q->sync_every = H;
    }
    DL_TRY(dl_args_u64(&n, args, DL_FLAG_TAU, 0, DL_PLAN_MAX_SYNC));
    if (has(args, DL_FLAG_TAU)) q->tau = (int64_t)n;
    DL_TRY(positive(&q->bits, args, DL_FLAG_BITS, 64));
    DL_TRY(dl_plan_count(&q->fragment_layers, args, DL_FLAG_FRAGMENT_LAYERS,
                         q->layers < 3 ? q->layers : 3, q->layers));
    q->target = 0.95;
    DL_TRY(positive(&q->target, args, DL_FLAG_UTILIZATION, 1));
    return exchange_of(&q->exchange, args);
}

/* Everything that can be wrong is read before the link is probed and a step is measured, as both
 * take time. */
diloco_status dl_plan_ask(dl_plan_question *q, const dl_args *args)
{
    *q = (dl_plan_question){.has_config = false};
    DL_TRY(args->target ? of_config(q, args) : of_flags(q, args));
    DL_TRY(overrides(q, args));
    DL_TRY(dl_plan_count(&q->task.replicas, args, DL_FLAG_PLAN_REPLICAS, q->task.replicas, 65536));
    if (has(args, DL_FLAG_STEPS)) {
        uint64_t steps;
        DL_TRY(dl_args_u64(&steps, args, DL_FLAG_STEPS, 0, 1000000000000));
        if (!steps) return dl_fail(DILOCO_EINVAL, "--steps 0: at least 1");
        q->task.steps = (double)steps;
    }
    if (has(args, DL_FLAG_COST)) {
        DL_TRY(dl_plan_prices(&q->prices, args->flags[DL_FLAG_COST]));
        q->has_prices = true;
    }
    DL_TRY(link_of(&q->task.link, args));
    return step_time(q, args);
}
