/* faulty_kernels.cu - kernels with one mistake each, which the emulated device has to find. */
#include "faulty_kernels.h"
#include "tensor/cuda/cuda_kernel.h"

DL_GPU_KERNEL(faulty_good, faulty_arguments)
{
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = (float)DL_GPU_INDEX;
}

DL_GPU_KERNEL(faulty_bound, faulty_arguments)
{
    if (DL_GPU_INDEX <= a.n) a.values[DL_GPU_INDEX] = 1;
}

DL_GPU_KERNEL(faulty_far, faulty_arguments)
{
    if (DL_GPU_INDEX == 3) a.values[a.n + 1000000] = 1;
}

DL_GPU_KERNEL(faulty_host, faulty_arguments)
{
    if (DL_GPU_INDEX == 0) a.values[0] = *a.host;
}

DL_GPU_KERNEL(faulty_barrier, faulty_arguments)
{
    if (threadIdx.x < 100) __syncthreads();
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = 1;
}

DL_GPU_KERNEL(faulty_lines, faulty_arguments)
{
    if (threadIdx.x < 100)
        __syncthreads();
    else
        __syncthreads();
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = 1;
}

/* A thread reads what its neighbour writes without a barrier between the two. */
DL_GPU_KERNEL(faulty_race, faulty_arguments)
{
    __shared__ float shared[DL_GPU_THREADS];
    const unsigned me = threadIdx.x;
    shared[me] = (float)me;
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = shared[(me + 1) % DL_GPU_THREADS];
}

DL_GPU_KERNEL(faulty_shared, faulty_arguments)
{
    __shared__ float shared[8];
    shared[threadIdx.x % 9] = 1;
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = shared[0];
}

/* The sum over a warp, which is right. */
DL_GPU_KERNEL(faulty_warp_sum, faulty_arguments)
{
    float sum = (float)threadIdx.x;
    for (unsigned lanes = 16; lanes; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = sum;
}

/* Half of each warp alone: right on a card, and refused here. */
DL_GPU_KERNEL(faulty_half_sum, faulty_arguments)
{
    float sum = (float)threadIdx.x;
    if (threadIdx.x % 32 < 16)
        for (unsigned lanes = 8; lanes; lanes /= 2)
            sum += __shfl_xor_sync(0xffffu, sum, lanes);
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = sum;
}

DL_GPU_KERNEL(faulty_half_barrier, faulty_arguments)
{
    if (threadIdx.x % 32 < 16) __syncwarp(0xffffu);
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = 1;
}

/* A warp writes over what another may not have read yet: a barrier of the warp is no barrier of the
 * block. */
DL_GPU_KERNEL(faulty_ahead, faulty_arguments)
{
    __shared__ float shared[DL_GPU_THREADS];
    const unsigned me = threadIdx.x;
    shared[me] = (float)me;
    __syncthreads();
    const float other = shared[DL_GPU_THREADS - 1 - me];
    __syncwarp();
    shared[me] = -1;
    if (DL_GPU_INDEX < a.n) a.values[DL_GPU_INDEX] = other;
}
