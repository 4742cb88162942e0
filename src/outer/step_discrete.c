/* step_discrete.c - the part of an outer step that is not f32: integers and booleans, a step
 * counter for example. There are few of them, so the caller's thread does all of it. All arithmetic
 * is on integers, so the bits agree on every machine. */
#include "outer/outer_step_parts.h"

#include <string.h>

static int64_t integer_at(const dl_outer_step_args *args, size_t m, size_t i)
{
    int64_t x;
    memcpy(&x, args->members[m].integers + i * sizeof x, sizeof x);
    return x;
}

/* Returns sum / total, rounded to the nearest integer, halves up. `rest >= total - rest` is
 * 2 rest >= total without overflow. */
static int64_t rounded(__int128 sum, uint64_t total)
{
    DL_ASSERT(total > 0); /* ensured by dl_weights, and by every reader of an entry */
    __int128 mean = sum / total, rest = sum % total;
    if (rest < 0) mean--, rest += total; /* now the mean is rounded down */
    return (int64_t)(rest >= total - rest ? mean + 1 : mean);
}

static int64_t mean_integer(const dl_outer_step_args *args, size_t i, uint64_t total)
{
    __int128 sum = 0; /* at most 2^63 (the raw weights' sum) * 2^63 in size */
    for (size_t m = 0; m < args->n_members; m++)
        sum += (__int128)integer_at(args, m, i) * args->raw[m];
    return rounded(sum, total);
}

/* Returns the value at a place in ascending order, counted from 0. It needs no memory and
 * n_members^2 comparisons, of which there are few. */
static int64_t integer_in_order(const dl_outer_step_args *args, size_t i, size_t place)
{
    for (size_t m = 0; m < args->n_members; m++) {
        int64_t x = integer_at(args, m, i);
        size_t below = 0, upto = 0;
        for (size_t k = 0; k < args->n_members; k++) {
            below += integer_at(args, k, i) < x;
            upto += integer_at(args, k, i) <= x;
        }
        if (below <= place && place < upto) return x;
    }
    DL_ASSERT(!"a place beyond the members");
}

/* With an even number of members the median is the mean of the two in the middle, rounded half up;
 * with an odd number both are the same. */
static int64_t median_integer(const dl_outer_step_args *args, size_t i)
{
    size_t n = args->n_members;
    __int128 low = integer_in_order(args, i, (n - 1) / 2);
    return rounded(low + integer_in_order(args, i, n / 2), 2);
}

/* A tie is 1. raw weights are untrusted, but dl_weights has bounded their sum. */
static uint8_t majority(const dl_outer_step_args *args, size_t i, bool weighted)
{
    uint64_t yes = 0, total = 0;
    for (size_t m = 0; m < args->n_members; m++) {
        uint64_t votes = weighted ? args->raw[m] : 1;
        total += votes;
        if (args->members[m].booleans[i]) yes += votes;
    }
    return yes >= total - yes;
}

/* A combiner that ignores weights is for runs with malicious members: then of integers the median
 * counts, and of booleans the majority of members. */
void dl_walk_combine_discrete(const dl_outer_walk *s, unsigned char *integers,
                              unsigned char *booleans)
{
    const dl_outer_step_args *args = s->args;
    bool weighted = !s->plan->combiner->ignores_weights;
    uint64_t total = 0;
    for (size_t m = 0; m < args->n_members; m++)
        total += args->raw[m];
    for (size_t i = 0; i < s->shape.n_integers; i++) {
        int64_t x = weighted ? mean_integer(args, i, total) : median_integer(args, i);
        memcpy(integers + i * sizeof x, &x, sizeof x);
    }
    for (size_t i = 0; i < s->shape.n_booleans; i++)
        booleans[i] = majority(args, i, weighted);
}

void dl_walk_discrete(const dl_outer_walk *s)
{
    const dl_outer_step_args *args = s->args;
    if (!args->combined) {
        dl_walk_combine_discrete(s, (unsigned char *)s->out->integers, s->out->booleans);
    } else {
        if (s->shape.n_integers)
            memcpy(s->out->integers, args->combined->integers,
                   s->shape.n_integers * sizeof *s->out->integers);
        if (s->shape.n_booleans)
            memcpy(s->out->booleans, args->combined->booleans, s->shape.n_booleans);
    }

    for (size_t k = s->n_local_f32; k < args->n_local && args->local_mix != 1; k++) {
        const dl_local_tensor *t = &args->local[k];
        if (t->region == DL_INTEGERS)
            memcpy(t->data, s->out->integers + t->begin, t->count * sizeof(int64_t));
        else
            memcpy(t->data, s->out->booleans + t->begin, t->count);
    }
}
