/* geometric_median.c - the point with the smallest sum of distances to the inputs (RFA, Pillutla
 * et al. 2019, arXiv:1912.13445), to convergence. Needs n >= 2f + 1.
 *
 * 1. Start at the medoid k, the input with the smallest sum of distances to the others. With
 *    unit vectors u_i from x_k to the inputs elsewhere, x_k is the answer where
 *    ||sum u_i|| <= the number of inputs at x_k. Inputs whose sums tie there count alike.
 * 2. Otherwise leave x_k by Vardi and Zhang's step (2000), then take Weiszfeld steps
 *        z = sum w_i x_i / sum w_i,   w_i = 1 / ||z - x_i||
 *    until one moves z by less than TOLERANCE of the scale, the median distance from x_k.
 *    Every EVERY-th step is tried at the length that its contraction predicts, and is kept where
 *    the sum of distances falls. Sums of distances never rise, so no step returns to an input.
 *
 * z is x_k + sum c_i y_i with y_i = x_i - x_k, so distances follow from the dot products H of the
 * y_i, and no step walks memory. An input that is further than FAR scales from x_k is moved to
 * that distance: its pull has a direction only, and its size must not cost the others' digits.
 * Of 10,000 random cases (tests/goldens/geometric_median.py) the slowest takes 241 evaluations;
 * MOST bounds them. A result that MOST cuts short has a smaller sum than every input. */
#include "combine/combine_rows.h"
#include "combine/order.h"

#include <math.h>

enum { EVERY = 4, GROWTH = 4, MOST = 1000 };
#define TOLERANCE 1e-9
#define FAR       1e6
#define LONGEST   1e6   /* a tried step, in steps */
#define TIED      1e-12 /* relative, of sums of up to 4096 distances */

static size_t needed(const dl_combine_rule *rule)
{
    return 2 * rule->byzantine + 1;
}

static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule;
    return (n - 1) / 2;
}

/* ---- seen from the medoid */

typedef struct centred {
    const dl_combine_view *view;
    size_t n, k;
    double scale; /* median distance from x_k */
    double *near; /* [n] what each y_i is multiplied by to be within FAR scales */
} centred;

static double dot(const centred *s, size_t i, size_t j)
{
    const double *G = s->view->gram;
    const size_t n = s->n, k = s->k;
    return s->near[i] * s->near[j] * (G[i * n + j] - G[i * n + k] - G[k * n + j] + G[k * n + k]);
}

/* out[i] = sum over j of H_ij c_j */
static void multiply(double *out, const centred *s, const double *c)
{
    for (size_t i = 0; i < s->n; i++) {
        out[i] = 0;
        for (size_t j = 0; j < s->n; j++)
            out[i] += dot(s, i, j) * c[j];
    }
}

static double length(const centred *s, const double *c, double *room)
{
    double sum = 0;
    multiply(room, s, c);
    for (size_t i = 0; i < s->n; i++)
        sum += c[i] * room[i];
    return sqrt(fmax(sum, 0));
}

/* distance[i] = ||z - x_i||; their sum. */
static double measure(double *distance, const centred *s, const double *c)
{
    double z2 = 0, sum = 0;
    multiply(distance, s, c);
    for (size_t i = 0; i < s->n; i++)
        z2 += c[i] * distance[i];
    for (size_t i = 0; i < s->n; i++) {
        distance[i] = sqrt(fmax(z2 - 2 * distance[i] + dot(s, i, i), 0));
        sum += distance[i];
    }
    return sum;
}

/* c is set to where the first step from x_k ends. false: x_k is the answer. */
static bool leave(double *c, const centred *s, double *room)
{
    double here = 0, sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        const double distance = sqrt(fmax(dot(s, i, i), 0));
        here += distance == 0;
        c[i] = distance == 0 ? 0 : 1 / distance;
        sum += c[i];
    }
    const double pull = length(s, c, room);
    if (pull <= here * (1 + TOLERANCE)) return false;
    for (size_t i = 0; i < s->n; i++)
        c[i] *= (1 - here / pull) / sum;
    return true;
}

/* ---- the medoid */

/* The input with the smallest sum of distances, the first where several have it; sums[n] are set.
 * Without `s` the distances are the plain ones, in which a far input costs the others' digits. */
static size_t medoid(const dl_combine_view *view, const centred *s, double *sums)
{
    size_t best = 0;
    for (size_t k = 0; k < view->n; k++) {
        sums[k] = 0;
        for (size_t i = 0; i < view->n; i++) {
            const double d2 = s ? dot(s, i, i) + dot(s, k, k) - 2 * dot(s, i, k)
                                : dl_distance2(view->gram, view->n, i, k);
            sums[k] += i == k ? 0 : sqrt(fmax(d2, 0));
        }
        if (sums[k] < sums[best]) best = k;
    }
    return best;
}

