/* on_emulated.h - of the backends that a test opens, each emulated_every-th one is on the emulated
 * device. */
#ifndef DL_TESTS_CUDA_EMU_ON_EMULATED_H
#define DL_TESTS_CUDA_EMU_ON_EMULATED_H

extern unsigned emulated_every; /* 1: all */

#endif
