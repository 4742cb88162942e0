/* step_facts.c - the facts of an outer step for the record, from the sums that the walk took. */
#include "outer/outer_step_parts.h"

#include <math.h>

/* The unit vectors are scaled by the smallest norm, so that no weight exceeds 1 or overflows. */
double dl_walk_unit_weights(const dl_outer_walk *s)
{
    double smallest = 0;
    for (size_t m = 0; m < s->args->n_members; m++) {
        double norm = sqrt(s->args->members[m].norm2);
        if (norm > 0 && (smallest == 0 || norm < smallest)) smallest = norm;
    }
    for (size_t m = 0; m < s->args->n_members; m++) {
        double norm = sqrt(s->args->members[m].norm2);
        s->scratch->unit[m] = norm > 0 ? (float)(smallest / norm) : 0;
        s->scratch->ones[m] = 1;
    }
    return smallest;
}

/* Dot products, where the rule has measured them, replace the other sums. With equal coefficients
 * the plain sum is G divided by a coefficient, which spares the third. */
int dl_walk_count_sums(const dl_combine_plan *plan)
{
    if (plan->measure || plan->n_members == 1) return 1;
    bool even = !plan->combiner->elements;
    for (size_t m = 1; m < plan->n_members && even; m++)
        even = plan->coef[m] == plan->coef[0];
    return even ? 2 : 3;
}

double dl_walk_total(const dl_outer_walk *s, const double *sums)
{
    double sum = 0;
    for (size_t block = 0; block * DL_BLOCK < s->n_f32; block++)
        sum += sums[block];
    return sum;
}

static double pow2(double x)
{
    return x * x;
}

/* With u_m = g_m / ||g_m||: ||sum u||^2 = M + sum over pairs of their cosines. With the plain
 * mean a: mean ||g_m - a||^2 = mean ||g_m||^2 - ||a||^2. */
static void find_spread(const dl_outer_walk *s, double smallest, dl_outer_step_facts *facts)
{
    double M = (double)s->args->n_members, n_moved = 0, norm2 = 0;
    for (size_t m = 0; m < s->args->n_members; m++) {
        norm2 += s->args->members[m].norm2 / M;
        n_moved += s->args->members[m].norm2 > 0;
    }
    double plain = s->n_sums > SUM_PLAIN
                       ? dl_walk_total(s, s->scratch->sums[SUM_PLAIN])
                       : dl_walk_total(s, s->scratch->sums[SUM_G]) / pow2((double)s->plan->coef[0]);
    double units =
        smallest > 0 ? dl_walk_total(s, s->scratch->sums[SUM_UNIT]) / (smallest * smallest) : 0;
    double cosines = (units - n_moved) / (M * (M - 1));
    facts->similarity = fmax(-1, fmin(1, cosines));
    facts->divergence = sqrt(fmax(0, norm2 - plain / (M * M)));
}

/* Computes the same facts from the members' dot products, [n * n]. */
static void find_spread_of(const double *gram, size_t n, dl_outer_step_facts *facts)
{
    double cosines = 0, norm2 = 0, plain = 0, M = (double)n;
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
            double dot = gram[a * n + b], norms = sqrt(gram[a * n + a]) * sqrt(gram[b * n + b]);
            plain += dot;
            if (a == b) norm2 += dot;
            if (a != b && norms > 0) cosines += dot / norms;
        }
    facts->similarity = fmax(-1, fmin(1, cosines / (M * (M - 1))));
    facts->divergence = sqrt(fmax(0, norm2 / M - plain / (M * M)));
}

/* A member of norm 0 has no direction: the quotient is not finite, and the fact remains NaN. */
static void find_own_cosine(const dl_outer_walk *s, dl_outer_step_facts *facts)
{
    if (s->own == SIZE_MAX) return;
    const double own = sqrt(s->args->members[s->args->own - 1].norm2);
    const double dot = dl_walk_total(s, s->scratch->own_dots);
    const double cosine = dot / (own * facts->aggregated_norm);
    if (isfinite(cosine)) facts->own_cosine = fmax(-1, fmin(1, cosine));
}

void dl_walk_facts(const dl_outer_walk *s, double smallest, dl_outer_step_facts *facts)
{
    const double *gram = dl_combine_plan_gram(s->plan);
    *facts =
        (dl_outer_step_facts){.aggregated_norm = sqrt(dl_walk_total(s, s->scratch->sums[SUM_G])),
                              .similarity = (double)NAN,
                              .own_cosine = (double)NAN,
                              .combiner = s->plan->combiner->name,
                              .tolerated = s->plan->tolerated,
                              .fell_back = s->plan->fell_back};
    if (s->args->combined) {
        facts->divergence = (double)NAN;
        return;
    }
    find_own_cosine(s, facts);
    if (s->n_sums > 1)
        find_spread(s, smallest, facts);
    else if (gram && s->args->n_members > 1)
        find_spread_of(gram, s->args->n_members, facts);
}
