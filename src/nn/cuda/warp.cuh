/* warp.cuh - sums and maxima over the 32 threads of a warp. Partners are exchanged in a butterfly:
 * at distance 16, 8, 4, 2, 1. Addition is commutative, so each thread gets the same bits. All 32
 * threads have to call: none may have returned before. */
#ifndef DL_NN_CUDA_WARP_CUH
#define DL_NN_CUDA_WARP_CUH

#include "tensor/cuda/cuda_kernel.h"

enum { DL_WARP = 32, DL_WARPS = DL_GPU_THREADS / DL_WARP };

#define DL_LANE       (threadIdx.x % DL_WARP)
#define DL_WARP_INDEX (DL_GPU_INDEX / DL_WARP)

static __device__ __forceinline__ float warp_sum(float x)
{
    for (unsigned lanes = DL_WARP / 2; lanes; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (unsigned lanes = DL_WARP / 2; lanes; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

#endif
