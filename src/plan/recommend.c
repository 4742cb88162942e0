/* recommend.c - a walk over the candidates in the order of recommend.h, until one is good enough.
 *
 * `best` is the best of those that were not: it is the answer when none is, and the comparison in
 * the reason when one is. */
#include "plan/recommend.h"

#include <stdio.h>
#include <string.h>

/* tau, H and codecs that are tried; docs/planner.md has the papers' reasons. */
enum { MAX_TAU = 5 }; /* the advice of 2501.18512 */
static const uint32_t intervals[] = {30, 50, 100, 200, 500};
static const char *const finest_first[] = {"f32", "bf16", "int8", "int4", "e3m0"};

/* The search in progress: the question, then the answer so far. */
typedef struct search {
    const dl_plan_task *task;
    uint32_t layers, fragment_layers;
    dl_exchange exchange;
    double target;
    const dl_prices *prices;
    dl_plan_offered offered;
    void *user;
    dl_recommendation best, found;
} search;

/* Try one candidate. Returns true if it reaches the target; it is then `found`. A candidate that
 * the program does not offer, or that no schedule allows, is skipped. */
static bool take(search *s, const char *name, const char *codec, uint32_t H, uint32_t tau)
{
    dl_recommendation r = {.codec = codec};
    if (dl_plan_method_find(&r.method, name)) return false;
    if (!s->offered(s->user, "preset", r.method->preset) || !s->offered(s->user, "codec", codec))
        return false;
    r.choice = dl_plan_default(r.method, s->layers, s->fragment_layers);
    r.choice.sync_every = H;
    r.choice.tau = tau;
    r.choice.bits = dl_plan_codec_find(codec)->bits;
    r.choice.exchange = s->exchange;
    if (tau >= H || r.choice.fragments > H) return false;
    r.forecast = dl_plan_forecast(s->task, &r.choice, s->prices);
    r.reached = r.forecast.utilization >= s->target;
    if (r.reached)
        s->found = r;
    else if (!s->best.method || r.forecast.utilization > s->best.forecast.utilization)
        s->best = r;
    return r.reached;
}

/* All candidates of one H, from fine to coarse. */
static bool take_interval(search *s, uint32_t H)
{
    for (size_t c = 0; c < sizeof finest_first / sizeof finest_first[0]; c++) {
        if (take(s, "diloco", finest_first[c], H, 0)) return true;
        for (uint32_t tau = 1; tau <= MAX_TAU; tau++)
            if (take(s, "streaming", finest_first[c], H, tau)) return true;
    }
    return take(s, "sparse", "topk", H, 0);
}

/* The last interval that fits into the run is half of it, so there are two exchanges at least. */
static bool look(search *s)
{
    if (take(s, "data_parallel", "f32", 1, 0)) return true;
    const uint32_t most = dl_plan_most_interval(s->task);
    for (size_t i = 0; i < sizeof intervals / sizeof intervals[0]; i++) {
        if (intervals[i] >= most) return most > 1 && take_interval(s, most);
        if (take_interval(s, intervals[i])) return true;
    }
    return false;
}

/* Write a candidate in words, for the reason. */
static void describe(char *out, size_t cap, const dl_recommendation *r)
{
    if (r->choice.sync_every == 1)
        snprintf(out, cap, "%s", r->method->name);
    else if (r->choice.tau)
        snprintf(out, cap, "%s every %u steps in %s with tau %u", r->method->name,
                 r->choice.sync_every, r->codec, r->choice.tau);
    else
        snprintf(out, cap, "%s every %u steps in %s", r->method->name, r->choice.sync_every,
                 r->codec);
}

/* The reason compares with the best candidate that was nearer to data-parallel training. */
static void give_reason(dl_recommendation *out, const search *s)
{
    char it[96], other[96];
    describe(it, sizeof it, out);
    if (s->best.method) describe(other, sizeof other, &s->best);
    if (!out->reached)
        snprintf(
            out->reason, sizeof out->reason,
            "nothing keeps the machines busy %.0f %% of the time on this link; %s comes nearest "
            "with %.1f %%",
            100 * s->target, it, 100 * out->forecast.utilization);
    else if (!s->best.method)
        snprintf(out->reason, sizeof out->reason,
                 "%s keeps the machines busy %.1f %% of the time, so nothing has to be saved", it,
                 100 * out->forecast.utilization);
    else
        snprintf(out->reason, sizeof out->reason,
                 "%s keeps the machines busy %.1f %% of the time; of what is nearer to "
                 "data-parallel training, %s does best, with %.1f %%",
                 it, 100 * out->forecast.utilization, other, 100 * s->best.forecast.utilization);
}

/* Without a candidate that reaches the target the best one is recommended, and the reason says
 * so. */
diloco_status dl_plan_recommend(dl_recommendation *out, const dl_plan_task *task, uint32_t layers,
                                uint32_t fragment_layers, dl_exchange exchange, double target,
                                const dl_prices *prices, dl_plan_offered offered, void *user)
{
    search s = {.task = task,
                .layers = layers,
                .fragment_layers = fragment_layers,
                .exchange = exchange,
                .target = target,
                .prices = prices,
                .offered = offered,
                .user = user};
    bool reached = look(&s);
    if (!reached && !s.best.method)
        return dl_fail(DILOCO_EREFUSED,
                       "no method can be recommended: this program has none of them");
    *out = reached ? s.found : s.best;
    give_reason(out, &s);
    return DILOCO_OK;
}
