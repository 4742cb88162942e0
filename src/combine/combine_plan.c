/* combine_plan.c - see combine_plan.h.
 *
 *     members --mix--> inputs --row--> coefficients of inputs --mix again--> of members
 *
 * Whole-vector rules see dot products of inputs, and inputs are sums of members, so everything up
 * to the coefficients happens in matrices of members by members, in float64. A coefficient is
 * rounded to float32 once; a member whose coefficients are all 0 is not read. */
#include "combine/combine_plan.h"

#include "base/rng.h"
#include "combine/combine_rows.h"
#include "combine/order.h"

#include <math.h>
#include <string.h>

/* A size that overflows becomes SIZE_MAX, which the arena refuses. The matrices have n + 1 rows,
 * since the previous update may follow the members. */
void dl_combine_plan_layout(dl_combine_plan *plan, dl_arena *arena, const dl_combine_rule *rule,
                            size_t max_members, size_t max_parts)
{
    const size_t n = max_members;
    bool mixes = rule->mixing != DL_MIX_NONE,
         measures = mixes || rule->combiner->measure || rule->checked;
    size_t parts = rule->combiner->measure == DL_MEASURE_TENSORS ? max_parts : 1;
    size_t square = measures ? dl_size_mul(&square, n + 1, n + 1) ? square : SIZE_MAX : 0, all;
    if (!dl_size_mul(&all, square, parts)) all = SIZE_MAX;
    *plan = (dl_combine_plan){.n_members = 0};
    plan->used = DL_ARENA_ARRAY(arena, size_t, n);
    size_t kept = rule->combiner->keeps ? n : 0;
    plan->coef =
        dl_arena_take_array(arena, (mixes ? square : n * parts) + kept, sizeof *plan->coef);
    plan->gram = DL_ARENA_ARRAY(arena, double, all);
    plan->scratch.whole = DL_ARENA_ARRAY(arena, double, square);
    plan->scratch.previous = DL_ARENA_ARRAY(arena, double, n + 1);
    plan->scratch.inputs_gram = DL_ARENA_ARRAY(arena, double, mixes ? square : 0);
    plan->scratch.inputs_previous = DL_ARENA_ARRAY(arena, double, n + 1);
    plan->scratch.norm2 = DL_ARENA_ARRAY(arena, double, n);
    plan->scratch.c = DL_ARENA_ARRAY(arena, double, n + 1);
    plan->scratch.room = DL_ARENA_ARRAY(arena, double, 6 * n);
    plan->scratch.mix = DL_ARENA_ARRAY(arena, float, mixes ? square : 0);
    plan->scratch.order = DL_ARENA_ARRAY(arena, size_t, n);
    plan->scratch.chosen = DL_ARENA_ARRAY(arena, size_t, n);
}

/* A plan that falls back is planned as the plain mean: nothing is mixed. The facts of the step say
 * so. */
diloco_status dl_combine_plan_begin(dl_combine_plan *plan, const dl_combine_rule *rule,
                                    size_t n_members, size_t n_rejected)
{
    plan->rule = dl_combine_after(rule, n_members, n_rejected);
    rule = &plan->rule;
    size_t needed = dl_combine_needed(rule);
    plan->n_members = n_members;
    plan->fell_back = n_members < needed;
    plan->combiner = plan->fell_back ? &dl_combiner_mean : rule->combiner;
    plan->tolerated = dl_combine_tolerated(rule, n_members);
    plan->n_rows = n_members + plan->combiner->keeps;
    plan->previous_coef = 0;
    plan->scale = 1;
    plan->measure = plan->combiner->measure;
    if (rule->mixing == DL_MIX_NNM && !plan->fell_back) plan->measure = DL_MEASURE_WHOLE;
    if (!plan->fell_back || rule->fall_back) return DILOCO_OK;
    return dl_fail(DILOCO_ENUMERIC, "combiner %s needs %zu members, and only %zu contributed",
                   rule->combiner->name, needed, n_members);
}

/* ---- measured */

/* The parts' dot products, both triangles, and their sum. */
static void fill_grams(dl_combine_plan *plan)
{
    size_t n = plan->n_members, rows = plan->n_rows;
    memset(plan->scratch.whole, 0, n * n * sizeof *plan->scratch.whole);
    for (size_t part = 0; part < plan->n_parts; part++) {
        double *gram = plan->gram + part * rows * rows;
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < a; b++)
                gram[b * rows + a] = gram[a * rows + b];
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < n; b++)
                plan->scratch.whole[a * n + b] += gram[a * rows + b];
    }
    for (size_t b = 0; rows > n && b <= n; b++)
        plan->scratch.previous[b] = plan->gram[n * rows + b];
}

const double *dl_combine_plan_gram(const dl_combine_plan *plan)
{
    return plan->measure ? plan->scratch.whole : NULL;
}

/* The previous update is not among the rows here, since nothing is combined. */
void dl_combine_plan_measure(dl_combine_plan *plan, const dl_combine_rule *rule, size_t n_members)
{
    plan->n_members = plan->n_rows = n_members;
    plan->n_parts = 1;
    plan->measure = rule->checked ? DL_MEASURE_WHOLE : DL_MEASURE_NOTHING;
}

