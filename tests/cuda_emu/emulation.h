/* emulation.h - the words of a kernel's language for g++, included before each kernel's source.
 *
 * Threads of a block are fibres of one thread of the device process (emulated_device.cc); they
 * change at barriers only. Static names are of the process: a block's __shared__ memory is filled
 * with NaN patterns before each block. */
#ifndef DL_TESTS_CUDA_EMU_EMULATION_H
#define DL_TESTS_CUDA_EMU_EMULATION_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

struct emulated_index {
    unsigned x, y, z;
};
extern emulated_index threadIdx, blockIdx, blockDim, gridDim;

/* Wait for the block, or for the 32 threads of the warp. All must wait at one line. */
void emulated_barrier(bool warp, const char *file, int line);
/* The value that another lane of the warp gave at the same line. */
double emulated_exchange(double value, unsigned from_lane, const char *file, int line);
/* Ends the process unless the mask has all lanes: no kernel needs others, and here all lanes wait.
 */
void emulated_check_mask(unsigned mask);

static inline void emulated_warp_barrier(const char *file, int line, unsigned mask)
{
    emulated_check_mask(mask);
    emulated_barrier(true, file, line);
}
static inline unsigned emulated_mask(unsigned mask = 0xffffffffu)
{
    return mask;
}
static inline double emulated_masked_exchange(unsigned mask, double value, unsigned from_lane,
                                              const char *file, int line)
{
    emulated_check_mask(mask);
    return emulated_exchange(value, from_lane, file, line);
}

/* fmaf without a call. The library's chooses an instruction at each start, so it cannot be inlined,
 * and took a sixth of a model's time. The result has the same bits. */
#ifdef __x86_64__
extern const bool emulated_has_fma;
static inline float emulated_fmaf(float a, float b, float c)
{
    if (!emulated_has_fma) return fmaf(a, b, c);
    __asm__("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}
#define fmaf emulated_fmaf
#endif

#define __device__
#define __forceinline__ inline
#define __shared__      static __attribute__((section("emulated_shared")))
#define __syncthreads() emulated_barrier(false, __FILE__, __LINE__)
#define __syncwarp(...) emulated_warp_barrier(__FILE__, __LINE__, emulated_mask(__VA_ARGS__))
/* float and double pass through a double unchanged. */
#define __shfl_xor_sync(mask, value, lanes)                                                        \
    ((decltype(value))emulated_masked_exchange(mask, value, (threadIdx.x % 32) ^ (lanes),          \
                                               __FILE__, __LINE__))

struct emulated_kernel {
    const char *name;
    void (*run)(const void *arguments);
    size_t size; /* of the arguments */
    emulated_kernel *next;
    static emulated_kernel *first;
    emulated_kernel(const char *its_name, void (*its_run)(const void *), size_t its_size)
        : name(its_name), run(its_run), size(its_size), next(first)
    {
        first = this;
    }
};

#define DL_GPU_KERNEL(name, type)                                                                  \
    static void name(const type a);                                                                \
    static void name##_run(const void *arguments)                                                  \
    {                                                                                              \
        type a;                                                                                    \
        memcpy(&a, arguments, sizeof a);                                                           \
        name(a);                                                                                   \
    }                                                                                              \
    static emulated_kernel name##_row(#name, name##_run, sizeof(type));                            \
    static void name(const type a)

#endif
