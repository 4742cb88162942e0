/* joining_test.c - a replica that joins a run whose log grows faster than the replica reads it
 * (P9). tests/sim_slow.c plays it with a whole cluster. */
#include "machine_world.h"

/* A run of r1 alone, whose log ends before entry 13. r2 joins it at entry 1. */
static void make_long_world(world *w)
{
    make_world(w, 1);
    w->args.self = generation_of("r2", 0);
    for (uint64_t e = 1; e < 13; e++)
        others_commit(w, e, "r1");
    join_run(w);
    w->pace.entries = WORLD_ROOM;
}

static void grow(world *w, uint64_t from, uint64_t end)
{
    for (uint64_t e = from; e < end; e++)
        others_commit(w, e, "r1");
}

/* Until the second measurement of the log, at entry 9. Meanwhile the log grows up to `end`. */
static void read_eight(world *w, uint64_t end)
{
    CHECK_INT(5, until(w, DL_REQUEST_EXTENT)->entry);
    step(w);
    grow(w, 13, end);
    CHECK_INT(9, until(w, DL_REQUEST_EXTENT)->entry);
    CHECK_INT(0, w->asked[DL_REQUEST_CONTRIBUTE]);
}

TEST(p9_slow_reader_announces_itself_at_the_end_of_the_log)
{
    world w;
    make_long_world(&w);
    read_eight(&w, 17);
    const dl_request *a = next(&w, DL_REQUEST_CONTRIBUTE);
    CHECK(a->contribute.announce);
    CHECK_INT(17, a->entry);
    next(&w, DL_REQUEST_EXTENT); /* did it arrive in time? */
    until(&w, DL_REQUEST_READ);
    CHECK_INT(17, next(&w, DL_REQUEST_WAIT)->entry);
    CHECK_INT(1, w.asked[DL_REQUEST_CONTRIBUTE]);
    end_world(&w);
}

TEST(p9_late_announcement_of_a_slow_reader_is_repeated_further_ahead)
{
    world w;
    make_long_world(&w);
    read_eight(&w, 17);
    CHECK_INT(17, next(&w, DL_REQUEST_CONTRIBUTE)->entry);
    grow(&w, 17, 19); /* before it arrives */
    CHECK_INT(19 + 1, next(&w, DL_REQUEST_CONTRIBUTE)->entry);
    grow(&w, 19, 21);
    CHECK_INT(21 + 3, next(&w, DL_REQUEST_CONTRIBUTE)->entry);
    CHECK_INT(9, next(&w, DL_REQUEST_EXTENT)->entry);
    CHECK_INT(9, next(&w, DL_REQUEST_READ)->entry);
    end_world(&w);
}

TEST(p9_reader_that_catches_up_by_itself_does_not_delay_the_others)
{
    world w;
    make_long_world(&w);
    read_eight(&w, 16);
    CHECK_INT(16, next(&w, DL_REQUEST_CONTRIBUTE)->entry);
    CHECK_INT(16, w.control.entry); /* it has read the log to its end */
    end_world(&w);
}

TEST(p9_slow_reader_does_not_make_others_wait_longer_than_patience)
{
    for (int s = 0; s < 2; s++) {
        world w;
        make_long_world(&w);
        read_eight(&w, 17);
        w.now +=
            dl_time_from_seconds(w.config.patience_s - 0.1 + s); /* for 8 entries; 8 are left */
        next(&w, s ? DL_REQUEST_READ : DL_REQUEST_CONTRIBUTE);
        CHECK_INT(!s, w.asked[DL_REQUEST_CONTRIBUTE]);
        end_world(&w);
    }
}

/* Measures the log at entry 9 of 17, when most_unread is 7. `newest` is the snapshot's entries. */
static void measure_long_backlog(world *w, uint64_t newest)
{
    make_long_world(w);
    read_eight(w, 17);
    w->now += dl_time_from_seconds(w->config.patience_s + 1);
    w->newest = newest;
}

TEST(p9_long_backlog_is_spared_by_a_newer_snapshot)
{
    world w;
    measure_long_backlog(&w, 14); /* spares 5 of 8 */
    const dl_request *a = next(&w, DL_REQUEST_REJOIN);
    CHECK_INT(UINT64_MAX, a->entry);
    CHECK(a->rejoin.newer);
    CHECK_INT(0, w.asked[DL_REQUEST_CONTRIBUTE]);
    end_world(&w);
}

TEST(p9_snapshot_that_spares_less_than_half_of_a_backlog_is_ignored)
{
    world w;
    measure_long_backlog(&w, 13); /* spares 4 of 8 */
    CHECK_INT(9, next(&w, DL_REQUEST_READ)->entry);
    end_world(&w);
}

TEST(p9_snapshot_is_ignored_by_a_reader_whose_announcement_is_in_time)
{
    world w;
    make_long_world(&w);
    read_eight(&w, 17);
    w.newest = 17;
    CHECK(next(&w, DL_REQUEST_CONTRIBUTE)->contribute.announce);
    end_world(&w);
}

TEST(p9_names_of_snapshots_without_a_newer_state_are_believed_once)
{
    world w;
    measure_long_backlog(&w, 17);
    next(&w, DL_REQUEST_REJOIN);
    rejoin(&w); /* from the state that it had */
    CHECK_INT(13, until(&w, DL_REQUEST_EXTENT)->entry);
    grow(&w, 17, 30);
    w.now += dl_time_from_seconds(w.config.patience_s + 1);
    w.newest = 30;
    CHECK_INT(13, next(&w, DL_REQUEST_READ)->entry);
    CHECK_INT(1, w.asked[DL_REQUEST_REJOIN]);
    end_world(&w);
}

TEST_MAIN(p9_slow_reader_announces_itself_at_the_end_of_the_log,
          p9_late_announcement_of_a_slow_reader_is_repeated_further_ahead,
          p9_reader_that_catches_up_by_itself_does_not_delay_the_others,
          p9_slow_reader_does_not_make_others_wait_longer_than_patience,
          p9_long_backlog_is_spared_by_a_newer_snapshot,
          p9_snapshot_that_spares_less_than_half_of_a_backlog_is_ignored,
          p9_snapshot_is_ignored_by_a_reader_whose_announcement_is_in_time,
          p9_names_of_snapshots_without_a_newer_state_are_believed_once)
