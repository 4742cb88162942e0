/* softmax_test.c - which target counts as correct: as loss_kernels.cu counts it, by logits. */
#include "nn/softmax.h"

#include "check.h"

#include <math.h>

static bool is_correct(const float *logits, size_t n, int32_t target)
{
    float copy[64];
    CHECK(n <= 64);
    memcpy(copy, logits, n * sizeof *logits);
    return dl_softmax_loss(copy, n, target, 1, 0).correct;
}

/* The share of both is 1/2: e^x of a difference of 2^-33 is 1 in float32. */
TEST(of_logits_that_differ_in_their_last_bit_the_larger_is_correct)
{
    const float x = 0x1p-10f, logits[] = {nextafterf(x, 0), x, nextafterf(x, 0)};
    CHECK(logits[0] < logits[1]);
    CHECK(!is_correct(logits, 3, 0));
    CHECK(is_correct(logits, 3, 1));
    CHECK(!is_correct(logits, 3, 2));
}

TEST(of_equal_logits_the_first_is_correct)
{
    const float logits[] = {1, 3, 2, 3};
    for (int32_t i = 0; i < 4; i++)
        CHECK(is_correct(logits, 4, i) == (i == 1));
}

TEST(the_largest_is_found_wherever_it_is)
{
    float logits[64];
    for (int32_t at = 0; at < 64; at++) {
        for (int i = 0; i < 64; i++)
            logits[i] = i == at ? 2 : (float)(i % 7) / 8;
        for (int32_t i = 0; i < 64; i++)
            CHECK(is_correct(logits, 64, i) == (i == at));
    }
}

TEST_MAIN(of_logits_that_differ_in_their_last_bit_the_larger_is_correct,
          of_equal_logits_the_first_is_correct, the_largest_is_found_wherever_it_is)
