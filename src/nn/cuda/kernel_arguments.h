/* kernel_arguments.h - the one argument of each kernel. Pointers are to device memory. Common part
 * of C and of the kernels' language. */
#ifndef DL_NN_CUDA_KERNEL_ARGUMENTS_H
#define DL_NN_CUDA_KERNEL_ARGUMENTS_H

#include "nn/verdict.h"

/* squares[b]: sum of squares of block b. PROTOCOL B3 fixes the order of the additions. */
enum { DL_CUDA_LANES = 16, DL_CUDA_BLOCK = 4096 };
typedef struct dl_cuda_squares_arguments {
    const float *values;
    uint64_t n;
    double *squares;
} dl_cuda_squares_arguments;

typedef struct dl_cuda_judge_arguments {
    const float *values;
    uint64_t n;
    const double *squares;
    uint64_t n_squares;
    dl_verdict *verdict;
    double clip, margin;
} dl_cuda_judge_arguments;

typedef struct dl_cuda_scale_arguments {
    float *values;
    uint64_t n;
    const dl_verdict *verdict;
} dl_cuda_scale_arguments;

typedef struct dl_cuda_pull_arguments {
    float *values;
    const float *parameters, *anchor;
    uint64_t n;
    float mu;
} dl_cuda_pull_arguments;

typedef struct dl_cuda_hyper_arguments {
    dl_hyper *hyper;
    const dl_verdict *verdict;
    dl_hyper_options options;
} dl_cuda_hyper_arguments;

typedef struct dl_cuda_adamw_arguments {
    float *p, *m, *v;
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
    int decays;
} dl_cuda_adamw_arguments;

#endif
