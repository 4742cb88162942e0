/* loss_kernels.cu - softmax cross-entropy (nn/softmax.h) and what the losses add up to. */
#include "nn/cuda/element.cuh"
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/warp.cuh"

/* A warp for each position. Three walks over its logits: the largest, the sum of exponentials, and
 * the gradient, which may be written over them. `earlier` is the largest before the target: a
 * target counts as correct only if it is the first of the largest. */
template <typename E>
static __device__ __forceinline__ void softmax_of_logits(const dl_cuda_loss_arguments &a)
{
    const uint64_t i = DL_WARP_INDEX;
    if (i >= a.n) return;
    const float *x = a.logits + i * a.vocab;
    E *dx = elements<E>(a.gradient) + i * a.vocab;
    const int32_t target = a.targets[i];
    if (target < 0) { /* for all threads of the warp */
        for (uint64_t c = DL_LANE; c < a.vocab; c += DL_WARP)
            put(dx + c, 0);
        if (DL_LANE == 0) a.losses[i].loss = 0;
        if (DL_LANE == 0) a.losses[i].correct = 0;
        return;
    }
    const float right = x[target];
    float top = -INFINITY, earlier = -INFINITY, sum = 0;
    for (uint64_t c = DL_LANE; c < a.vocab; c += DL_WARP) {
        top = fmaxf(top, x[c]);
        if (c < (uint64_t)target) earlier = fmaxf(earlier, x[c]);
    }
    top = warp_max(top);
    earlier = warp_max(earlier);
    for (uint64_t c = DL_LANE; c < a.vocab; c += DL_WARP)
        sum += expf(x[c] - top);
    sum = warp_sum(sum);
    const float lse = top + logf(sum), share = a.gain * (1 + 2 * a.z_loss * lse) / sum;
    for (uint64_t c = DL_LANE; c < a.vocab; c += DL_WARP) {
        const float p = expf(x[c] - top) * share;
        put(dx + c, c == (uint64_t)target ? p - a.gain : p);
    }
    if (DL_LANE == 0) {
        a.losses[i].loss = lse - right;
        a.losses[i].correct = right == top && earlier < top;
    }
}
DL_GPU_KERNELS(softmax_of_logits, dl_cuda_loss_arguments)

/* One block. Each thread adds the losses of every 256th position in their order, and then pairs of
 * threads add their sums. So the sum has the same bits each time. */
DL_GPU_KERNEL(dl_add_to_tally, dl_cuda_tally_arguments)
{
    __shared__ double losses[DL_GPU_THREADS];
    __shared__ uint64_t correct[DL_GPU_THREADS];
    const unsigned me = threadIdx.x;
    double loss = 0;
    uint64_t n_correct = 0;
    for (uint64_t i = me; i < a.n; i += DL_GPU_THREADS) {
        loss += (double)a.losses[i].loss;
        n_correct += (uint64_t)a.losses[i].correct;
    }
    losses[me] = loss;
    correct[me] = n_correct;
    for (unsigned stride = DL_GPU_THREADS / 2; stride; stride /= 2) {
        __syncthreads();
        if (me >= stride) continue;
        losses[me] += losses[me + stride];
        correct[me] += correct[me + stride];
    }
    if (me != 0) return;
    *a.loss += losses[0];
    *a.n_correct += correct[0];
}
