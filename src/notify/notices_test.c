/* notices_test.c - each condition is reported once while it holds, and at a rate that a person can
 * read. Time is the caller's. */
#include "notify/notices.h"

#include "check.h"

#include <stdio.h>

enum { MOST = 40 };

static dl_notice lost(int replica)
{
    dl_notice n = {.event = DL_NOTICE_REPLICA_LOST};
    snprintf(n.replica, sizeof n.replica, "r%d", replica);
    return n;
}

TEST(a_condition_is_reported_once_while_it_holds)
{
    static dl_notices notices;
    dl_notice out[MOST], holding[] = {lost(1), {.event = DL_NOTICE_DIVERGENCE}};
    CHECK_INT(2, dl_notices_take(&notices, out, holding, 2, DL_SECOND));
    CHECK_STR("replica-lost", dl_notice_event_name(out[0].event));
    CHECK_STR("r1", out[0].replica);
    CHECK_INT(0, dl_notices_take(&notices, out, holding, 2, 9000 * DL_SECOND));
}

TEST(a_condition_that_comes_and_goes_is_reported_again_only_after_ten_minutes)
{
    static dl_notices notices;
    dl_notice out[MOST], holding[] = {lost(1)};
    CHECK_INT(1, dl_notices_take(&notices, out, holding, 1, DL_SECOND));
    CHECK_INT(0, dl_notices_take(&notices, out, NULL, 0, 2 * DL_SECOND));
    CHECK_INT(0, dl_notices_take(&notices, out, holding, 1, 3 * DL_SECOND));
    CHECK_INT(0, dl_notices_take(&notices, out, holding, 1, 4 * DL_SECOND));
    CHECK_INT(1, dl_notices_take(&notices, out, holding, 1, 602 * DL_SECOND));
    CHECK_INT(1, out[0].withheld);
}

TEST(no_more_than_twenty_an_hour_are_sent_and_the_rest_is_counted)
{
    static dl_notices notices;
    dl_notice out[MOST], holding[MOST];
    for (int i = 0; i < 30; i++)
        holding[i] = lost(i);
    CHECK_INT(DL_NOTICES_HOURLY, dl_notices_take(&notices, out, holding, 30, DL_SECOND));
    CHECK_INT(0, dl_notices_take(&notices, out, holding, 30, 3000 * DL_SECOND));
    CHECK_INT(10, dl_notices_take(&notices, out, holding, 30, 3602 * DL_SECOND));
    CHECK_INT(10, out[0].withheld);
    CHECK_INT(0, out[1].withheld);
}

TEST(a_complete_run_is_reported_whatever_was_sent_before)
{
    static dl_notices notices;
    dl_notice out[MOST], holding[MOST];
    for (int i = 0; i < 30; i++)
        holding[i] = lost(i);
    (void)dl_notices_take(&notices, out, holding, 30, DL_SECOND);
    holding[0] = (dl_notice){.event = DL_NOTICE_RUN_COMPLETE};
    CHECK_INT(1, dl_notices_take(&notices, out, holding, 1, 2 * DL_SECOND));
    CHECK_STR("run-complete", dl_notice_event_name(out[0].event));
}

TEST(more_conditions_than_slots_leave_the_rest_out)
{
    static dl_notices notices;
    static dl_notice out[2 * DL_NOTICES], holding[2 * DL_NOTICES];
    for (int i = 0; i < 2 * DL_NOTICES; i++)
        holding[i] = lost(i);
    CHECK_INT(DL_NOTICES_HOURLY,
              dl_notices_take(&notices, out, holding, 2 * DL_NOTICES, DL_SECOND));
}

TEST_MAIN(a_condition_is_reported_once_while_it_holds,
          a_condition_that_comes_and_goes_is_reported_again_only_after_ten_minutes,
          no_more_than_twenty_an_hour_are_sent_and_the_rest_is_counted,
          a_complete_run_is_reported_whatever_was_sent_before,
          more_conditions_than_slots_leave_the_rest_out)
