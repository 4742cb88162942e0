/* softmax.c - the loss of one target (softmax.h). The largest logit is subtracted first, so that no
 * exponential overflows. d/dx of z lse^2 is 2 z lse softmax(x), hence the factor 1 + 2 z lse. */
#include "nn/softmax.h"

#include "nn/cpu/tile.h"
#include "nn/cpu/vec.h"

/* *top is the largest x, *lse the logsumexp; x becomes softmax(x) * gain * (1 + 2 z lse). */
static inline DL_BODY void softmax_body(float *x, float *top, float *lse, size_t n, float gain,
                                        float z, int lanes)
{
    float most = dl_row_max(x, n, lanes), sum = 0;
    DL_SUM(sum)
    for (size_t i = 0; i < n; i++) {
        x[i] = dl_exp_negative(x[i] - most);
        sum += x[i];
    }
    *top = most;
    *lse = most + logf(sum);
    float share = gain * (1 + 2 * z * *lse) / sum;
    for (size_t i = 0; i < n; i++)
        x[i] *= share;
}
DL_TILE_KERNEL(softmax, (float *x, float *top, float *lse, size_t n, float gain, float z),
               softmax_body(x, top, lse, n, gain, z, lanes))

/* Returns false if a class before the target has the same share, as equal logits have. */
static bool first_of_equals(const float *shares, int32_t target)
{
    for (int32_t i = 0; i < target; i++)
        if (shares[i] == shares[target]) return false;
    return true;
}

/* The target's logit is read before the kernel overwrites it. first_of_equals then compares shares.
 * They are equal where the logits were, and may be where these differed in their last bits only. */
dl_target_loss dl_softmax_loss(float *logits, size_t n, int32_t target, float gain, float z)
{
    if (target < 0) {
        memset(logits, 0, n * sizeof *logits);
        return (dl_target_loss){0, false};
    }
    float right = logits[target], top, lse;
    dl_isa_call(softmax)(logits, &top, &lse, n, gain, z);
    bool correct = right == top && first_of_equals(logits, target);
    logits[target] -= gain;
    return (dl_target_loss){lse - right, correct};
}

void dl_tally_add(dl_tally *tally, const dl_target_loss *losses, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tally->loss += (double)losses[i].loss;
        tally->n_correct += losses[i].correct;
    }
}