const double *dl_combine_plan_measured(dl_combine_plan *plan)
{
    fill_grams(plan);
    return plan->scratch.whole;
}

/* ---- mixing */

/* Nearest-neighbour mixing (Allouah et al. 2023, arXiv:2302.01772): each member becomes the mean of
 * itself and the n - f - 1 nearest others. */
static void mix_nearest(dl_combine_plan *plan, size_t f)
{
    size_t n = plan->n_members, n_near = n - f;
    for (size_t i = 0; i < n; i++) {
        double *d2 = plan->scratch.room;
        for (size_t j = 0; j < n; j++)
            d2[j] = j == i ? -1 : dl_distance2(plan->scratch.whole, n, i, j);
        dl_order(plan->scratch.order, d2, n);
        for (size_t k = 0; k < n; k++)
            plan->scratch.mix[i * n + plan->scratch.order[k]] =
                k < n_near ? (float)(1 / (double)n_near) : 0;
    }
}

/* Bucketing (Karimireddy et al. 2022, arXiv:2006.09365): means of groups of a shuffle. Every reader
 * draws the same shuffle. The seed is a digest of the state and of the members' norms, so it is
 * unknown until the contributions are in. */
static void mix_buckets(dl_combine_plan *plan, size_t size, uint64_t seed)
{
    size_t n = plan->n_members;
    memset(plan->scratch.mix, 0, plan->n_inputs * n * sizeof *plan->scratch.mix);
    for (size_t m = 0; m < n; m++) {
        size_t place = (size_t)dl_rng_permute(m, n, seed, DL_STREAM(DL_STREAM_BUCKETS, 0));
        size_t bucket = place / size, count = dl_size_min(size, n - bucket * size);
        plan->scratch.mix[bucket * n + m] = (float)(1 / (double)count);
    }
}

/* Dot products of inputs: mix gram mix'. A row of the product at a time is in room. */
static void mix_gram(dl_combine_plan *plan)
{
    size_t n = plan->n_members, n_inputs = plan->n_inputs;
    for (size_t a = 0; a < n_inputs; a++) {
        double *row = plan->scratch.room;
        for (size_t m = 0; m < n; m++) {
            row[m] = 0;
            for (size_t k = 0; k < n; k++)
                row[m] += (double)plan->scratch.mix[a * n + k] * plan->scratch.whole[k * n + m];
        }
        for (size_t b = 0; b < n_inputs; b++) {
            double sum = 0;
            for (size_t m = 0; m < n; m++)
                sum += row[m] * (double)plan->scratch.mix[b * n + m];
            plan->scratch.inputs_gram[a * n_inputs + b] = sum;
        }
        plan->scratch.inputs_previous[a] = 0;
        for (size_t m = 0; m < n; m++)
            plan->scratch.inputs_previous[a] +=
                (double)plan->scratch.mix[a * n + m] * plan->scratch.previous[m];
    }
    plan->scratch.inputs_previous[n_inputs] = plan->scratch.previous[n];
}

/* Mixed dot products are wanted only by combiners that measure, or for the mixing itself. */
static void mix(dl_combine_plan *plan, const dl_combine_rule *rule,
                const dl_combine_measured *measured)
{
    plan->mixed = rule->mixing != DL_MIX_NONE && !plan->fell_back;
    plan->n_inputs = plan->mixed ? dl_combine_inputs(rule, plan->n_members) : plan->n_members;
    if (!plan->mixed) return;
    if (rule->mixing == DL_MIX_NNM)
        mix_nearest(plan, rule->byzantine);
    else
        mix_buckets(plan, rule->bucket_size, measured->bucket_seed);
    if (plan->measure) mix_gram(plan);
}

/* ---- coefficients */

/* The inputs of one part: the members, or their mixtures. A mixture's norm is read from the
 * diagonal of the mixed dot products. */
static dl_combine_view view_of(dl_combine_plan *plan, const dl_combine_rule *rule,
                               const dl_combine_measured *measured, size_t part)
{
    size_t n = plan->n_members, n_inputs = plan->n_inputs;
    dl_combine_view v = {.rule = rule,
                         .n = n_inputs,
                         .weight = measured->weight,
                         .norm2 = plan->mixed ? plan->scratch.norm2 : measured->norm2,
                         .previous =
                             plan->mixed ? plan->scratch.inputs_previous : plan->scratch.previous,
                         .plain = measured->plain && measured->plain[part],
                         .room = plan->scratch.room,
                         .order = plan->scratch.order};
    bool by_tensor = plan->measure == DL_MEASURE_TENSORS;
    const double *of_members = by_tensor ? plan->gram + part * n * n : plan->scratch.whole;
    if (plan->measure) v.gram = plan->mixed ? plan->scratch.inputs_gram : of_members;
    for (size_t i = 0; plan->mixed && v.gram && i < n_inputs; i++)
        plan->scratch.norm2[i] = v.gram[i * n_inputs + i];
    return v;
}

/* The median of the members' norms, and 0 of nothing by nothing. Every reader computes the scale
 * from the same facts, so no result is sent. */