/* s->k is the centre: s->scale and s->near follow. */
static void centre(centred *s, double *distance)
{
    for (size_t i = 0; i < s->n; i++)
        distance[i] = i == s->k ? 0 : sqrt(dl_distance2(s->view->gram, s->n, i, s->k));
    dl_order(s->view->order, distance, s->n);
    s->scale = distance[s->view->order[s->n / 2]];
    for (size_t i = 0; i < s->n; i++)
        s->near[i] = distance[i] > FAR * s->scale ? FAR * s->scale / distance[i] : 1;
}

/* ---- steps */

typedef struct walk {
    double *c, *distance, *step, *tried, *tried_distance; /* [n] each */
    double sum;                                           /* of distances at c */
    int evaluations;
} walk;

/* From c by `times` the step; true: it was kept, since the sum is smaller there. */
static bool try_further(walk *w, const centred *s, const double *from, double times)
{
    for (size_t i = 0; i < s->n; i++)
        w->tried[i] = from[i] + times * w->step[i];
    const double sum = measure(w->tried_distance, s, w->tried);
    w->evaluations++;
    if (!(sum < w->sum)) return false;
    for (size_t i = 0; i < s->n; i++) {
        w->c[i] = w->tried[i];
        w->distance[i] = w->tried_distance[i];
    }
    w->sum = sum;
    return true;
}

/* Steps shrink by `contraction` from one to the next: all that follow add up to 1 / (1 - it) of
 * this one. Where they grow, ever longer ones are tried. */
static void extrapolate(walk *w, const centred *s, double contraction)
{
    if (contraction < 1) {
        const double times = fmin(contraction / (1 - contraction), LONGEST);
        if (times > 1) try_further(w, s, w->c, times);
        return;
    }
    for (double times = GROWTH; times <= LONGEST && w->evaluations < MOST; times *= GROWTH)
        if (!try_further(w, s, w->c, times)) break;
}

static void converge(walk *w, const centred *s)
{
    double last = 0;
    w->sum = measure(w->distance, s, w->c);
    w->evaluations = 1;
    for (int n_steps = 1; w->evaluations < MOST; n_steps++) {
        double total = 0;
        for (size_t i = 0; i < s->n; i++) {
            w->step[i] = 1 / fmax(w->distance[i], 1e-12 * s->scale);
            total += w->step[i];
        }
        for (size_t i = 0; i < s->n; i++)
            w->step[i] = w->step[i] / total - w->c[i];
        const double moved = length(s, w->step, w->tried);
        for (size_t i = 0; i < s->n; i++)
            w->c[i] += w->step[i];
        if (moved <= TOLERANCE * s->scale) return;
        w->sum = measure(w->distance, s, w->c);
        w->evaluations++;
        if (n_steps % EVERY == 0) extrapolate(w, s, last > 0 ? moved / last : 0);
        last = moved;
    }
}

/* ---- coefficients of the inputs */

/* Of the inputs whose sums tie with the medoid's. Where more than half are at it, only they do. */
static void equal_shares(double *c, const centred *s, const double *sums)
{
    const size_t n = s->n;
    double tied = 0;
    for (size_t i = 0; i < n; i++) {
        c[i] = s->near[i] > 0 && sums[i] <= sums[s->k] * (1 + TIED);
        tied += c[i];
    }
    for (size_t i = 0; i < n; i++)
        c[i] /= tied;
}

static void coefficients(double *c, const dl_combine_view *view)
{
    const size_t n = view->n;
    double *sums = view->room, *near = view->room + n, *distance = view->room + 2 * n;
    centred s = {.view = view, .n = n, .k = medoid(view, NULL, sums), .near = near};
    centre(&s, distance);
    if (s.scale > 0) { /* again, with the digits that far inputs cost above */
        s.k = medoid(view, &s, sums);
        centre(&s, distance);
    }
    if (!leave(c, &s, distance)) {
        equal_shares(c, &s, sums);
        return;
    }
    walk w = {.c = c,
              .distance = distance,
              .step = view->room + 3 * n,
              .tried = view->room + 4 * n,
              .tried_distance = view->room + 5 * n};
    converge(&w, &s);
    double rest = 1;
    for (size_t i = 0; i < n; i++) {
        c[i] *= near[i];
        rest -= c[i];
    }
    c[s.k] += rest;
}

const dl_combiner dl_combiner_geometric_median = {
    .name = "geometric_median",
    .summary = "the point of the smallest sum of distances; f of 2f + 1 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .measure = DL_MEASURE_WHOLE,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = coefficients,
};
