/* claims.c - see claims.h. */
#include "log/claims.h"

#include <math.h>
#include <string.h>

const char *dl_claims_refuse(const dl_contribution *c, const dl_train_bounds *b)
{
    const uint64_t position = c->stats.position, steps = c->stats.steps;
    if (b->due == 0) return NULL;
    if (position > b->due) return "it claims a position that no replica has reached";
    if (c->stats.samples == 0) return NULL;
    if (position < b->since) return "it claims a position before that of its base";
    if (steps > b->steps || steps > position - b->since)
        return "it claims more steps than a replica can take since its base";
    if (c->assigned.n == 0 && c->stats.samples > c->stats.end_sample - c->stats.first_sample)
        return "it claims more samples than its range of samples has";
    return NULL;
}

typedef double (*claim_fn)(const void *of, size_t i); /* the i-th of the claims; never negative */

/* Doubles that are not negative are in the order of their bits. */
static double of_bits(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* The lower median: the least claim that at least half of them do not exceed, INFINITY of none. It
 * halves the range of possible claims 64 times, so it takes no memory, and n steps a time. Every
 * replica gets the same bits, since it only compares. Halving the range of bit patterns needs at
 * most 64 passes. */
static double median(const void *of, claim_fn claim, size_t n)
{
    const double most = INFINITY;
    uint64_t low = 0, high;
    memcpy(&high, &most, sizeof high);
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        size_t n_below = 0;
        for (size_t i = 0; i < n; i++)
            n_below += claim(of, i) <= of_bits(middle);
        if (n > 0 && 2 * n_below >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return of_bits(low);
}

static double samples_of(const void *of, size_t i)
{
    return (double)((const dl_member_facts *)of)[i].samples;
}

static double tokens_of(const void *of, size_t i)
{
    return (double)((const dl_member_facts *)of)[i].tokens;
}

static uint64_t at_most(uint64_t claim, double most)
{
    return (double)claim > most ? (uint64_t)most : claim;
}

/* The factor and the reason for the lower median are in P9.17: a minority of members cannot raise
 * the bound. */
void dl_claims_cut(dl_member_facts *facts, size_t n)
{
    const double samples = DL_CLAIMS_CUT * median(facts, samples_of, n);
    const double tokens = DL_CLAIMS_CUT * median(facts, tokens_of, n);
    for (size_t i = 0; i < n; i++) {
        facts[i].samples = at_most(facts[i].samples, samples);
        facts[i].tokens = at_most(facts[i].tokens, tokens);
    }
}

/* A weight of 0 counts as infinite, so members without weight do not lower the median to 0. */
static double size_of_weight(uint64_t raw)
{
    return raw ? (double)raw : INFINITY;
}

static double raw_of(const void *of, size_t i)
{
    return size_of_weight(((const uint64_t *)of)[i]);
}

void dl_claims_cut_weights(uint64_t *raw, size_t n)
{
    const double most = DL_CLAIMS_CUT * median(raw, raw_of, n);
    for (size_t i = 0; i < n; i++)
        raw[i] = at_most(raw[i], most);
}

/* A loss that is NaN was not reported. It counts as infinite, so it does not lower the median. */
static double size_of_loss(const void *of, size_t i)
{
    const double loss = fabs(((const dl_entry *)of)->members[i].stats.loss);
    return isnan(loss) ? INFINITY : loss;
}

/* Losses near 0 differ by any factor. */
static bool is_far(const dl_entry *e, size_t i, double median_loss)
{
    return size_of_loss(e, i) > DL_CLAIMS_FAR * fmax(median_loss, 1) &&
           !isnan(e->members[i].stats.loss);
}

/* The sum has the order of the members, which every replica knows, so the mean has the same bits.
 * NaN if no member reported a usable loss. */
double dl_claims_mean_loss(const dl_entry *e)
{
    const double middle = median(e, size_of_loss, e->n_members);
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < e->n_members; i++) {
        if (is_far(e, i, middle)) continue;
        sum += e->members[i].stats.loss;
        n++;
    }
    return n ? sum / (double)n : NAN;
}

static double entry_samples(const void *of, size_t i)
{
    return (double)((const dl_entry *)of)->members[i].stats.samples;
}

static double entry_tokens(const void *of, size_t i)
{
    return (double)((const dl_entry *)of)->members[i].stats.tokens;
}

/* The claimed weights of an entry's members. */
typedef struct claimed {
    const dl_entry *entry;
    const dl_weighting *rule;
} claimed;

static double claimed_weight(const void *of, size_t i)
{
    const claimed *c = of;
    const dl_train_stats *s = &c->entry->members[i].stats;
    return size_of_weight(c->rule->raw(
        &(dl_member_facts){.samples = s->samples, .steps = s->steps, .tokens = s->tokens}));
}

dl_claims_medians dl_claims_medians_of(const dl_entry *e, const dl_weighting *rule)
{
    return (dl_claims_medians){.rule = rule,
                               .samples = median(e, entry_samples, e->n_members),
                               .tokens = median(e, entry_tokens, e->n_members),
                               .weight = median(&(claimed){e, rule}, claimed_weight, e->n_members),
                               .loss = median(e, size_of_loss, e->n_members)};
}

const char *dl_claims_what_is_cut(const dl_entry *e, size_t i, const dl_claims_medians *m)
{
    if (entry_samples(e, i) > DL_CLAIMS_CUT * m->samples) return "samples";
    if (entry_tokens(e, i) > DL_CLAIMS_CUT * m->tokens) return "tokens";
    const double weight = claimed_weight(&(claimed){e, m->rule}, i);
    if (isfinite(weight) && weight > DL_CLAIMS_CUT * m->weight) return "weight";
    return is_far(e, i, m->loss) ? "loss" : NULL;
}
