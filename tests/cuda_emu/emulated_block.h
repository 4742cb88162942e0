/* emulated_block.h - the blocks of a launch, inside the device process. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_BLOCK_H
#define DL_TESTS_CUDA_EMU_EMULATED_BLOCK_H

#include "emulation.h"

#include <vector>

extern const emulated_kernel *running; /* NULL: none */

uint64_t next_random(); /* of the setup's seed */
void seed_random(uint64_t seed);

/* Numbers 0 to n - 1 in the setup's order. */
std::vector<unsigned> order_of(unsigned n);

/* Runs one block of n threads of the running kernel: whole warps, at most EMULATED_MOST_THREADS.
 * A mistake of the kernel ends the process. */
enum { EMULATED_WARP = 32, EMULATED_MOST_THREADS = 1024 };
void run_block(unsigned block, unsigned n, const void *arguments);

#endif
