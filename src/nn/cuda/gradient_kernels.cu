/* gradient_kernels.cu - operations on the whole gradient (nn/gradient.h) on a GPU. Their bits are
 * those of the CPU. */
#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/cuda_kernel.h"

/* A lane is one thread, which adds in the order of the elements; a block of threads has 16 blocks
 * of elements. */
DL_GPU_KERNEL(dl_squares, dl_cuda_squares_arguments)
{
    __shared__ double sums[DL_GPU_THREADS];
    const unsigned me = threadIdx.x, lane = me % DL_CUDA_LANES;
    const uint64_t block = DL_GPU_INDEX / DL_CUDA_LANES, begin = block * DL_CUDA_BLOCK;
    double sum = 0;
    for (uint64_t i = begin + lane; i < a.n && i < begin + DL_CUDA_BLOCK; i += DL_CUDA_LANES)
        sum += (double)a.values[i] * (double)a.values[i];
    sums[me] = sum;
    for (unsigned stride = DL_CUDA_LANES / 2; stride; stride /= 2) {
        __syncthreads();
        if (lane < stride) sums[me] += sums[me + stride];
    }
    if (lane == 0 && begin < a.n) a.squares[block] = sums[me];
}

/* One block of threads. The first thread adds the blocks' sums in order. */
DL_GPU_KERNEL(dl_judge, dl_cuda_judge_arguments)
{
    __shared__ uint64_t first_bad[DL_GPU_THREADS];
    const unsigned me = threadIdx.x;
    dl_verdict *v = a.verdict;
    if (me == 0) {
        double sum = 0;
        for (uint64_t i = 0; i < a.n_squares; i++)
            sum += a.squares[i];
        v->norm = sqrt(sum);
        v->skipped = !isfinite(v->norm);
        v->clip_factor =
            a.clip > 0 && v->norm > a.clip ? (float)(a.clip / (v->norm + a.margin)) : 1.0f;
        if (!v->skipped) v->steps++;
    }
    __syncthreads();
    if (!v->skipped) return; /* for all threads or for none */
    first_bad[me] = a.n;
    for (uint64_t i = me; i < a.n && first_bad[me] == a.n; i += DL_GPU_THREADS)
        if (!isfinite(a.values[i])) first_bad[me] = i;
    for (unsigned stride = DL_GPU_THREADS / 2; stride; stride /= 2) {
        __syncthreads();
        if (me < stride && first_bad[me + stride] < first_bad[me])
            first_bad[me] = first_bad[me + stride];
    }
    if (me == 0) v->bad = first_bad[0];
}

/* A skipped step gives zeros, since a factor would keep a NaN. */
DL_GPU_KERNEL(dl_scale, dl_cuda_scale_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i >= a.n) return;
    if (a.verdict->skipped)
        a.values[i] = 0;
    else
        a.values[i] *= a.verdict->clip_factor;
}

/* One fma, as on the CPU, so the bits agree. */
DL_GPU_KERNEL(dl_pull, dl_cuda_pull_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i < a.n) a.values[i] = fmaf(a.mu, a.parameters[i] - a.anchor[i], a.values[i]);
}
