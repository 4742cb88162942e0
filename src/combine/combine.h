/* combine.h - how the decoded contributions of an entry become one update G, and how much
 * each counts. One file and one row of combine.c a combiner; member_weights.c has the rules of
 * weighting. docs/algorithms.md has the formulas.
 *
 * Two kinds of combiner:
 *
 *     linear       G = sum over members of coefficient[m] g_m, the coefficients found from the
 *                  weights and from what was measured of the members (their dot products): mean,
 *                  clipped_mean, rda, krum, multi_krum, geometric_median, and centered_clip, which
 *                  also gives a share to the update of the commit before
 *     by element   G[i] is found from the sorted g_1[i] … g_M[i]: median, trimmed_mean, bulyan
 *
 * Before a combiner that ignores weights, pre-aggregation may replace the members by as many or
 * fewer means of them; the vectors that a combiner combines are its inputs. combine_plan.h finds
 * coefficients and inputs for an entry; outer/ walks the members. */
#ifndef DL_COMBINE_COMBINE_H
#define DL_COMBINE_COMBINE_H

#include "base/config.h"
#include "tensor/kernels.h"

enum { DL_MAX_MEMBERS = 4096, DL_COMBINE_MAX_OPTIONS = 3 };

/* ---- how much each counts */

/* One member of an entry as the entry describes it. */
typedef struct dl_member_facts {
    uint64_t samples; /* trained on since its base; of a logical client: that it holds */
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

/* The raw weights of all members. Returns DILOCO_EINVAL if a member has no samples, since it is not
 * eligible. */
DL_MUST_CHECK diloco_status dl_weights_raw(uint64_t *raw, const dl_weighting *rule,
                                           const dl_member_facts *members, size_t n);
/* weight[m] = (float)(raw[m] / sum raw) with the division in float64, rounded once (PROTOCOL P2).
 * Raw weights that would sum to 2^63 or more are halved until they do not. Returns DILOCO_EINVAL if
 * the sum is 0. */
DL_MUST_CHECK diloco_status dl_weights_share(float *weight, uint64_t *raw, const dl_weighting *rule,
                                             size_t n);
/* Both. */
DL_MUST_CHECK diloco_status dl_weights(uint64_t *raw, float *weight, const dl_weighting *rule,
                                       const dl_member_facts *members, size_t n);

/* ---- how they become one */

typedef struct dl_combiner dl_combiner;

/* A combiner with the options of a run. Made once, then only read. */
typedef struct dl_combine_rule {
    const dl_combiner *combiner;
    dl_mixing mixing;
    uint64_t trim;      /* billionths of the members, so that counts are found in integers */
    size_t byzantine;   /* f: members that may be hostile */
    size_t bucket_size; /* of bucketing */
    double clip_radius; /* of centered_clip: median distances */
    bool rescale;       /* robust rules: G gets the median of the members' norms */
    bool checked;       /* dot products are also wanted before (dl_outer_gram) */
    bool fall_back;     /* with fewer members than are needed: to the weighted mean, or refuse */
    size_t most_slices; /* that sums are taken over at most (cut.h); 0: one */
} dl_combine_rule;

/* The plain weighted mean. */
dl_combine_rule dl_combine_mean(void);

/* DILOCO_EINVAL: there is no such combiner. */
DL_MUST_CHECK diloco_status dl_combine_rule_of(dl_combine_rule *out, const dl_config *config);

/* Everything that can be said against a configuration before training: unknown names, options
 * that do not go together, fewer members than are needed. DILOCO_EINVAL, DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_combine_check(const dl_config *config);

size_t dl_combine_inputs(const dl_combine_rule *rule, size_t n_members); /* after mixing */
size_t dl_combine_needed(const dl_combine_rule *rule);                   /* fewest members */
/* How many hostile ones among n_members it bears; 0 with fewer than are needed. */
size_t dl_combine_tolerated(const dl_combine_rule *rule, size_t n_members);

/* The rule for n_members that are left after n_rejected were rejected for their own fault. A
 * rejected member was one of the f hostile ones. So where the members are too few for f, each
 * lowers f by one until they are enough (trimmed_mean: nothing is trimmed then). Where they are
 * enough, or stay too few, the rule is the same. */
dl_combine_rule dl_combine_after(const dl_combine_rule *rule, size_t n_members, size_t n_rejected);

/* The measurements of the members before the walk that combines them. */
typedef enum dl_measure {
    DL_MEASURE_NOTHING, /* but each one's norm over the fragment, which its check has found */
    DL_MEASURE_WHOLE,   /* dot products of all pairs over the fragment */
    DL_MEASURE_TENSORS  /* over each tensor */
} dl_measure;

/* The inputs of an entry as a row sees them; of one tensor, where it measures tensors. */
typedef struct dl_combine_view {
    const dl_combine_rule *rule;
    size_t n;
    const float *weight;    /* [n]; of rows that do not ignore them */
    const double *norm2;    /* [n] */
    const double *gram;     /* [n * n], of rows that measure */
    const double *previous; /* [n + 1], of rows that keep: dot products of the previous update with
                             * each input, then with itself */
    bool plain;    /* a tensor that takes the weighted mean: embeddings, and what is averaged */
    double *room;  /* [6 n], and */
    size_t *order; /* [n]: the row's to write in */
} dl_combine_view;

struct dl_combiner {
    const char *name;
    const char *summary;
    const char *options[DL_COMBINE_MAX_OPTIONS + 1]; /* that the row reads, up to NULL */
    bool ignores_weights;
    bool by_itself; /* an element depends only on the members' values
                     * of it and the weights, not on measurements */
    dl_measure measure;
    bool keeps; /* linear, measuring the whole: the update of the commit before is an input, too;
                 * the state keeps it (outer.h) */

    /* Fewest inputs, and how many of n inputs may be hostile (n is enough). */
    size_t (*needed)(const dl_combine_rule *rule);
    size_t (*tolerated)(const dl_combine_rule *rule, size_t n);

    /* Linear: the coefficient of each input; of rows that keep, c[n] of the previous update. */
    void (*coefficients)(double *c, const dl_combine_view *view);

    /* By element (elements is NULL for the others). choose is optional: which inputs take part,
     * ascending; their number. elements: G[n] from x[n_inputs][n], n at most DL_BLOCK, for every
     * order of the inputs the same bits; room is [dl_sort_room(n_inputs)] floats. x counts as
     * x + 0.0f: it may be a codec's view (codec.h). */
    size_t (*choose)(size_t *chosen, const dl_combine_view *view);
    void (*elements)(float *G, const float *const *x, size_t n_inputs, const dl_combine_rule *rule,
                     float *room, size_t n);

    const void *context; /* the row's own */
};
enum { DL_SORT_LANES = 64 };
static inline size_t dl_sort_room(size_t n_inputs)
{
    return (n_inputs + 1) * DL_SORT_LANES;
}
const dl_combiner *dl_combiner_find(const char *name);
const dl_combiner *dl_combiner_of(const dl_config *config); /* of a run, the caller's own too */
const dl_combiner *dl_combiner_at(size_t i);

#endif
