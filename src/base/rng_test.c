/* rng_test.c - Philox against Random123's known answers (D. E. Shaw Research, file
 * tests/kat_vectors, "philox4x32 10"), and the draws against what they promise. */
#include "base/rng.h"

#include "check.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/random.h>

/* How the source of random bytes answers: each entry is the most bytes that one call returns, or
 * the negative error number of a call that fails. Later calls return all bytes. */
static int answers[8];
static size_t n_answers, n_calls;

/* Replaces the C library's function. */
ssize_t getrandom(void *out, size_t len, unsigned flags)
{
    const int answer = n_calls < n_answers ? answers[n_calls] : (int)len;
    (void)flags;
    n_calls++;
    if (answer < 0) {
        errno = -answer;
        return -1;
    }
    const size_t n = (size_t)answer < len ? (size_t)answer : len;
    memset(out, (int)n_calls, n); /* the bytes name the call that they came from */
    return (ssize_t)n;
}

static void answer_with(int first, int second, int third)
{
    answers[0] = first, answers[1] = second, answers[2] = third;
    n_answers = 3;
    n_calls = 0;
}

TEST(philox_gives_the_known_answers_of_random123)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const uint32_t *c = known[i].counter, *k = known[i].key;
        uint32_t out[4];
        dl_philox(out, k[0] | (uint64_t)k[1] << 32, c[2] | (uint64_t)c[3] << 32,
                  c[0] | (uint64_t)c[1] << 32);
        CHECK_BYTES(known[i].answer, out, sizeof out);
    }
}

TEST(a_sequence_is_its_blocks_words_and_continues_from_a_counter)
{
    dl_rng rng, later;
    uint32_t block[4];
    dl_rng_init(&rng, 7, DL_STREAM(DL_STREAM_TEST, 3), 0);
    for (uint64_t b = 0; b < 5; b++) {
        dl_philox(block, 7, DL_STREAM(DL_STREAM_TEST, 3), b);
        for (int i = 0; i < 4; i++)
            CHECK_INT(block[i], dl_rng_u32(&rng));
    }
    dl_rng_init(&later, rng.seed, rng.stream, rng.counter);
    uint64_t low = dl_rng_u32(&rng), high = dl_rng_u32(&rng);
    CHECK(dl_rng_u64(&later) == (low | high << 32));
}

TEST(below_stays_below_and_reaches_everything)
{
    dl_rng rng;
    int seen[7] = {0};
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, 0), 0);
    for (int i = 0; i < 7000; i++) {
        uint64_t x = dl_rng_below(&rng, 7);
        CHECK(x < 7);
        seen[x]++;
    }
    for (int i = 0; i < 7; i++)
        CHECK_NEAR(1000, seen[i], 150); /* 5 standard deviations of a binomial */
    CHECK_INT(0, dl_rng_below(&rng, 1));
    CHECK(dl_rng_below(&rng, UINT64_MAX) < UINT64_MAX);
}

TEST(uniform_draws_are_in_0_1_with_the_right_mean)
{
    dl_rng rng;
    double sum32 = 0, sum64 = 0;
    dl_rng_init(&rng, 2, DL_STREAM(DL_STREAM_TEST, 0), 0);
    for (int i = 0; i < 10000; i++) {
        float a = dl_rng_f32(&rng);
        double b = dl_rng_f64(&rng);
        CHECK(a >= 0 && a < 1 && b >= 0 && b < 1);
        sum32 += a;
        sum64 += b;
    }
    CHECK_NEAR(0.5, sum32 / 10000, 0.0145); /* 5 / sqrt(12 * 10000) */
    CHECK_NEAR(0.5, sum64 / 10000, 0.0145);
}

TEST(normal_draws_have_the_moments_of_a_normal)
{
    enum { N = 40001 }; /* odd: the last pair is half used */
    float *x = malloc(N * sizeof *x), shorter[5];
    double m1 = 0, m2 = 0, m4 = 0;
    CHECK(x);
    dl_rng_normal(x, N, 3, DL_STREAM(DL_STREAM_TEST, 0));
    for (int i = 0; i < N; i++) {
        CHECK(isfinite(x[i]));
        m1 += x[i];
        m2 += (double)x[i] * x[i];
        m4 += pow(x[i], 4);
    }
    CHECK_NEAR(0, m1 / N, 5 * 1 / sqrt(N)); /* variances of the moments: 1, 2, 96 */
    CHECK_NEAR(1, m2 / N, 5 * sqrt(2) / sqrt(N));
    CHECK_NEAR(3, m4 / N, 5 * sqrt(96) / sqrt(N));
    dl_rng_normal(shorter, 5, 3, DL_STREAM(DL_STREAM_TEST, 0));
    CHECK_BYTES(x, shorter, sizeof shorter); /* element i depends on i alone */
    free(x);
}

static void check_permutation(uint64_t n, uint64_t seed)
{
    bool *hit = calloc(n, sizeof *hit);
    CHECK(hit);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = dl_rng_permute(i, n, seed, DL_STREAM(DL_STREAM_TEST, 1));
        if (to >= n || hit[to])
            CHECK_FAIL("n %llu seed %llu: %llu goes to %llu", (unsigned long long)n,
                       (unsigned long long)seed, (unsigned long long)i, (unsigned long long)to);
        hit[to] = true;
    }
    free(hit);
}

TEST(permute_is_a_permutation_of_every_size)
{
    for (uint64_t n = 1; n <= 70; n++)
        for (uint64_t seed = 0; seed < 3; seed++)
            check_permutation(n, seed);
    check_permutation(4096, 9);
    check_permutation(10007, 9);
    CHECK(dl_rng_permute(UINT64_MAX - 1, UINT64_MAX, 1, 1) < UINT64_MAX);
}

TEST(permutations_of_different_seeds_and_streams_differ)
{
    int same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t to = dl_rng_permute(i, 1000, 1, DL_STREAM(DL_STREAM_DATA, 0));
        same += to == dl_rng_permute(i, 1000, 2, DL_STREAM(DL_STREAM_DATA, 0));
        same += to == dl_rng_permute(i, 1000, 1, DL_STREAM(DL_STREAM_DATA, 1));
        same += to == i;
    }
    CHECK(same < 20); /* 3 expected */
}

TEST(interrupted_and_short_reads_of_random_bytes_are_continued)
{
    unsigned char bytes[8] = {0};
    answer_with(-EINTR, 3, -EINTR);
    CHECK_OK(dl_random_bytes(bytes, sizeof bytes));
    CHECK_BYTES(((unsigned char[]){2, 2, 2, 4, 4, 4, 4, 4}), bytes, sizeof bytes);
    CHECK_INT(4, n_calls);
}

TEST(system_without_random_bytes_gives_an_error_that_says_why)
{
    unsigned char bytes[8];
    answer_with(2, -ENOSYS, 0);
    CHECK_STATUS(DILOCO_EIO, dl_random_bytes(bytes, sizeof bytes));
    CHECK_STR("no random bytes from the operating system: Function not implemented",
              diloco_error_text());
    CHECK_INT(2, n_calls);
}

TEST_MAIN(philox_gives_the_known_answers_of_random123,
          a_sequence_is_its_blocks_words_and_continues_from_a_counter,
          below_stays_below_and_reaches_everything, uniform_draws_are_in_0_1_with_the_right_mean,
          normal_draws_have_the_moments_of_a_normal, permute_is_a_permutation_of_every_size,
          permutations_of_different_seeds_and_streams_differ,
          interrupted_and_short_reads_of_random_bytes_are_continued,
          system_without_random_bytes_gives_an_error_that_says_why)
