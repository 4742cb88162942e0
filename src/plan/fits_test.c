/* fits_test.c - the power laws against the tables of 2503.09799, worked by hand.
 */
#include "plan/fits.h"

#include "check.h"

/* 18.129 * (1e9)^-.0953 by hand: exp(2.89751 - .0953 * 20.72327) = exp(0.92258) = 2.5158; the
 * others likewise. Five digits. */
TEST(fits_are_the_published_power_laws)
{
    CHECK_NEAR(2.5158, dl_fit_for(1e9, 0).loss, 1e-4);
    CHECK_NEAR(2.5064, dl_fit_for(1e9, 1).loss, 1e-4);
    CHECK_NEAR(2.5531, dl_fit_for(1e9, 8).loss, 1e-4);
    CHECK_NEAR(19.226 * exp(-0.0985 * log(1e9) + 0.0116 * log(16)), dl_fit_for(1e9, 16).loss, 1e-9);
    CHECK_NEAR(4512.99 * exp(-0.789 * log(1e9)), dl_fit_for(1e9, 4).inner_lr, 1e-9);
    CHECK_NEAR(15.749 * exp(0.479 * log(1e9)), dl_fit_for(1e9, 2).batch_tokens, 1e-3);
}

/* The sense of the paper's findings, which a mistyped coefficient would break. */
TEST(loss_falls_with_size_and_rises_with_replicas_and_batches_grow_with_both)
{
    for (double n = 1e8; n < 1e10; n *= 2) {
        CHECK(dl_fit_for(2 * n, 2).loss < dl_fit_for(n, 2).loss);
        CHECK(dl_fit_for(n, 8).loss > dl_fit_for(n, 2).loss);
        CHECK(dl_fit_for(n, 8).batch_tokens > dl_fit_for(n, 2).batch_tokens);
        CHECK(dl_fit_for(2 * n, 4).inner_lr < dl_fit_for(n, 4).inner_lr);
    }
}

static dl_ideal example(uint32_t replicas)
{
    return (dl_ideal){.parameters = 1e9,
                      .tokens = 20e9,
                      .batch_tokens = 2e6,
                      .chips = 64,
                      .replicas = replicas,
                      .sync_every = 50,
                      .gbit = 10,
                      .latency_s = 0.01};
}

/* 1e4 steps; 6e9 * 2e10 / (64 * 3e14) = 6250 s; a ring over 64 chips at 10 Gbit/s takes
 * 3.2e10 / 1e10 * 63/64 + .01 = 3.16 s, within 4 replicas of 16 chips at 400 Gbit/s
 * 3.2e10 / 4e11 * 60/64 + 1e-4 = .0751 s. */
TEST(the_idealised_wall_clock_is_computed_by_hand)
{
    dl_ideal i = example(0);
    dl_ideal_time t = dl_ideal_wall_clock(&i);
    CHECK_NEAR(6250, t.compute_s, 1e-6);
    CHECK_NEAR(31600, t.inner_s, 1e-6);
    CHECK_NEAR(0, t.outer_s, 0);
    i = example(1);
    t = dl_ideal_wall_clock(&i);
    CHECK_NEAR(31600, t.inner_s, 1e-6);
    CHECK_NEAR(632, t.outer_s, 1e-6);
    i = example(4);
    t = dl_ideal_wall_clock(&i);
    CHECK_NEAR(751, t.inner_s, 1e-6);
    CHECK_NEAR(632, t.outer_s, 1e-6);
}

TEST_MAIN(fits_are_the_published_power_laws,
          loss_falls_with_size_and_rises_with_replicas_and_batches_grow_with_both,
          the_idealised_wall_clock_is_computed_by_hand)
