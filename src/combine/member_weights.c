/* member_weights.c - how much each member of an entry counts. */
#include "combine/combine.h"

#include <string.h>

/* The rules below give integers. A sum of integers does not depend on the order of members. */
static uint64_t uniform(const dl_member_facts *member)
{
    (void)member;
    return 1;
}

static uint64_t num_samples(const dl_member_facts *member)
{
    return member->samples;
}
static uint64_t steps(const dl_member_facts *member)
{
    return member->steps;
}

/* tokens x tokens per step (Decoupled DiLoCo, 2604.21428): how much, times how large the batches
 * were. Rounded half up, so that the weight stays an integer; beyond 2^64 the largest. */
static uint64_t tokens2_per_step(const dl_member_facts *member)
{
    if (member->steps == 0) return 0;
    unsigned __int128 tokens = member->tokens, steps = member->steps;
    unsigned __int128 raw = (tokens * tokens + steps / 2) / steps;
    return raw > UINT64_MAX ? UINT64_MAX : (uint64_t)raw;
}

static const dl_weighting rows[] = {
    {"uniform", "every member the same", uniform},
    {"num_samples", "by the samples trained on since the base; of a logical client, those it holds",
     num_samples},
    {"steps", "by the inner steps a member took since its base", steps},
    {"tokens2_per_step", "by tokens times tokens per step: more, and from larger batches",
     tokens2_per_step},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const dl_weighting *dl_weighting_at(size_t i)
{
    return i < N_ROWS ? &rows[i] : NULL;
}

const dl_weighting *dl_weighting_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* All weights are halved until they sum to less than 2^63, since the integer mean multiplies
 * by them in 128 bits. So a member's claim about itself cannot prevent an entry. */
static uint64_t fit(uint64_t *raw, size_t n)
{
    for (;;) {
        unsigned __int128 sum = 0;
        for (size_t m = 0; m < n; m++)
            sum += raw[m];
        if (sum <= INT64_MAX) return (uint64_t)sum;
        for (size_t m = 0; m < n; m++)
            raw[m] /= 2;
    }
}

diloco_status dl_weights_raw(uint64_t *raw, const dl_weighting *rule,
                             const dl_member_facts *members, size_t n)
{
    for (size_t m = 0; m < n; m++) {
        if (members[m].samples == 0)
            return dl_fail(DILOCO_EINVAL, "member %zu trained on no samples: it cannot count", m);
        raw[m] = rule->raw(&members[m]);
    }
    return DILOCO_OK;
}

/* A weight is rounded to float32 once, after the division in float64. The sum can be 0 though each
 * member has samples, since steps may be 0. */
diloco_status dl_weights_share(float *weight, uint64_t *raw, const dl_weighting *rule, size_t n)
{
    const uint64_t sum = fit(raw, n);
    if (sum == 0)
        return dl_fail(DILOCO_EINVAL, "the %s weights of %zu members sum to 0", rule->name, n);
    for (size_t m = 0; m < n; m++)
        weight[m] = (float)((double)raw[m] / (double)sum);
    return DILOCO_OK;
}

diloco_status dl_weights(uint64_t *raw, float *weight, const dl_weighting *rule,
                         const dl_member_facts *members, size_t n)
{
    DL_TRY(dl_weights_raw(raw, rule, members, n));
    return dl_weights_share(weight, raw, rule, n);
}
