/* published.h - the compute-utilisation models that others have published, by their own rules.
 *
 * Compute utilisation is compute time over total time of a run in which only the link between
 * two sites matters: no latency, no protocol, no stores. The forecast of this program itself
 * is forecast.h; this is here to be compared with the papers' tables.
 *
 * DL_RULES_PAPER: the simulator of table 4 of 2501.18512 and the bandwidth table of
 * 2503.09799, rebuilt from their numbers (docs/planner.md):
 *
 *   compute    serial, 3L - 1 equal slices a step: forward of layers 0..L-1; then, from the top
 *              layer down, backward by activation and by parameter; layer 0 has no activation's
 *   link       one queue in order of arrival; a layer's reduction is queued when its backward by
 *              parameter ends and takes parameters * bits / layers / rate
 *   wait       the forward of layer l in step t + 1 + tau waits for its reduction of step t
 *   schedule   steps count from 1. data_parallel: every layer, every step; diloco: every layer
 *              when t mod H = 0; streaming: layer l when t mod H = floor(p * H / P), with
 *              P = layers / fragment_layers and p = l mod P (strided)
 *   end        when compute and link are both done; the run has max(3H, 100) steps
 *
 * DL_RULES_CALCULATOR: the rules of mino98/diloco-calculator. A step is a third forward, two
 * thirds backward. The traffic of a step is cut into 128 buckets, bucket k of which is released at
 * T_fwd + (k + 1) / 128 * T_bwd. All of them are due at the end of step t + tau; each takes 2 (1 -
 * 1/M) times its size; the run has max(2000, 3H) steps. */
#ifndef DL_PLAN_PUBLISHED_H
#define DL_PLAN_PUBLISHED_H

#include "base/size.h"
#include "base/status.h"

typedef enum dl_published_rules { DL_RULES_PAPER, DL_RULES_CALCULATOR } dl_published_rules;
typedef enum dl_published_method {
    DL_PUBLISHED_DATA_PARALLEL,
    DL_PUBLISHED_DILOCO,
    DL_PUBLISHED_STREAMING
} dl_published_method;

enum { DL_PLAN_MAX_LAYERS = 4096, DL_PLAN_MAX_SYNC = 1000000, DL_PUBLISHED_POINTS = 50 };

/* A published setting; `step_s` is the compute time of a step in seconds, `bits` those of a
 * value. */
typedef struct dl_published {
    dl_published_rules rules;
    dl_published_method method;
    double parameters, step_s, bits;
    uint32_t layers, sync_every, fragment_layers, tau,
        replicas; /* sync_every: 1 of data_parallel */
} dl_published;

/* DILOCO_EINVAL: a number out of range, named as its flag. DILOCO_EREFUSED: tau >= sync_every. */
DL_MUST_CHECK diloco_status dl_published_check(const dl_published *p);

/* Of a checked model, in (0, 1]; it never falls as the link grows. */
double dl_published_utilization(const dl_published *p, double gbit);

/* Point i of the papers' grid in Gbit/s: 50 from 0.1 to 1000, equal ratios of 1.2068. */
double dl_published_point(int i);

/* The link for a target in (0, 1), in Gbit/s.
 *   PAPER       the last grid point still below the target, which is how a cell of the tables
 *               reads; the first point if none is below. *beyond: the last one is below.
 *   CALCULATOR  the smallest link that reaches it, by bisection between 1e-6 and 1e6 Gbit/s.
 *               *beyond: the largest does not. */
double dl_published_link(bool *beyond, const dl_published *p, double target);

/* calculator.c */
double dl_calculator_utilization(const dl_published *p, double gbit);

/* Is anything sent at step t (from 1)? With *fragment: the first fragment that is due; the others
 * that are due at t follow it. */
bool dl_published_due(uint64_t *fragment, const dl_published *p, uint64_t t);
uint64_t dl_published_fragments(const dl_published *p); /* P; 1 unless streaming */

#endif
