/* faulty_kernels.h - the argument of each kernel of faulty_kernels.cu. */
#ifndef DL_TESTS_CUDA_EMU_FAULTY_KERNELS_H
#define DL_TESTS_CUDA_EMU_FAULTY_KERNELS_H

#include <stdint.h>

typedef struct faulty_arguments {
    float *values;
    uint64_t n;
    const float *host; /* an address in the memory of another process */
} faulty_arguments;

#endif
