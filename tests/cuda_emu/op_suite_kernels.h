/* op_suite_kernels.h - the arguments of the kernels of op_suite_kernels.cu, and the factors of a
 * sink, which the CPU and the device compute by one function. */
#ifndef DL_TESTS_CUDA_EMU_OP_SUITE_KERNELS_H
#define DL_TESTS_CUDA_EMU_OP_SUITE_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* y = the first n of the w f32[all]; backward y is the gradient of y, and w that of w. */
typedef struct op_source_arguments {
    float *y, *w;
    uint64_t n, all;
    int add, zero;
} op_source_arguments;

/* *loss += sum over i of sink_factor(i) y_i, or y_i = sink_factor(i). */
typedef struct op_sink_arguments {
    double *loss;
    float *y;
    uint64_t n;
} op_sink_arguments;

static inline float sink_factor(size_t i)
{
    return sinf(fmaf((float)i, 0.37f, 1));
}

#endif
