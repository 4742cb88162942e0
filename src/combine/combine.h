/* combine.h - how the decoded contributions of an entry become one update G, and how much
 * each counts. One file and one row of combine.c a combiner; weights.c has the rules of
 * weighting. */
#ifndef DL_COMBINE_COMBINE_H
#define DL_COMBINE_COMBINE_H

#include "tensor/kernels.h"

enum { DL_MAX_MEMBERS = 4096 };

/* One member of an entry as the entry tells of it. */
typedef struct dl_member_facts {
    uint64_t samples; /* trained on since its base */
    uint64_t steps;
    uint64_t tokens;
    double norm2; /* of its decoded pseudo-gradient */
} dl_member_facts;

typedef struct dl_weighting {
    const char *name;
    const char *summary;
    /* The raw weight, an integer so that integer buffers average exactly. */
    uint64_t (*raw)(const dl_member_facts *member);
} dl_weighting;
const dl_weighting *dl_weighting_find(const char *name);
const dl_weighting *dl_weighting_at(size_t i);

/* Weights of all members: raw[m], and weight[m] = (float)(raw[m] / sum raw) with the division
 * in float64, rounded once (PROTOCOL P2). Members with no samples are not eligible:
 * DILOCO_EINVAL when one is given or the sum is 0. */
DL_MUST_CHECK diloco_status dl_weights(uint64_t *raw, float *weight, const dl_weighting *rule,
                                       const dl_member_facts *members, size_t n);

typedef struct dl_combiner {
    const char *name;
    const char *summary;
    size_t min_members;
    bool ignores_weights;
    bool linear; /* G is the weighted sum of the members: outer rows take it on their way */

    /* G[n] from the members' decoded blocks g[m][n], n at most DL_BLOCK; m ascending. An
     * element x counts as x + 0.0f: a block may be a codec's view (codec.h). */
    void (*block)(float *G, const float *const *g, const float *weight, size_t n_members, size_t n);
} dl_combiner;
const dl_combiner *dl_combiner_find(const char *name);
const dl_combiner *dl_combiner_at(size_t i);

#endif
