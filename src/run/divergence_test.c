/* divergence_test.c - the warning of an outer step that is too long: SWM-30. */
#include "run/divergence.h"

#include "check.h"

#include <math.h>
#include <stdio.h>

/* Adopts entry 3, whose members had the loss `inner`; then takes n_steps with another loss. Returns
 * whether a warning came. */
static bool after(dl_divergence *s, double inner, double loss, int n_steps, char *text, size_t cap)
{
    bool warned = false;
    dl_divergence now = {.entry = 3, .inner = inner, .lr = 50, .mu = 0.9};
    dl_divergence_norm(&now, "r0", 1.25);
    dl_divergence_norm(&now, "r1", (double)NAN);
    dl_divergence_adopt(s, &now);
    for (int i = 0; i < n_steps; i++)
        warned |= dl_divergence_step(s, loss, text, cap);
    return warned;
}

TEST(swm30_a_model_far_worse_than_its_members_names_the_outer_step_and_the_norms)
{
    dl_divergence s = {.left = 0};
    char text[2048] = "";
    CHECK(after(&s, 2, 9, DL_DIVERGENCE_STEPS, text, sizeof text));
    CHECK_STR("entry 3: the loss is 9 after it (the mean of 10 steps), and its members had 2: its "
              "outer step is too long, or one member's contribution is bad. Lower the outer "
              "learning rate. "
              "server.diloco.outer_learning_rate was 50, outer_momentum 0.9; its members moved by: "
              "r0 1.25 r1 ?",
              text);
    CHECK(!after(&s, 2, 9, 2 * DL_DIVERGENCE_STEPS, text, sizeof text)); /* once */
}

TEST(loss_that_is_not_a_number_is_a_divergence)
{
    dl_divergence s = {.left = 0};
    char text[2048];
    CHECK(after(&s, 2, (double)NAN, DL_DIVERGENCE_STEPS, text, sizeof text));
}

TEST(one_infinite_loss_is_no_divergence_and_ten_are)
{
    dl_divergence s = {.left = 0};
    char text[2048];
    CHECK(!after(&s, 2, 2, 4, text, sizeof text));
    CHECK(!dl_divergence_step(&s, (double)INFINITY, text, sizeof text));
    for (int i = 5; i < DL_DIVERGENCE_STEPS; i++)
        CHECK(!dl_divergence_step(&s, 2, text, sizeof text));
    CHECK_INT(0, s.left);
    CHECK(after(&s, 2, (double)INFINITY, DL_DIVERGENCE_STEPS, text, sizeof text));
}

TEST(noise_is_no_divergence)
{
    dl_divergence s = {.left = 0};
    char text[2048];
    CHECK(!after(&s, 2, 3.4, DL_DIVERGENCE_STEPS, text, sizeof text));
    CHECK(!after(&s, 0.01, 0.5, DL_DIVERGENCE_STEPS, text, sizeof text));
    CHECK(!after(&s, -4, -2, DL_DIVERGENCE_STEPS, text, sizeof text));
    /* no member reported a loss */
    CHECK(!after(&s, (double)NAN, 9, DL_DIVERGENCE_STEPS, text, sizeof text));
    CHECK(after(&s, -4, 1, DL_DIVERGENCE_STEPS, text, sizeof text));
}

TEST(steps_after_the_next_entry_count_too)
{
    dl_divergence s = {.left = 0};
    char text[2048];
    CHECK(!after(&s, 2, 9, 4, text, sizeof text));
    CHECK(!after(&s, 9, 9, 4, text, sizeof text));
    CHECK(after(&s, 9, 9, 2, text, sizeof text)); /* compared with the members of entry 3 */
    CHECK_CONTAINS("its members had 2", text);
}

TEST(a_hundred_members_do_not_fit_and_do_no_harm)
{
    dl_divergence s = {.left = 0};
    for (int i = 0; i < 100; i++)
        dl_divergence_norm(&s, "a-replica-of-a-long-name", 1.5 * i);
    CHECK(strlen(s.norms) == sizeof s.norms - 1);
}

TEST_MAIN(swm30_a_model_far_worse_than_its_members_names_the_outer_step_and_the_norms,
          loss_that_is_not_a_number_is_a_divergence, one_infinite_loss_is_no_divergence_and_ten_are,
          noise_is_no_divergence, steps_after_the_next_entry_count_too,
          a_hundred_members_do_not_fit_and_do_no_harm)