static double scale_to_median(dl_combine_plan *plan, const double *norm2, double own2)
{
    double median = sqrt(dl_median(plan->scratch.order, norm2, plan->n_members));
    return own2 > 0 ? median / sqrt(own2) : 0;
}

/* The combined vector gets the median of the members' norms. */
static void rescale(dl_combine_plan *plan, const dl_combine_view *view, const double *norm2)
{
    double own2 = 0;
    for (size_t a = 0; a < view->n; a++)
        for (size_t b = 0; b < view->n; b++)
            own2 += plan->scratch.c[a] * plan->scratch.c[b] * view->gram[a * view->n + b];
    double scale = scale_to_median(plan, norm2, own2);
    for (size_t i = 0; i < view->n; i++)
        plan->scratch.c[i] *= scale;
}

void dl_combine_plan_rescale(dl_combine_plan *plan, const double *norm2, double own2)
{
    plan->scale = (float)scale_to_median(plan, norm2, own2);
}

/* The shares of the members alone, of what the state keeps no update of. */
static void keep(dl_combine_plan *plan)
{
    size_t n = plan->n_members;
    double sum = 0;
    plan->previous_coef = (float)plan->scratch.c[plan->n_inputs];
    for (size_t m = 0; m < n; m++)
        sum += (double)plan->coef[m];
    for (size_t m = 0; m < n; m++)
        plan->coef[n + m] = (float)((double)plan->coef[m] / sum);
}

/* Of one part, for all members. */
static void linear_part(dl_combine_plan *plan, const dl_combine_view *view,
                        const dl_combine_measured *measured, float *coef)
{
    size_t n = plan->n_members;
    plan->combiner->coefficients(plan->scratch.c, view);
    if (view->rule->rescale && plan->combiner->ignores_weights && !plan->combiner->keeps)
        rescale(plan, view, measured->norm2);
    for (size_t m = 0; m < n; m++) {
        double sum = plan->mixed ? 0 : plan->scratch.c[m];
        for (size_t i = 0; plan->mixed && i < plan->n_inputs; i++)
            sum += plan->scratch.c[i] * (double)plan->scratch.mix[i * n + m];
        coef[m] = (float)sum;
    }
}

/* Inputs that take part; of mixed ones their sums' coefficients. A combiner without `choose` takes
 * all. */
static void by_element(dl_combine_plan *plan, const dl_combine_view *view)
{
    size_t n = plan->n_members, n_chosen = plan->n_inputs;
    for (size_t i = 0; i < n_chosen; i++)
        plan->scratch.chosen[i] = i;
    if (plan->combiner->choose) n_chosen = plan->combiner->choose(plan->scratch.chosen, view);
    plan->n_inputs = n_chosen;
    for (size_t i = 0; plan->mixed && i < n_chosen; i++)
        memcpy(plan->coef + i * n, plan->scratch.mix + plan->scratch.chosen[i] * n,
               n * sizeof *plan->coef);
    for (size_t i = 0; !plan->mixed && i < n_chosen; i++)
        plan->used[i] = plan->scratch.chosen[i];
    plan->n_used = plan->mixed ? n : n_chosen;
}

/* Close the gaps of members that no row of coefficients uses; one is read where none is used,
 * so the result is 0. */
static void drop_unused(dl_combine_plan *plan, size_t n_rows)
{
    size_t n = plan->n_members, n_used = 0;
    for (size_t m = 0; m < n; m++) {
        bool used = !plan->measure; /* the record's facts need all, where nothing was measured */
        for (size_t row = 0; row < n_rows; row++)
            used = used || plan->coef[row * n + m] != 0;
        if (used) plan->used[n_used++] = m;
    }
    if (n_used == 0) plan->used[n_used++] = 0;
    for (size_t row = 0; row < n_rows; row++)
        for (size_t u = 0; u < n_used; u++)
            plan->coef[row * n_used + u] = plan->coef[row * n + plan->used[u]];
    plan->n_used = n_used;
}

/* By element there is one part only, since such combiners never measure by tensor. */
void dl_combine_plan_finish(dl_combine_plan *plan, const dl_combine_measured *measured)
{
    const dl_combine_rule *rule = &plan->rule;
    size_t n = plan->n_members;
    plan->n_parts = measured->n_parts;
    plan->averaged_coef = plan->coef;
    if (plan->measure) fill_grams(plan);
    mix(plan, rule, measured);
    if (plan->combiner->elements) {
        dl_combine_view view = view_of(plan, rule, measured, 0);
        by_element(plan, &view);
        if (plan->mixed) drop_unused(plan, plan->n_inputs);
        return;
    }
    for (size_t part = 0; part < plan->n_parts; part++) {
        dl_combine_view view = view_of(plan, rule, measured, part);
        linear_part(plan, &view, measured, plan->coef + part * n);
    }
    if (plan->combiner->keeps) keep(plan);
    drop_unused(plan, plan->n_parts + plan->combiner->keeps);
    if (plan->combiner->keeps) plan->averaged_coef = plan->coef + plan->n_used;
}
