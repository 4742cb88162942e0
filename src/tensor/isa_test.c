/* isa_test.c - every instruction set gives the bits of plain C, whatever the host program did
 * to the floating-point control word.
 *
 * The inputs are hard ones: denormals, both zeros, numbers near the ends of the range, in
 * sizes that straddle every vector width and at every alignment of a float. */
#include "base/rng.h"
#include "tensor/isa.h"
#include "tensor/kernels.h"

#include "check.h"

#include <dlfcn.h>
#include <fenv.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MAX = DL_BLOCK, ROOM = MAX + 16 };

/* Finite floats of every size: a third denormal, some zeros of both signs. */
static void hard_floats(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 0), 0);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = dl_rng_u32(&rng), kind = dl_rng_u32(&rng) % 8;
        if (kind < 3) bits &= 0x807fffff;  /* denormal */
        if (kind == 3) bits &= 0x80000000; /* zero */
        if (kind > 3) bits = (bits & 0x807fffff) | (64 + (bits >> 23 & 127)) << 23;
        memcpy(&x[i], &bits, sizeof bits);
    }
}

/* Everything the kernels give for n elements `shift` floats into their buffers. */
typedef struct results {
    float delta[ROOM], adopt[ROOM];
    double norm2, dot;
    size_t bad;
    dl_hash hash;
} results;

static void run_kernels(results *r, size_t n, size_t shift)
{
    static float a[ROOM], b[ROOM];
    hard_floats(a, ROOM, 1);
    hard_floats(b, ROOM, 2);
    memset(r, 0, sizeof *r);
    dl_fp_state saved = dl_fp_enter();
    memcpy(r->adopt, a, sizeof a);
    dl_delta(r->delta + shift, a + shift, b + shift, n);
    dl_adopt(r->adopt + shift, b + shift, 0.3f, n);
    r->norm2 = dl_block_norm2(a + shift, n);
    r->dot = dl_block_dot(a + shift, b + shift, n);
    r->bad = dl_first_bad(a + shift, n, 1e-30f);
    dl_fp_leave(saved);
    dl_leaf_hash h;
    dl_leaf_begin(&h);
    dl_leaf_add(&h, r->delta + shift, n * sizeof(float));
    r->hash = dl_leaf_end(&h);
}

static void check_all_isas(void)
{
    static const size_t sizes[] = {0,  1,  2,  3,  7,  8,   15,   16, 17,
                                   31, 33, 63, 64, 65, 100, 1023, MAX};
    static results want, got;
    dl_isa chosen = dl_isa_chosen();
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (size_t shift = 0; shift < 16; shift += k % 3 + 1) {
            dl_isa_use(DL_ISA_C);
            run_kernels(&want, sizes[k], shift);
            for (int isa = 1; isa < DL_N_ISA; isa++) {
                if (!dl_isa_available((dl_isa)isa)) continue;
                dl_isa_use((dl_isa)isa);
                run_kernels(&got, sizes[k], shift);
                if (memcmp(&want, &got, sizeof want) != 0)
                    CHECK_FAIL("%s differs from c: %zu elements, shift %zu", dl_isa_name(isa),
                               sizes[k], shift);
            }
        }
    dl_isa_use(chosen);
}

/* min_normal / 2 is denormal: zero where denormals are flushed. volatile: computed here. */
static bool denormals_are_flushed(void)
{
    volatile float smallest = 0x1p-126f, half = 0.5f;
    volatile float denormal = smallest * half;
    return denormal == 0;
}

TEST(every_instruction_set_gives_the_bits_of_plain_c)
{
    check_all_isas();
}

TEST(kernels_keep_denormals_after_a_fast_math_library_was_loaded)
{
    results before, after;
    run_kernels(&before, 1000, 1);
    fenv_t saved;
    fegetenv(&saved);
    void *library = dlopen(FLUSH_LIBRARY, RTLD_NOW);
    if (!library) CHECK_FAIL("%s", dlerror());
    bool flushed = denormals_are_flushed();
    run_kernels(&after, 1000, 1);
    check_all_isas();
    bool still_flushed = denormals_are_flushed();
    fesetenv(&saved);
    dlclose(library);
    CHECK(flushed); /* else this test shows nothing */
    CHECK(still_flushed);
    CHECK_BYTES(&before, &after, sizeof before);
}

TEST(another_rounding_of_the_host_program_changes_no_bit_and_is_restored)
{
    results before, after;
    run_kernels(&before, 1000, 3);
    fesetround(FE_UPWARD);
    run_kernels(&after, 1000, 3);
    int rounding = fegetround();
    fesetround(FE_TONEAREST);
    CHECK_INT(FE_UPWARD, rounding);
    CHECK_BYTES(&before, &after, sizeof before);
}

#if defined(__x86_64__)
TEST(the_control_word_is_restored_whole)
{
    unsigned saved = _mm_getcsr(), host = 0x1f80 | 0x8040 | 0x6000; /* flushing, towards zero */
    _mm_setcsr(host);
    dl_fp_state state = dl_fp_enter();
    unsigned inside = _mm_getcsr();
    dl_fp_leave(state);
    unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    CHECK_INT(0x1f80, inside);
    CHECK_INT(host, after);
}
#else
TEST(the_control_word_is_restored_whole)
{
    fesetround(FE_TOWARDZERO);
    dl_fp_state state = dl_fp_enter();
    int inside = fegetround();
    dl_fp_leave(state);
    int after = fegetround();
    fesetround(FE_TONEAREST);
    CHECK_INT(FE_TONEAREST, inside);
    CHECK_INT(FE_TOWARDZERO, after);
}
#endif

TEST(an_instruction_set_that_cannot_be_had_is_refused_by_name)
{
    setenv("DILOCO_ISA", "sse9", 1);
    CHECK_STATUS(DILOCO_EINVAL, dl_isa_check());
    CHECK_CONTAINS("sse9", diloco_error_text());
    setenv("DILOCO_ISA", dl_isa_available(DL_ISA_NEON) ? "avx2" : "neon", 1);
    CHECK_STATUS(DILOCO_EINVAL, dl_isa_check());
    setenv("DILOCO_ISA", "c", 1);
    CHECK_OK(dl_isa_check());
    unsetenv("DILOCO_ISA");
    CHECK_OK(dl_isa_check());
}

TEST_MAIN(every_instruction_set_gives_the_bits_of_plain_c,
          kernels_keep_denormals_after_a_fast_math_library_was_loaded,
          another_rounding_of_the_host_program_changes_no_bit_and_is_restored,
          the_control_word_is_restored_whole,
          an_instruction_set_that_cannot_be_had_is_refused_by_name)
