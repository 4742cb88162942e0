/* planted_mistakes.cu - kernels that device_code_test.py must refuse. Each has one mistake, and is
 * compiled with contraction and with flushed denormals allowed. They are part of no program. */

extern "C" __global__ void planted_contraction(float *to, const float *x, const float *y)
{
    to[threadIdx.x] += x[threadIdx.x] * y[threadIdx.x];
}

extern "C" __global__ void planted_double_contraction(double *to, const double *x, const double *y)
{
    to[threadIdx.x] += x[threadIdx.x] * y[threadIdx.x];
}

extern "C" __global__ void planted_flush(float *to, const float *x)
{
    to[threadIdx.x] = to[threadIdx.x] + x[threadIdx.x];
}

/* The old value is not used, so it is a reduction. */
extern "C" __global__ void planted_reduction(int *to)
{
    atomicAdd(to, (int)threadIdx.x);
}

extern "C" __global__ void planted_atomic(int *to)
{
    to[1 + threadIdx.x] = atomicAdd(to, (int)threadIdx.x);
}

extern "C" __global__ void planted_shared_atomic(int *to)
{
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicExch(&sum, (int)threadIdx.x);
    __syncthreads();
    to[threadIdx.x] = sum;
}

/* An index that is known only at run time puts the array into the thread's memory. */
extern "C" __global__ void planted_memory(float *to, const unsigned *index)
{
    float own[64];
    for (unsigned i = 0; i < 64; i++)
        own[index[i] % 64] = to[i];
    for (unsigned i = 0; i < 64; i++)
        to[i] = own[index[63 - i] % 64];
}
