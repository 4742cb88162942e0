/* mean_test.c - the weighted mean against its formula, on every instruction set. */
#include "base/rng.h"
#include "combine/combine.h"
#include "combine/mean.h"

#include "check.h"

enum { MEMBERS = 9 };
static float g[MEMBERS][DL_BLOCK], weight[MEMBERS], G[DL_BLOCK];
static const float *blocks[MEMBERS];

static void fill(void)
{
    dl_rng rng;
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, 2), 0);
    for (size_t m = 0; m < MEMBERS; m++) {
        blocks[m] = g[m];
        weight[m] = dl_rng_f32(&rng);
        for (size_t i = 0; i < DL_BLOCK; i++)
            g[m][i] = i % 5 == m % 5 ? -0.0f : dl_rng_f32(&rng) - 0.5f;
    }
}

TEST(the_table_finds_by_name_and_ends)
{
    CHECK(dl_combiner_find("mean") == dl_combiner_at(0));
    CHECK(!dl_combiner_find("median of what"));
    CHECK(!dl_combiner_at(1000));
}

TEST(members_are_added_by_fma_in_their_order)
{
    static const size_t sizes[] = {1, 15, 16, 17, 100, DL_BLOCK};
    fill();
    dl_isa chosen = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        for (size_t n_members = 1; n_members <= MEMBERS; n_members++)
            for (int k = 0; k < 6; k++) {
                dl_weighted_sum(G, blocks, weight, n_members, sizes[k]);
                for (size_t i = 0; i < sizes[k]; i++) {
                    float acc = 0;
                    for (size_t m = 0; m < n_members; m++)
                        acc = fmaf(weight[m], g[m][i] + 0.0f, acc);
                    CHECK_BYTES(&acc, &G[i], sizeof acc);
                }
            }
    }
    dl_isa_use(chosen);
}

TEST(a_view_with_negative_zeros_gives_the_bits_of_decoded_positive_ones)
{
    /* The first product underflows to -0; adding -0 would keep it, adding +0 does not. */
    float first[] = {-1e-45f}, minus[] = {-0.0f}, plus[] = {0.0f};
    const float *with_minus[] = {first, minus}, *with_plus[] = {first, plus};
    float w[] = {0.25f, 0.75f}, a, b;
    dl_weighted_sum(&a, with_minus, w, 2, 1);
    dl_weighted_sum(&b, with_plus, w, 2, 1);
    CHECK_BYTES(&b, &a, sizeof a);
}

TEST(one_member_of_weight_1_is_itself)
{
    float one = 1;
    fill();
    dl_weighted_sum(G, blocks, &one, 1, DL_BLOCK);
    for (size_t i = 0; i < DL_BLOCK; i++)
        CHECK(G[i] == g[0][i] && !(G[i] == 0 && signbit(G[i])));
}

TEST_MAIN(the_table_finds_by_name_and_ends, members_are_added_by_fma_in_their_order,
          a_view_with_negative_zeros_gives_the_bits_of_decoded_positive_ones,
          one_member_of_weight_1_is_itself)
