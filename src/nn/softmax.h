/* softmax.h - shared by the losses over classes: the loss of one target and its gradient. */
#ifndef DL_NN_SOFTMAX_H
#define DL_NN_SOFTMAX_H

#include "nn/graph.h"

typedef struct dl_target_loss {
    float loss;   /* logsumexp(logits) - logits[target], nats; 0 if not counted */
    bool correct; /* the target's logit is the largest; of equal ones the first counts */
} dl_target_loss;

/* logits f32[n] become their gradient, gain * (softmax (1 + 2 z logsumexp) - onehot(target)): that
 * of the loss and of z times the squared logsumexp (op_head_loss.c). A target < 0 is not counted:
 * all zero. Any thread. */
dl_target_loss dl_softmax_loss(float *logits, size_t n, int32_t target, float gain, float z);

/* Adds n losses to *tally in float64, in their order, so the sum does not depend on threads. */
void dl_tally_add(dl_tally *tally, const dl_target_loss *losses, size_t n);

#endif
