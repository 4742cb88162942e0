/* kernels_test.c - the kernels against the formulas of docs/architecture.md and PROTOCOL B3,
 * written out one element at a time. isa_test.c compares the instruction sets. */
#include "base/rng.h"
#include "tensor/kernels.h"

#include "check.h"

static void floats(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 1), 0);
    for (size_t i = 0; i < n; i++)
        x[i] = dl_rng_f32(&rng) * 4 - 2;
}

TEST(delta_is_before_minus_after)
{
    float before[] = {1, 2, 0}, after[] = {-3, 2, 0.5f}, g[3];
    dl_delta(g, before, after, 3);
    CHECK(g[0] == 4 && g[1] == 0 && g[2] == -0.5f);
}

TEST(adopt_copies_at_0_does_nothing_at_1_and_mixes_between)
{
    float theta[37], local[37], was[37];
    floats(theta, 37, 1);
    floats(was, 37, 2);
    memcpy(local, was, sizeof was);
    dl_adopt(local, theta, 1, 37);
    CHECK_BYTES(was, local, sizeof was);
    dl_adopt(local, theta, 0.5f, 37);
    for (int i = 0; i < 37; i++)
        CHECK(local[i] == fmaf(0.5f, was[i] - theta[i], theta[i]));
    dl_adopt(local, theta, 0, 37);
    CHECK_BYTES(theta, local, sizeof theta);
}

TEST(adopt_copies_from_any_place_to_any_place_and_nothing_beside_it)
{
    enum { N = 21, ROOM = N + 8 };
    float theta[ROOM], was[ROOM], local[ROOM];
    floats(theta, ROOM, 1);
    floats(was, ROOM, 2);
    for (size_t n = 0; n <= N; n++)
        for (size_t from = 0; from < 4; from++)
            for (size_t to = 1; to < 6; to++) {
                memcpy(local, was, sizeof was);
                dl_adopt(local + to, theta + from, 0, n);
                CHECK_BYTES(was, local, to * sizeof *was);
                CHECK_BYTES(theta + from, local + to, n * sizeof *was);
                CHECK_BYTES(was + to + n, local + to + n, (ROOM - to - n) * sizeof *was);
            }
}

TEST(copy_around_copies_bytes_from_any_place_to_any_place_and_nothing_beside_them)
{
    enum { N = 67, PLACES = 17, ROOM = N + PLACES + 1 };
    unsigned char from[ROOM], was[ROOM], to[ROOM];
    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i + 1), was[i] = (unsigned char)(255 - i);
    for (size_t n = 0; n <= N; n++)
        for (size_t f = 0; f < PLACES; f++)
            for (size_t t = 1; t <= PLACES; t++) {
                memcpy(to, was, ROOM);
                dl_copy_around(to + t, from + f, n);
                CHECK_BYTES(was, to, t);
                CHECK_BYTES(from + f, to + t, n);
                CHECK_BYTES(was + t + n, to + t + n, ROOM - t - n);
            }
}

/* PROTOCOL B3, literally. */
static double defined_dot(const float *x, const float *y, size_t n)
{
    double lane[16] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 16] = fma(x[i], y[i], lane[i % 16]);
    for (int stride = 8; stride; stride /= 2)
        for (int l = 0; l < stride; l++)
            lane[l] += lane[l + stride];
    return lane[0];
}

TEST(sums_have_the_order_of_b3)
{
    enum { N = 3 * DL_BLOCK + 1234 };
    static float x[N], y[N];
    floats(x, N, 3);
    floats(y, N, 4);
    double norm2 = 0, dot = 0;
    for (size_t i = 0; i < N; i += DL_BLOCK) {
        size_t n = dl_size_min(DL_BLOCK, N - i);
        CHECK(dl_block_norm2(x + i, n) == defined_dot(x + i, x + i, n));
        CHECK(dl_block_dot(x + i, y + i, n) == defined_dot(x + i, y + i, n));
        norm2 += defined_dot(x + i, x + i, n);
        dot += defined_dot(x + i, y + i, n);
    }
    CHECK(dl_norm2(x, N) == norm2);
    CHECK(dl_dot(x, y, N) == dot);
    CHECK(dl_norm2(x, 0) == 0);
}

TEST(sums_reach_beyond_the_range_of_f32)
{
    float large[] = {3e38f, 3e38f}, small[] = {1e-45f};
    CHECK_NEAR(18e76, dl_norm2(large, 2), 1e70);
    CHECK(dl_norm2(small, 1) > 0);
}

TEST(first_bad_finds_nans_infinities_and_values_above_the_bound)
{
    enum { N = DL_BLOCK + 77 };
    static float x[N];
    floats(x, N, 5);
    CHECK_INT(N, dl_first_bad(x, N, INFINITY));
    CHECK_INT(0, dl_first_bad(x, 0, 1));
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 15, 100, DL_BLOCK - 1, DL_BLOCK, N - 1};
    for (size_t p = 0; p < 6; p++)
        for (int k = 0; k < 4; k++) {
            float was = x[places[p]];
            x[places[p]] = bad[k];
            CHECK_INT(places[p], dl_first_bad(x, N, INFINITY));
            x[places[p]] = was;
        }
    x[500] = -5;
    x[DL_BLOCK + 3] = NAN;
    CHECK_INT(500, dl_first_bad(x, N, 4));
    CHECK_INT(DL_BLOCK + 3, dl_first_bad(x, N, 5)); /* the bound itself is allowed */
}

TEST(the_leaf_hash_is_the_hash_of_base)
{
    enum { N = 100001 };
    static unsigned char bytes[N];
    for (size_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    dl_isa chosen = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        for (size_t n = 0; n <= N; n = n * 3 + 1) {
            dl_hash want = dl_hash_bytes(bytes, n), got;
            dl_leaf_hash h;
            dl_leaf_begin(&h);
            dl_leaf_add(&h, bytes, n / 3);
            dl_leaf_add(&h, bytes + n / 3, n - n / 3);
            got = dl_leaf_end(&h);
            CHECK_BYTES(want.bytes, got.bytes, sizeof want.bytes);
        }
    }
    dl_isa_use(chosen);
}

TEST_MAIN(delta_is_before_minus_after, adopt_copies_at_0_does_nothing_at_1_and_mixes_between,
          adopt_copies_from_any_place_to_any_place_and_nothing_beside_it,
          copy_around_copies_bytes_from_any_place_to_any_place_and_nothing_beside_them,
          sums_have_the_order_of_b3, sums_reach_beyond_the_range_of_f32,
          first_bad_finds_nans_infinities_and_values_above_the_bound,
          the_leaf_hash_is_the_hash_of_base)
