/* cuda_kernel.h - how a kernel is written: one source for the GPU and for the emulated device.
 *
 * A kernel takes one struct, by value. nvcc makes device code of it; g++ makes a function for the
 * emulated device, whose header (tests/cuda_emu/emulation.h) defines DL_GPU_KERNEL and the names of
 * the language first. Kernels keep to a subset: blocks of DL_GPU_THREADS threads in one dimension,
 * __shared__ arrays of fixed size, __syncthreads in uniform control flow, float, double and
 * integers. They use no atomics and no inline PTX, so a launch gives the same bits each time.
 *
 * The files of kernels whose bits are promised are compiled without contraction (-fmad=false): they
 * write each fma that they want. */
#ifndef DL_TENSOR_CUDA_KERNEL_H
#define DL_TENSOR_CUDA_KERNEL_H

#include <stdint.h>

enum { DL_GPU_THREADS = 256 }; /* of a block, in every launch */

#ifdef __CUDACC__
#define DL_GPU_KERNEL(name, type)                                                                  \
    extern "C" __global__ void __launch_bounds__(DL_GPU_THREADS, 1) name(const type a)
#endif

/* The thread's number in the whole launch. */
#define DL_GPU_INDEX ((uint64_t)blockIdx.x * DL_GPU_THREADS + threadIdx.x)

#endif
