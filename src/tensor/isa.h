/* isa.h - one definition of a kernel, compiled for each instruction set.
 *
 * A kernel's body is plain C with fmaf exactly where docs/architecture.md section 2 writes fma.
 * It is the definition; DL_KERNEL compiles it again for wider machines. IEEE arithmetic
 * without contraction or reassociation gives every version the same bits, and
 * isa_test.c holds them to it.
 *
 *     static inline DL_BODY void scale_body(float *y, const float *x, float a, size_t n)
 *     { DL_EACH for (size_t i = 0; i < n; i++) y[i] = a * x[i]; }
 *     DL_KERNEL(scale, (float *y, const float *x, float a, size_t n), scale_body(y, x, a, n))
 *     ... dl_isa_call(scale)(y, x, 2, n);      // or scale[isa](…)
 *
 * Bodies return nothing; results go through pointers. */
#ifndef DL_TENSOR_ISA_H
#define DL_TENSOR_ISA_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum dl_isa { DL_ISA_C, DL_ISA_AVX2, DL_ISA_AVX512, DL_ISA_NEON, DL_N_ISA } dl_isa;

/* Returns the widest instruction set of this machine, or the one that the environment variable
 * DILOCO_ISA names ("c", "avx2", "avx512", "neon"). It is chosen at the first call. If the name is
 * unknown, or the machine lacks it, the result is DL_ISA_C, and dl_isa_check reports it. Any thread
 * may call. */
dl_isa dl_isa_chosen(void);
const char *dl_isa_name(dl_isa isa);
bool dl_isa_available(dl_isa isa);
void dl_isa_use(dl_isa isa);      /* from now on, in this process: for tests; isa is available */
diloco_status dl_isa_check(void); /* DILOCO_EINVAL when DILOCO_ISA could not be honoured */

#define DL_BODY __attribute__((always_inline))

/* Before a loop whose iterations do not depend on each other: outputs may be the inputs
 * themselves (in place) but never overlap them shifted. */
#if defined(__clang__)
#define DL_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define DL_EACH _Pragma("GCC ivdep")
#endif

/* Before a loop over groups of lanes: clang unrolls it when it is short, and then finds no
 * vectors in what came of it (a quarter of the speed). */
#if defined(__clang__)
#define DL_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define DL_ROLLED
#endif

/* 512-bit vectors have to be asked for: by default both compilers prefer 256 bits. */
#if defined(__clang__)
#define DL_AVX512 target("avx512f,avx512bw,avx512dq,avx512vl,fma"), min_vector_width(512)
#else
#define DL_AVX512 target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif

/* The version of a kernel for this process. A loop over blocks may look it up in each iteration:
 * the choice is one relaxed load. */
#define dl_isa_call(kernel) (kernel[dl_isa_chosen()])

/* DL_KERNEL(name, (parameters), call) defines a static table `name` of one function for each
 * instruction set. NEON is part of the aarch64 baseline, so its entry is the plain version. */

#if defined(__x86_64__)
#define DL_KERNEL(name, params, call)                                                              \
    static void name##_c params                                                                    \
    {                                                                                              \
        call;                                                                                      \
    }                                                                                              \
    __attribute__((target("avx2,fma"))) static void name##_avx2 params                             \
    {                                                                                              \
        call;                                                                                      \
    }                                                                                              \
    __attribute__((DL_AVX512)) static void name##_avx512 params                                    \
    {                                                                                              \
        call;                                                                                      \
    }                                                                                              \
    static void(*const name[DL_N_ISA]) params = {name##_c, name##_avx2, name##_avx512, name##_c};
#else
#define DL_KERNEL(name, params, call)                                                              \
    static void name##_c params                                                                    \
    {                                                                                              \
        call;                                                                                      \
    }                                                                                              \
    static void(*const name[DL_N_ISA]) params = {name##_c, name##_c, name##_c, name##_c};
#endif

/* PROTOCOL B1: the host program may have set flush-to-zero or another rounding. Kernels run
 * between these two; they save the thread's control word, set round-to-nearest with
 * denormals, and restore it. */
typedef struct dl_fp_state {
    uint64_t word;
} dl_fp_state;
dl_fp_state dl_fp_enter(void);
void dl_fp_leave(dl_fp_state saved);

/* Return a float's bits, and the float of such bits. memcpy is the conversion that C defines. */
static inline DL_BODY uint32_t dl_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline DL_BODY float dl_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* |x| as an integer that is in the order of |x|, the NaNs above infinity; not negative, so signed
 * comparisons, SSE2's only ones, will do. */
static inline DL_BODY int32_t dl_size_bits(float x)
{
    return (int32_t)(dl_bits_of(x) & 0x7fffffff);
}

#endif
