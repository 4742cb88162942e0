/* verdict.h - values that the operations of an optimizer step pass to each other in backend memory.
 * Kernels of a device include it, too, so it is the common part of C and C++. */
#ifndef DL_NN_VERDICT_H
#define DL_NN_VERDICT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The result of dl_gradient_judge. */
typedef struct dl_verdict {
    double norm;
    uint64_t steps;    /* gradients so far whose norm was finite */
    uint64_t bad;      /* if the norm is not finite: the first element that is not */
    uint64_t skipped;  /* 1: the norm is not finite, so this step changes nothing */
    float clip_factor; /* 1, or what brings the norm down to `clip` */
} dl_verdict;

/* The scalars of an update, derived in float64 and rounded once. root_bc2 is sqrt(1 - beta2^t), and
 * step_size lr / (1 - beta1^t), where t is the verdict's count of steps. */
typedef struct dl_hyper {
    float lr, keep; /* keep: 1 - lr * weight_decay, the part of a parameter that decay leaves */
    float clip_factor;
    float one_minus_beta1, beta2, one_minus_beta2, root_bc2, eps, step_size;
    float alpha, one_minus_alpha;
    float momentum, momentum_weight;
    float muon_lr, muon_keep, muon_momentum;
    bool muon_nesterov;
    int muon_steps;
} dl_hyper;

/* The part of dl_hyper that the configuration and the schedule give. Only plain types, because it
 * is copied to the device as an argument. */
typedef struct dl_hyper_options {
    double lr, weight_decay, beta1, beta2, eps;
    double alpha;
    double momentum, momentum_weight;
    double muon_lr, muon_momentum;
    int muon_nesterov, muon_steps;
} dl_hyper_options;

#ifdef __CUDACC__
#define DL_ON_DEVICE __device__
#else
#define DL_ON_DEVICE
#endif

/* dl_hyper_fill computes what the step after `verdict` needs. */
static inline DL_ON_DEVICE void dl_hyper_fill(dl_hyper *out, const dl_hyper_options *o,
                                              const dl_verdict *verdict)
{
    const double t = (double)verdict->steps;
    out->lr = (float)o->lr;
    out->keep = (float)(1 - o->lr * o->weight_decay);
    out->clip_factor = verdict->clip_factor;
    out->one_minus_beta1 = (float)(1 - o->beta1);
    out->beta2 = (float)o->beta2;
    out->one_minus_beta2 = (float)(1 - o->beta2);
    out->root_bc2 = (float)sqrt(1 - pow(o->beta2, t));
    out->eps = (float)o->eps;
    out->step_size = (float)(o->lr / (1 - pow(o->beta1, t)));
    out->alpha = (float)o->alpha;
    out->one_minus_alpha = (float)(1 - o->alpha);
    out->momentum = (float)o->momentum;
    out->momentum_weight = (float)o->momentum_weight;
    out->muon_lr = (float)o->muon_lr;
    out->muon_keep = (float)(1 - o->muon_lr * o->weight_decay);
    out->muon_momentum = (float)o->muon_momentum;
    out->muon_nesterov = o->muon_nesterov != 0;
    out->muon_steps = o->muon_steps;
}

#endif
