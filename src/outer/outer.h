/* outer.h - outer optimizers: one file and one row of outer.c each.
 *
 *     theta' , state' = row(theta, state, G, scalars)
 *
 * elementwise over the trained region. The scalars of an entry (lr, mu, bias corrections) are
 * computed once by whoever creates the entry, in float64, rounded once, written there, and
 * read from there by everybody else (PROTOCOL P2). */
#ifndef DL_OUTER_OUTER_H
#define DL_OUTER_OUTER_H

#include "tensor/kernels.h"

enum { DL_OUTER_MAX_STATE = 3, DL_OUTER_MAX_SCALARS = 8, DL_OUTER_MAX_SUMS = 3 };

/* What the scalars are made from. */
typedef struct dl_outer_settings {
    double lr, mu;                          /* server.diloco.* */
    double beta1, beta2, eps, weight_decay; /* rows that are inner optimizers too (P22) */
    uint64_t n_commits;                     /* commits of this fragment before this entry */
} dl_outer_settings;

/* One block of at most DL_BLOCK elements: combined, stepped and measured in one loop, because
 * passes over a block in cache cost as much as its way from memory. */
typedef struct dl_outer_block {
    float *theta_out, *state_out[DL_OUTER_MAX_STATE]; /* may be the inputs */
    const float *theta, *state[DL_OUTER_MAX_STATE];
    const float *const *g; /* G is the weighted mean of these; with 0 members g[0] is G */
    const float *weights[DL_OUTER_MAX_SUMS]; /* [0]: of G; the others' sums are only measured */
    int n_sums;
    size_t n_members, n;
    const float *scalars;
    bool decay;         /* weight decay applies, to all elements alike */
    dl_leaf_hash *hash; /* NULL, or streams that theta_out and each of state_out are added to */

    double norm2[DL_OUTER_MAX_SUMS]; /* result: of each sum (PROTOCOL B3) */
    bool bad;                        /* result: in theta_out or state_out, not finite */
} dl_outer_block;

typedef struct dl_outer {
    const char *name;
    const char *summary;
    int n_state; /* f32 vectors as long as the trained region, zero at first */
    const char *state_names[DL_OUTER_MAX_STATE]; /* "momentum": names in a snapshot */
    int n_scalars;
    const char *scalar_names[DL_OUTER_MAX_SCALARS]; /* "lr", "mu": names in an entry */

    void (*scalars)(float *out, const dl_outer_settings *settings);

    void (*block)(dl_outer_block *block);
    bool needs_tensors; /* the row treats matrices and vectors differently */
} dl_outer;

const dl_outer *dl_outer_find(const char *name);
const dl_outer *dl_outer_at(size_t i);

#endif
