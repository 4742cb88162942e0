/* fits.h - results of 2503.09799, which trained hundreds of models to Chinchilla budgets (20 tokens
 * a parameter) with H = 30. They are loss, best inner learning rate and best batch, as power laws
 * of the parameters N, and its idealised wall clock. Advice, not promises: AdamW (.9, .99), weight
 * decay 1 / steps, cosine to 5 %, C4, sequences of 2048; 35 M to 2.4 B parameters, extrapolated to
 * 10 B.
 */
#ifndef DL_PLAN_FITS_H
#define DL_PLAN_FITS_H

#include "base/size.h"
#include "base/status.h"

/* Predictions for one size of model. */
typedef struct dl_fit {
    double loss;
    double inner_lr;
    double batch_tokens; /* of all replicas together */
} dl_fit;

/* replicas 0: data-parallel. 1, 2, 4 and 8 have a fit of their own; others take the one over N and
 * M together. */
dl_fit dl_fit_for(double parameters, uint32_t replicas);

/* The idealised wall clock of its appendix A: compute at 300 TFLOP/s a chip, a ring all-reduce of
 * bf16 at its lower bound, nothing overlapped. Inside a replica the network is always 400 Gbit/s
 * and 0.1 ms; between replicas it is the one given. */
typedef struct dl_ideal {
    double parameters, tokens, batch_tokens;
    double chips;
    uint32_t replicas, sync_every; /* replicas 0: data-parallel */
    double gbit, latency_s;
} dl_ideal;
typedef struct dl_ideal_time {
    double compute_s, inner_s, outer_s;
} dl_ideal_time;
dl_ideal_time dl_ideal_wall_clock(const dl_ideal *i);

#endif
