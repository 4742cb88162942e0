/* rope_test.c - by how much positions are slowed, against torch's numbers of transformers' own
 * functions (tests/goldens/rope.py), and what the definition says at its borders. */
#include "nn/rope.h"

#include "check.h"
#include "goldens/rope_golden.h"

#include <math.h>

/* transformers computes frequencies in float32: 1e-6 of each. */
TEST(frequencies_are_those_of_transformers)
{
    for (int i = 0; i < GOLDEN_ROPES; i++) {
        const golden_rope *g = &golden_ropes[i];
        for (size_t pair = 0; pair < g->dim / 2; pair++) {
            double plain = pow(g->rope.theta, -2.0 * (double)pair / (double)g->dim),
                   got = plain / dl_rope_divisor(&g->rope, pair, g->dim);
            CHECK_NEAR(g->frequencies[pair], got, 1e-6 * got);
        }
    }
}

TEST(slow_pairs_are_slowed_wholly_and_fast_ones_not)
{
    const dl_rope rope = {.theta = 500000,
                          .scaling = DL_ROPE_LLAMA3,
                          .factor = 8,
                          .low = 1,
                          .high = 4,
                          .original = 8192};
    double before = 1;
    CHECK(dl_rope_divisor(&rope, 0, 128) == 1);
    CHECK(dl_rope_divisor(&rope, 63, 128) == 8);
    for (size_t pair = 1; pair < 64; pair++) {
        double now = dl_rope_divisor(&rope, pair, 128);
        CHECK(now >= before && now <= 8);
        before = now;
    }
}

TEST(angles_are_positions_times_frequencies)
{
    const dl_rope rope = {.theta = 10000, .scaling = DL_ROPE_LINEAR, .factor = 2};
    float cosine[2], sine[2];
    dl_rope_angles(cosine, sine, &rope, 0, 4);
    CHECK(cosine[0] == 1 && cosine[1] == 1 && sine[0] == 0 && sine[1] == 0);
    dl_rope_angles(cosine, sine, &rope, 3, 4);
    CHECK_NEAR(cos(1.5), cosine[0], 1e-7);
    CHECK_NEAR(sin(1.5), sine[0], 1e-7);
    CHECK_NEAR(cos(0.015), cosine[1], 1e-7);
    CHECK_NEAR(sin(0.015), sine[1], 1e-7);
}

TEST_MAIN(frequencies_are_those_of_transformers, slow_pairs_are_slowed_wholly_and_fast_ones_not,
          angles_are_positions_times_frequencies)
