/* isa.c - which instruction set the kernels use, and the floating-point control word. */
#include "tensor/isa.h"

#include <fenv.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const char *const names[DL_N_ISA] = {"c", "avx2", "avx512", "neon"};

const char *dl_isa_name(dl_isa isa)
{
    return names[isa];
}

/* __builtin_cpu_supports also asks the system whether it saves the wide registers. AVX-512 here is
 * the common part of all server processors since Skylake: F, BW, DQ and VL. */
bool dl_isa_available(dl_isa isa)
{
    switch (isa) {
    case DL_ISA_C:
        return true;
#if defined(__x86_64__)
    case DL_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case DL_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("fma");
#elif defined(__aarch64__)
    case DL_ISA_NEON:
        return true; /* part of the architecture: the plain C is compiled to it */
#endif
    default:
        return false;
    }
}

/* The instruction set of DILOCO_ISA, or the widest of this machine; DL_N_ISA if it does not have
 * the former. */
static dl_isa wanted(void)
{
    const char *forced = getenv("DILOCO_ISA");
    for (int isa = DL_N_ISA - 1; isa >= 0; isa--)
        if (dl_isa_available((dl_isa)isa) && (!forced || strcmp(forced, names[isa]) == 0))
            return (dl_isa)isa;
    return DL_N_ISA;
}

static _Atomic int chosen = DL_N_ISA; /* DL_N_ISA: not yet */

dl_isa dl_isa_chosen(void)
{
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa == DL_N_ISA) { /* two threads here at once choose the same */
        isa = wanted();
        if (isa == DL_N_ISA) isa = DL_ISA_C;
        dl_isa_use((dl_isa)isa);
    }
    return (dl_isa)isa;
}

void dl_isa_use(dl_isa isa)
{
    DL_ASSERT(dl_isa_available(isa));
    atomic_store_explicit(&chosen, (int)isa, memory_order_relaxed);
}

diloco_status dl_isa_check(void)
{
    if (wanted() != DL_N_ISA) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "DILOCO_ISA=%s is unknown or not in this machine: unset it, or use one of"
                   " c%s%s%s",
                   getenv("DILOCO_ISA"), dl_isa_available(DL_ISA_AVX2) ? ", avx2" : "",
                   dl_isa_available(DL_ISA_AVX512) ? ", avx512" : "",
                   dl_isa_available(DL_ISA_NEON) ? ", neon" : "");
}

/* ---- the floating-point control word, one for each thread */

#if defined(__x86_64__)

enum { MXCSR_DEFAULT = 0x1f80 }; /* exceptions masked, to nearest, no FTZ, no DAZ */

dl_fp_state dl_fp_enter(void)
{
    dl_fp_state saved = {_mm_getcsr()};
    _mm_setcsr(MXCSR_DEFAULT);
    return saved;
}

void dl_fp_leave(dl_fp_state saved)
{
    _mm_setcsr((unsigned)saved.word);
}

#elif defined(__aarch64__)

dl_fp_state dl_fp_enter(void)
{
    dl_fp_state saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved.word));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory"); /* nearest, no FZ */
    return saved;
}

void dl_fp_leave(dl_fp_state saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(saved.word) : "memory");
}

#else

/* C has no portable flush-to-zero, so only the rounding mode is set and restored. */
dl_fp_state dl_fp_enter(void)
{
    dl_fp_state saved = {(uint64_t)fegetround()};
    fesetround(FE_TONEAREST);
    return saved;
}

void dl_fp_leave(dl_fp_state saved)
{
    fesetround((int)saved.word);
}

#endif
