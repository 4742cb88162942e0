/* element.cuh - the element types of values: f32, and bf16 in two bytes. Kernels read both as f32,
 * and compute in f32. A store to bf16 rounds to nearest, ties to even, as dl_narrow does on the
 * host (tensor/widths.h).
 *
 * A kernel is written once, as a template over the element type. Shared memory is declared in the
 * kernel itself and not in the template, because g++ would not place it in the emulated section. */
#ifndef DL_NN_CUDA_ELEMENT_CUH
#define DL_NN_CUDA_ELEMENT_CUH

#include "tensor/cuda/cuda_kernel.h"

#include <string.h>

typedef struct bf16 {
    uint16_t bits;
} bf16;

static __device__ __forceinline__ float get(float x)
{
    return x;
}

/* bf16 is the upper half of an f32, so this is exact. */
static __device__ __forceinline__ float get(bf16 x)
{
    const uint32_t bits = (uint32_t)x.bits << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static __device__ __forceinline__ void put(float *to, float x)
{
    *to = x;
}

/* A NaN stays a NaN: its payload may be in the lower half alone. */
static __device__ __forceinline__ void put(bf16 *to, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to->bits = (uint16_t)(is_nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The arguments' pointers are to float, whatever the element type. */
template <typename E> static __device__ __forceinline__ E *elements(float *at)
{
    return (E *)(void *)at;
}
template <typename E> static __device__ __forceinline__ const E *elements(const float *at)
{
    return (const E *)(const void *)at;
}

/* Two kernels of one template: dl_<name> for f32, and dl_<name>_bf16. */
#define DL_GPU_KERNELS(name, type)                                                                 \
    DL_GPU_KERNEL(dl_##name, type)                                                                 \
    {                                                                                              \
        name<float>(a);                                                                            \
    }                                                                                              \
    DL_GPU_KERNEL(dl_##name##_bf16, type)                                                          \
    {                                                                                              \
        name<bf16>(a);                                                                             \
    }

#endif
