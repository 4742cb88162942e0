/* claims.c - see claims.h. A few dozen members: a median is a walk for each of them. */
#include "log/claims.h"

#include <math.h>

const char *dl_claims_refuse(const dl_contribution *c, uint64_t due)
{
    if (c->stats.position > due) return "it claims a position that no replica has come to";
    if (c->stats.steps > due) return "it claims more steps than there have been";
    return NULL;
}

typedef double (*claim_fn)(const void *of, size_t i);

/* The lower median: the least claim that at least half of them do not exceed. */
static double median(const void *of, claim_fn claim, size_t n)
{
    double least = INFINITY;
    for (size_t i = 0; i < n; i++) {
        size_t n_below = 0;
        for (size_t k = 0; k < n; k++)
            n_below += claim(of, k) <= claim(of, i);
        if (2 * n_below >= n && claim(of, i) < least) least = claim(of, i);
    }
    return least;
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

void dl_claims_cut(dl_member_facts *facts, size_t n)
{
    const double samples = DL_CLAIMS_CUT * median(facts, samples_of, n);
    const double tokens = DL_CLAIMS_CUT * median(facts, tokens_of, n);
    for (size_t i = 0; i < n; i++) {
        facts[i].samples = at_most(facts[i].samples, samples);
        facts[i].tokens = at_most(facts[i].tokens, tokens);
    }
}

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

const char *dl_claims_what_is_cut(const dl_entry *e, size_t i)
{
    const size_t n = e->n_members;
    if (entry_samples(e, i) > DL_CLAIMS_CUT * median(e, entry_samples, n)) return "samples";
    if (entry_tokens(e, i) > DL_CLAIMS_CUT * median(e, entry_tokens, n)) return "tokens";
    return is_far(e, i, median(e, size_of_loss, n)) ? "loss" : NULL;
}
