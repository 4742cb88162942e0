/* link_test.c - the grammar of link.h, and everything that just misses it. */
#include "base/link.h"

#include "check.h"

static dl_link link_of(const char *text)
{
    dl_link link;
    CHECK_OK(dl_link_parse(&link, "--link", text));
    return link;
}

static void check_link(const char *text, double up, double down, double delay_s, double loss)
{
    const dl_link link = link_of(text);
    CHECK_NEAR(up, link.up_bps, 1e-9 * up);
    CHECK_NEAR(down, link.down_bps, 1e-9 * down);
    CHECK_NEAR(delay_s, link.delay_s, 1e-12);
    CHECK_NEAR(loss, link.loss, 1e-12);
}

TEST(rate_delay_and_loss_are_read_with_their_units)
{
    check_link("10mbit,100ms,1%", 10e6, 10e6, 0.1, 0.01);
    check_link("1.5gbit,1s", 1.5e9, 1.5e9, 1, 0);
    check_link("64kbit,250us,0.5%", 64e3, 64e3, 250e-6, 0.005);
    check_link("10mbit/50mbit,20ms", 10e6, 50e6, 0.02, 0);
}

TEST(any_part_may_be_left_out)
{
    check_link("10mbit", 10e6, 10e6, 0, 0);
    check_link("100ms", 0, 0, 0.1, 0);
    check_link("100%", 0, 0, 0, 1);
    check_link("10mbit,2%", 10e6, 10e6, 0, 0.02);
    check_link("100ms,2%", 0, 0, 0.1, 0.02);
}

TEST(an_invalid_link_is_refused_and_its_wrong_part_named)
{
    static const char *const wrong[] = {"",        "50",          "mbit",         "0mbit",
                                        "-1mbit",  "50mbit,",     "50mbit,100",   "50 mbit",
                                        "50mbits", "50mbit,1ms,", "50mbit,-1ms",  "nanmbit,1s",
                                        "101%",    "1%,10mbit",   "100ms,10mbit", "1ms,1ms",
                                        "10mbit/", "/10mbit",     "10mbit/0mbit", "10mbit/1ms",
                                        "61s",     ",",           "50Mbit",       "10mbit,,1%"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dl_link link = {.loss = 42};
        CHECK_STATUS(DILOCO_EINVAL, dl_link_parse(&link, "run.link", wrong[i]));
        CHECK(link.loss == 42);
    }
    dl_link link;
    CHECK_STATUS(DILOCO_EINVAL, dl_link_parse(&link, "run.link", "10mbit,fast"));
    CHECK_CONTAINS("run.link 10mbit,fast: \"fast\"", diloco_error_text());
}

TEST_MAIN(rate_delay_and_loss_are_read_with_their_units, any_part_may_be_left_out,
          an_invalid_link_is_refused_and_its_wrong_part_named)
