/* entry_pace_test.c - the mean time of an entry, from the numbers that heartbeats saw. */
#include "run/entry_pace.h"

#include "check.h"

TEST(no_pace_is_known_before_the_first_entry)
{
    dl_entry_pace pace = {.n = 0};
    CHECK_NEAR(0, dl_entry_pace_seconds(&pace, 5 * DL_SECOND), 0);
    for (int i = 0; i < 5; i++)
        dl_entry_pace_note(&pace, 7, i * DL_SECOND);
    CHECK_NEAR(0, dl_entry_pace_seconds(&pace, 5 * DL_SECOND), 0);
}

TEST(pace_is_the_mean_of_the_window_with_waits)
{
    dl_entry_pace pace = {.n = 0};
    dl_entry_pace_note(&pace, 10, 0);
    dl_entry_pace_note(&pace, 12, 20 * DL_SECOND);
    dl_entry_pace_note(&pace, 12, 30 * DL_SECOND);
    dl_entry_pace_note(&pace, 13, 36 * DL_SECOND); /* 3 entries in 36 s */
    CHECK_NEAR(12, dl_entry_pace_seconds(&pace, 36 * DL_SECOND), 1e-9);
    CHECK_NEAR(12, dl_entry_pace_seconds(&pace, 48 * DL_SECOND),
               1e-9); /* the open one is no slower */
    CHECK_NEAR(20, dl_entry_pace_seconds(&pace, 80 * DL_SECOND), 1e-9);
}

TEST(old_entries_leave_the_window)
{
    dl_entry_pace pace = {.n = 0};
    for (int i = 0; i < 100; i++)
        dl_entry_pace_note(&pace, (uint64_t)i, i * DL_SECOND);
    for (int i = 0; i <= DL_ENTRY_PACE_WINDOW; i++)
        dl_entry_pace_note(&pace, (uint64_t)(100 + i), (100 + 3 * i) * DL_SECOND);
    CHECK_NEAR(3, dl_entry_pace_seconds(&pace, (100 + 3 * DL_ENTRY_PACE_WINDOW) * DL_SECOND), 1e-9);
}

TEST_MAIN(no_pace_is_known_before_the_first_entry, pace_is_the_mean_of_the_window_with_waits,
          old_entries_leave_the_window)
