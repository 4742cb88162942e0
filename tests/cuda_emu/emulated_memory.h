/* emulated_memory.h - memory of the emulated devices, inside the device process.
 *
 * Each allocation has pages of its own with unmapped pages around. It begins as NaN patterns. The
 * rest of its last page is a red zone that is checked after each kernel. An address is never given
 * twice. Only the memory of the device that works has access: a kernel that uses another device's
 * memory dies. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_MEMORY_H
#define DL_TESTS_CUDA_EMU_EMULATED_MEMORY_H

#include "emulated.h"

#include <map>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600 };

struct piece {
    uint64_t bytes, pages; /* asked for, and mapped */
    uint64_t device;
};
extern std::map<uint64_t, piece> pieces; /* by address */
extern emulated_setup setup;

/* Ends the process with these last words. */
__attribute__((format(printf, 1, 2), noreturn)) void end(const char *format, ...);

static inline char *at_address(uint64_t address)
{
    return reinterpret_cast<char *>(address);
}

/* show gives access to the memory of one device, or of all_devices, and takes it from the others.
 */
static const uint64_t all_devices = UINT64_MAX;
void show(uint64_t device);
bool is_shown(const piece &p);

/* Each returns a result of the driver. */
int allocate(uint64_t *at, uint64_t n, uint64_t device);
int release(uint64_t at);

void check_red_zones(); /* of the device that works */

/* Returns whether all of [at, at + n) is in one allocation of the device, or in pinned memory. */
bool is_ours(uint64_t at, uint64_t n, uint64_t device);

#endif
