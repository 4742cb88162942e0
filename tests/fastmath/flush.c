/* flush.c - a library as some host program may load it: built with -ffast-math, and on load it
 * sets flush-to-zero and denormals-are-zero for the thread that loads it. */
#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

__attribute__((constructor)) static void set_flush(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    __asm__ volatile("msr fpcr, %0" : : "r"(word | (uint64_t)1 << 24));
#endif
}
