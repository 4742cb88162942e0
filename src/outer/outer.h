/* outer.h - outer optimizers: one file and one row of outer.c each.
 *
 *     theta' , state' = row(theta, state, G, scalars)
 *
 * elementwise over the trained region. The committer of an entry computes its scalars (lr, mu, bias
 * corrections) in float64, rounds them once, and writes them to the entry. Every other replica
 * reads them there (PROTOCOL P2). */
#ifndef DL_OUTER_OUTER_H
#define DL_OUTER_OUTER_H

#include "base/thread.h"
#include "combine/combine.h"
#include "tensor/manifest.h"

enum {
    DL_OUTER_MAX_STATE = 3,    /* two moments, and the kept update of a combiner */
    DL_OUTER_MAX_SCALARS = 12, /* of an entry; muon has the most, 11 */
    DL_OUTER_MAX_SUMS = 3,     /* dl_outer_sum in outer_step_parts.h */
    DL_OUTER_MAX_OPTIONS = 4   /* that a row reads besides the learning rate */
};

/* The inputs of the scalars. */
typedef struct dl_outer_settings {
    double lr, mu;                           /* of the entry: server.diloco.* or a schedule */
    double beta1, beta2, eps, weight_decay;  /* parameters.optimizer.*, for adamw, muon (P22) */
    double inner_lr, muon_lr, muon_momentum; /* likewise; inner_lr is parameters.optimizer.lr */
    bool muon_nesterov;
    int64_t muon_steps;
    double outer_beta1, outer_beta2, outer_eps, outer_c, outer_beta; /* server.diloco.* */
    uint64_t outer_buffer;
    uint64_t n_commits; /* commits of this fragment before this entry */
} dl_outer_settings;

/* Returns the settings that a run's options give. n_commits is 0; lr and mu are those of the
 * options, and a caller with a schedule replaces them. */
dl_outer_settings dl_outer_settings_of(const dl_config *config);

/* Returns the outer learning rate by server.diloco.outer_lr_schedule. Despite its name, `entry` is
 * the round (from 0) that the entry belongs to: a round has an entry for each fragment. */
double dl_outer_lr(const dl_config *config, uint64_t entry);

/* One block of at most DL_BLOCK elements: combined, stepped and measured in one loop, because
 * passes over a block in cache cost as much as its way from memory. */
typedef struct dl_outer_block {
    float *theta_out, *state_out[DL_OUTER_MAX_STATE]; /* may be the inputs */
    const float *theta, *state[DL_OUTER_MAX_STATE];
    const float *const *g; /* G is the weighted mean of these; with 0 members g[0] is G */
    const float *weights[DL_OUTER_MAX_SUMS]; /* [0]: of G; the others' sums are only measured */
    int n_sums;
    const float *own; /* NULL, or the member whose dot product with G is measured */
    size_t n_members, n;
    const float *scalars;
    bool decay;         /* weight decay applies, to all elements alike */
    dl_leaf_hash *hash; /* NULL, or streams that theta_out and each of state_out are added to */
    float *adopt;       /* NULL, or where theta_out goes as well, up to what is not finite */

    double norm2[DL_OUTER_MAX_SUMS]; /* result: of each sum (PROTOCOL B3) */
    double own_dot;                  /* result: of `own` with G; 0 without `own` */
    bool bad;                        /* result: a value of theta_out or state_out is not finite */
} dl_outer_block;

/* The arguments of a row that steps whole fragments. The vectors hold the state before the step;
 * after an error their contents are undefined. */
typedef struct dl_outer_whole {
    float *theta, *state[DL_OUTER_MAX_STATE]; /* in place */
    const float *g;
    size_t n;
    const float *scalars;
    uint32_t fragment;
    uint64_t n_commits;
    const dl_manifest *manifest;
    dl_pool *pool;
    void *room; /* row->room bytes, anything in it; NULL without row->room */
} dl_outer_whole;

typedef struct dl_outer {
    const char *name;
    const char *summary;
    int n_state; /* f32 vectors as long as the trained region, zero at first */
    bool keeps;  /* the last of them is the update G of the commit before, for a combiner that
                  * reads it (combine.h); the row itself knows nothing of it */
    const char *state_names[DL_OUTER_MAX_STATE]; /* "momentum": names in a snapshot */
    int n_scalars;
    const char *scalar_names[DL_OUTER_MAX_SCALARS]; /* "lr", "mu": names in an entry */

    /* Writes n_scalars numbers. In a run with a log only the committer of an entry calls it. */
    void (*scalars)(float *out, const dl_outer_settings *settings);

    /* Steps one block and sets its results. Runs on any thread, with the floating-point state of
     * dl_fp_enter, and must depend on the block alone. */
    void (*block)(dl_outer_block *block);
    /* Optional: the row steps a fragment's trained region as a whole, in place, from the thread
     * that owns the pool. block then finds theta_out and state_out done, and only looks at them
     * (dl_outer_look). An error is the step's. */
    diloco_status (*whole)(const struct dl_outer *row, const struct dl_outer_whole *step);
    /* Optional, with whole. Returns the bytes that whole needs in step->room, for any fragment. */
    size_t (*room)(const dl_manifest *manifest, int n_threads);
    const void *context; /* the row's own */
    bool needs_tensors;  /* the row treats matrices and vectors differently */
    bool gradients; /* G is to be a mean gradient, not a movement: preset data_parallel alone */
    bool counts; /* scalars follow from n_commits: the row cannot continue from its vectors alone */
    bool linear; /* G moves theta by lr times what it adds to G or its momentum: a member's share of
                  * it is known before the others' (PROTOCOL P21) */

    /* The vector that is evaluated, sampled from and exported. 0: theta; k: state vector k - 1 in
     * place of theta's trained region, once there was a commit. Replicas always train from
     * theta. */
    int evaluated;

    /* Options besides the learning rate that the row reads; others of other rows have no effect
     * with it, and the program says so. */
    const char *options[DL_OUTER_MAX_OPTIONS + 1]; /* up to NULL */
    double most_lr; /* the largest learning rate its papers advise: above it the program warns */
    /* Optional. Returns DILOCO_EINVAL if the values contradict each other; the message says which
     * value to change. */
    diloco_status (*check)(const dl_outer_settings *settings);
} dl_outer;
#define DL_OUTER_OPTION(name) "server.diloco.outer_" name

/* Return a row by its name, or by its place in outer_rows.h; NULL if no such row exists. */
const dl_outer *dl_outer_find(const char *name);
const dl_outer *dl_outer_at(size_t i);
/* The row with one vector more, where the combiner keeps the last update. NULL: no such row
 * exists. */
const dl_outer *dl_outer_beside(const char *name, const dl_combiner *combiner);
dl_outer dl_outer_keeping(const dl_outer *row);       /* a copy that keeps */
const dl_outer *dl_outer_of(const dl_config *config); /* of a run, the caller's own too */

/* Returns DILOCO_EINVAL if no such optimizer exists, or if its options contradict each other. */
DL_MUST_CHECK diloco_status dl_outer_check(const dl_config *config);

#endif
