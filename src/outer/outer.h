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

enum { DL_OUTER_MAX_STATE = 3, DL_OUTER_MAX_SCALARS = 8 };

/* What the scalars are made from. */
typedef struct dl_outer_settings {
    double lr, mu;                          /* server.diloco.* */
    double beta1, beta2, eps, weight_decay; /* rows that are inner optimizers too (P22) */
    uint64_t n_commits;                     /* commits of this fragment before this entry */
} dl_outer_settings;

typedef struct dl_outer {
    const char *name;
    const char *summary;
    int n_state; /* f32 vectors as long as the trained region, zero at first */
    const char *state_names[DL_OUTER_MAX_STATE]; /* "momentum": names in a snapshot */
    int n_scalars;
    const char *scalar_names[DL_OUTER_MAX_SCALARS]; /* "lr", "mu": names in an entry */

    void (*scalars)(float *out, const dl_outer_settings *settings);

    /* One block of at most DL_BLOCK elements; out may be in. decay: 1 where weight decay
     * applies, all of the block alike (blocks do not cross tensors when needs_tensors). */
    void (*block)(float *theta_out, float *const *state_out, const float *theta,
                  const float *const *state, const float *G, const float *scalars, bool decay,
                  size_t n);
    bool needs_tensors; /* the row treats matrices and vectors differently */
} dl_outer;

const dl_outer *dl_outer_find(const char *name);
const dl_outer *dl_outer_at(size_t i);

#endif
