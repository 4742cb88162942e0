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

/* Returns false if a class before the target has as large a logit. */
static bool is_first(const float *logits, int32_t target)
{
    for (int32_t i = 0; i < target; i++)
        if (logits[i] >= logits[target]) return false;
    return true;
}

/* Logits are compared before the kernel overwrites them, as on CUDA (cuda/loss_kernels.cu). Shares
 * may be equal where logits differ in their last bits. */
dl_target_loss dl_softmax_loss(float *logits, size_t n, int32_t target, float gain, float z)
{
    if (target < 0) {
        memset(logits, 0, n * sizeof *logits);
        return (dl_target_loss){0, false};
    }
    float right = logits[target], top, lse;
    const bool first = is_first(logits, target);
    dl_isa_call(softmax)(logits, &top, &lse, n, gain, z);
    logits[target] -= gain;
    return (dl_target_loss){lse - right, first && right == top};
}

void dl_tally_add(dl_tally *tally, const dl_target_loss *losses, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tally->loss += (double)losses[i].loss;
        tally->n_correct += losses[i].correct;
    }
}
