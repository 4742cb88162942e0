/* encode_kernels.cu - the codes of integers (codec/integers.h) on a GPU, with the bits of the CPU.
 */
#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/cuda_kernel.h"

#include <string.h>

static __device__ __forceinline__ uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static __device__ __forceinline__ float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* dl_integer_scale of codec/blocks.h. */
static __device__ __forceinline__ float scale_of(float largest, int most)
{
    const uint32_t bits = (bits_of(largest / (float)most) + 0xff) & ~(uint32_t)0xff;
    return bits >= 0x00800000 ? float_of(bits) : 1.0f;
}

/* A block of threads has a block of the codec: an element each, then a word each. No product is
 * fused with the sum that rounds it, as on the host. */
DL_GPU_KERNEL(dl_encode_integers, dl_cuda_encode_arguments)
{
    __shared__ uint32_t sizes[DL_GPU_THREADS], codes[DL_GPU_THREADS];
    const uint64_t at = (uint64_t)blockIdx.x * DL_GPU_THREADS;
    const unsigned me = threadIdx.x, bits = (unsigned)a.bits;
    const unsigned n = a.n - at < DL_GPU_THREADS ? (unsigned)(a.n - at) : (unsigned)DL_GPU_THREADS;
    const float x = me < n ? a.x[at + me] : 0;
    sizes[me] = bits_of(x) & 0x7fffffff;
    for (unsigned stride = DL_GPU_THREADS / 2; stride; stride /= 2) {
        __syncthreads();
        if (me < stride && sizes[me + stride] > sizes[me]) sizes[me] = sizes[me + stride];
    }
    __syncthreads();
    const float scale = scale_of(float_of(sizes[0]), (1 << (bits - 1)) - 1);
    const float inverse = 1 / scale;
    codes[me] = bits_of(x * inverse + 0x1.8p23f) & ((1u << bits) - 1);
    __syncthreads();
    if (me == 0) a.scales[blockIdx.x] = scale;
    const unsigned words = (n * bits + 31) / 32;
    if (me >= words) return;
    uint32_t word = 0;
    for (unsigned k = 0; k * words + me < n; k++)
        word |= codes[k * words + me] << k * bits;
    a.codes[(uint64_t)blockIdx.x * (DL_GPU_THREADS / 32) * bits + me] = word;
}
