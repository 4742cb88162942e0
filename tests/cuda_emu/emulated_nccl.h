/* emulated_nccl.h - how tests look at the library emulated_nccl.c. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_NCCL_H
#define DL_TESTS_CUDA_EMU_EMULATED_NCCL_H

#include <stdint.h>

uint64_t emulated_communicators(void); /* that are open */

#endif
