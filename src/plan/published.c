/* published.c - the paper's rules as one walk along the compute stream.
 *
 * 1. Only `compute` and `link` move: the ends of what the two have done so far. Times of layers
 *    in the air are in `ready`, one each: a layer is sent at most once in H steps, and tau < H, so
 *    it has been waited for before it is sent again.
 * 2. A step that neither sends nor waits is one addition, so a run costs L times the steps
 *    that do.
 * 3. All is made of max and +, so a faster link never ends later, and a target's grid point is
 *    found by bisection. */
#include "plan/published.h"

#include <math.h>
#include <string.h>

/* A run is as long as the papers' own. */
enum { RUN_INTERVALS = 3, RUN_MIN_STEPS = 100 };

static diloco_status check_range(const char *flag, double value, double min, double max)
{
    if (value >= min && value <= max) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s %g is not in the range from %g to %g", flag, value, min, max);
}

/* Ranges keep the walk's arrays and loops within bounds. */
diloco_status dl_published_check(const dl_published *p)
{
    DL_TRY(check_range("--params", p->parameters, 1, 1e18));
    DL_TRY(check_range("--layers", p->layers, 1, DL_PLAN_MAX_LAYERS));
    DL_TRY(check_range("--step-seconds", p->step_s, 1e-9, 1e9));
    DL_TRY(check_range("--bits", p->bits, 0.01, 64));
    DL_TRY(check_range("--sync-every", p->sync_every, 1, DL_PLAN_MAX_SYNC));
    DL_TRY(check_range("--fragment-layers", p->fragment_layers, 1, p->layers));
    DL_TRY(check_range("--replicas", p->replicas, 2, 65536));
    if (p->tau >= p->sync_every)
        return dl_fail(DILOCO_EREFUSED,
                       "--tau %u with an exchange every %u step%s: a fragment would be sent again "
                       "before it was adopted; take a tau below %u",
                       p->tau, p->sync_every, p->sync_every == 1 ? "" : "s", p->sync_every);
    return DILOCO_OK;
}

/* ---- schedule */

uint64_t dl_published_fragments(const dl_published *p)
{
    return p->method == DL_PUBLISHED_STREAMING ? p->layers / p->fragment_layers : 1;
}

bool dl_published_due(uint64_t *fragment, const dl_published *p, uint64_t t)
{
    uint64_t H = p->sync_every, P = dl_published_fragments(p), phase = t % H;
    *fragment = (phase * P + H - 1) / H; /* the first with floor(fragment * H / P) >= phase */
    return *fragment < P && *fragment * H / P == phase;
}

static bool layer_is_due(const dl_published *p, uint64_t layer, uint64_t t)
{
    uint64_t P = dl_published_fragments(p);
    return layer % P * p->sync_every / P == t % p->sync_every;
}

/* ---- the walk */

/* The two streams in progress; see the rules above. */
typedef struct walk {
    const dl_published *p;
    double slice, transfer;           /* seconds of one */
    double compute, link;             /* done until */
    double ready[DL_PLAN_MAX_LAYERS]; /* a layer's last reduction */
} walk;

/* `waits_for` is the step whose reductions this forward needs, or 0. */
static void forward(walk *w, uint64_t waits_for)
{
    for (uint32_t l = 0; l < w->p->layers; l++) {
        if (waits_for && layer_is_due(w->p, l, waits_for))
            w->compute = fmax(w->compute, w->ready[l]);
        w->compute += w->slice;
    }
}

/* The top layer comes first. Layer 0 has no backward by activation, hence one slice instead of
 * two. */
static void backward(walk *w, uint64_t t, bool sends)
{
    for (uint32_t l = w->p->layers; l-- > 0;) {
        w->compute += l ? 2 * w->slice : w->slice;
        if (!sends || !layer_is_due(w->p, l, t)) continue;
        w->link = fmax(w->link, w->compute) + w->transfer;
        w->ready[l] = w->link;
    }
}

/* Steps that neither send nor wait cost one addition. */
static double paper_utilization(const dl_published *p, double gbit)
{
    uint64_t fragment, back = 1 + (uint64_t)p->tau, steps = RUN_INTERVALS * (uint64_t)p->sync_every;
    walk w = {.p = p};
    w.slice = p->step_s / (3.0 * p->layers - 1);
    w.transfer = p->parameters * p->bits / p->layers / (gbit * 1e9);
    steps = steps > RUN_MIN_STEPS ? steps : RUN_MIN_STEPS;
    for (uint64_t t = 1; t <= steps; t++) {
        bool sends = dl_published_due(&fragment, p, t);
        bool waits = t > back && dl_published_due(&fragment, p, t - back);
        if (sends || waits) {
            forward(&w, waits ? t - back : 0);
            backward(&w, t, sends);
        } else {
            w.compute += p->step_s;
        }
    }
    return (double)steps * p->step_s / fmax(w.compute, w.link);
}

double dl_published_utilization(const dl_published *p, double gbit)
{
    return p->rules == DL_RULES_PAPER ? paper_utilization(p, gbit)
                                      : dl_calculator_utilization(p, gbit);
}

/* ---- the link for a target */

double dl_published_point(int i)
{
    return 0.1 * pow(10, 4.0 * i / (DL_PUBLISHED_POINTS - 1));
}

/* Bisection over the grid: utilisation never falls as the link grows (rule 3). */
static double paper_link(bool *beyond, const dl_published *p, double target)
{
    int below = -1, reached = DL_PUBLISHED_POINTS;
    while (reached - below > 1) {
        int middle = (below + reached) / 2;
        if (paper_utilization(p, dl_published_point(middle)) < target)
            below = middle;
        else
            reached = middle;
    }
    *beyond = reached == DL_PUBLISHED_POINTS;
    return dl_published_point(below < 0 ? 0 : below);
}

/* Bisection over the logarithm of the link, 60 halvings: the rest is below any printed digit. */
static double calculator_link(bool *beyond, const dl_published *p, double target)
{
    double below = log(1e-6), reached = log(1e6);
    *beyond = dl_calculator_utilization(p, exp(reached)) < target;
    for (int i = 0; i < 60 && !*beyond; i++) {
        double middle = (below + reached) / 2;
        if (dl_calculator_utilization(p, exp(middle)) < target)
            below = middle;
        else
            reached = middle;
    }
    return exp(reached);
}

double dl_published_link(bool *beyond, const dl_published *p, double target)
{
    return p->rules == DL_RULES_PAPER ? paper_link(beyond, p, target)
                                      : calculator_link(beyond, p, target);
}
