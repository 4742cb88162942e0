/* cmd_plan.c - which of the three kinds of plan is asked for, and whether the flags fit it.
 *
 * The kinds share some flags, so a table lists those that each kind reads. src/plan has the models,
 * and src/cli/plan the pages. */
#include "cli/plan/plan_pages.h"

#include <string.h>

/* A shorter name keeps a row of the table below on few lines. */
#define FLAGS DL_FLAGS

/* A kind of plan. A new one is a row in modes[] and a case in mode_of. */
typedef struct plan_mode {
    const char *flag;     /* that asks for it; NULL: none does */
    const dl_flag *takes; /* NULL: the flags of no other mode */
    bool target;          /* takes a CONFIG */
    diloco_status (*run)(const dl_args *args);
} plan_mode;

/* The third kind of plan: ask, then answer. The question holds a whole configuration. */
static diloco_status forecast(const dl_args *args)
{
    static dl_plan_question question; /* too large for some stacks */
    DL_TRY(dl_plan_ask(&question, args));
    return dl_plan_answer(&question, args);
}

/* Flags of each kind, for check_flags. The last row has no list: it takes what is left. */
static const plan_mode modes[] = {
    {"--grid",
     FLAGS(DL_FLAG_GRID, DL_FLAG_PARAMS, DL_FLAG_LAYERS, DL_FLAG_STEP_SECONDS, DL_FLAG_METHOD,
           DL_FLAG_SYNC_EVERY, DL_FLAG_FRAGMENT_LAYERS, DL_FLAG_TAU, DL_FLAG_BITS,
           DL_FLAG_UTILIZATION, DL_FLAG_PLAN_REPLICAS),
     false, dl_plan_grid},
    {"--replay", FLAGS(DL_FLAG_REPLAY, DL_FLAG_LINK, DL_FLAG_RECORDED_LINK, DL_FLAG_TAU), false,
     dl_plan_replay},
    {NULL, NULL, true, forecast},
};

/* --grid wins over --replay; check_flags then refuses the other one. */
static const plan_mode *mode_of(const dl_args *args)
{
    if (dl_args_has(args, DL_FLAG_GRID)) return &modes[0];
    if (dl_args_has(args, DL_FLAG_REPLAY)) return &modes[1];
    return &modes[2];
}

/* Every given flag has to be one that the kind of plan reads. A flag without effect would
 * otherwise be taken for an assumption of the result. */
static diloco_status check_flags(const dl_args *args, const plan_mode *mode)
{
    for (size_t i = 0; i < DL_N_FLAGS; i++) {
        if (!args->flags[i] || i == DL_FLAG_JSON) continue;
        if (mode->takes ? dl_flags_have(mode->takes, i) : i != DL_FLAG_RECORDED_LINK) continue;
        if (mode->flag)
            return dl_fail(DILOCO_EINVAL, "%s does not go with %s", dl_flag_rows[i].name,
                           mode->flag);
        return dl_fail(DILOCO_EINVAL, "%s goes with --replay only", dl_flag_rows[i].name);
    }
    if (mode->target) return DILOCO_OK;
    if (args->target)
        return dl_fail(DILOCO_EINVAL, "%s takes no CONFIG, but \"%.100s\" is given", mode->flag,
                       args->target);
    return args->n_sets ? dl_fail(DILOCO_EINVAL, "--set does not go with %s", mode->flag)
                        : DILOCO_OK;
}

/* The flags are checked before anything is read or measured. */
static diloco_status cmd_plan(const dl_args *args)
{
    const plan_mode *mode = mode_of(args);
    DL_TRY(check_flags(args, mode));
    return mode->run(args);
}

const dl_command dl_command_plan = {
    .name = "plan",
    .target = "[CONFIG]",
    .summary = "estimate time, traffic and cost of a run before paying for machines",
    .details =
        "Shows for each method how busy the machines are, how long the run takes, how much it\n"
        "sends and costs, and which method is best. The model is CONFIG's, or --params and\n"
        "--layers; the link is --gbit, --link, or what --probe measures.\n"
        "  diloco plan demo.toml --link 50mbit,100ms --replicas 4\n"
        "  diloco plan --params 1e9 --layers 24 --step-seconds 0.5 --gbit 0.2 --cost prices.toml\n"
        "--grid answers by the models that others published; --replay puts a measured run on a\n"
        "link.\n"
        "  diloco plan --grid published --params 1e9 --layers 24 --step-seconds 0.1 \\\n"
        "      --method streaming --sync-every 100 --tau 1 --bits 4 --utilization 0.5,0.9\n"
        "  diloco plan --replay record.jsonl --link 50mbit,100ms",
    .flags = DL_FLAGS(DL_FLAG_PARAMS, DL_FLAG_LAYERS, DL_FLAG_STEP_SECONDS, DL_FLAG_STEPS,
                      DL_FLAG_PLAN_REPLICAS, DL_FLAG_GBIT, DL_FLAG_LATENCY, DL_FLAG_LINK,
                      DL_FLAG_PROBE, DL_FLAG_COST, DL_FLAG_ADVICE, DL_FLAG_METHOD,
                      DL_FLAG_SYNC_EVERY, DL_FLAG_FRAGMENT_LAYERS, DL_FLAG_TAU, DL_FLAG_BITS,
                      DL_FLAG_EXCHANGE, DL_FLAG_UTILIZATION, DL_FLAG_GRID, DL_FLAG_REPLAY,
                      DL_FLAG_RECORDED_LINK, DL_FLAG_SET, DL_FLAG_JSON),
    .sets = DL_SETS_ALL,
    .run = cmd_plan,
};
