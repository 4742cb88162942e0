/* machine_async_test.c - one replica of an asynchronous run, in which each contribution is an entry
 * of its own (P17, P20). */
#include "machine_world.h"

/* Another replica has created two entries, one after the other, and the second counts ours. */
TEST(p20_replica_whose_contribution_was_counted_trains_on)
{
    world w;
    make_world(&w, 1);
    w.pace.schedule.async = true;
    join_run(&w);
    until(&w, DL_REQUEST_CONTRIBUTE);
    next(&w, DL_REQUEST_LIST);
    others_commit(&w, 1, "r1");
    const char *own[] = {"r0"};
    dl_entry counts = entry_by(&w, 2, "r1", true, own, 1);
    counts.members[0].entry = 1;
    counts.members[0].body = body_of(1, &counts.members[0].generation);
    counts.result = result_of(&counts);
    CHECK(dl_roster_add(&counts.roster, "r0", 2)); /* 1 + the newest base that counted */
    CHECK(dl_roster_add(&counts.roster, "r1", 2));
    write_entry(&w, &counts);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(3, w.control.entry);
    CHECK_INT(1, w.asked[DL_REQUEST_CONTRIBUTE]);
    CHECK_INT(0, w.asked[DL_REQUEST_WAIT]);
    CHECK(w.counted);
    end_world(&w);
}

/* r1's entries are committed while r0's contribution to entry 1 stays uncounted. */
static void others_count(world *w, uint64_t from, uint64_t to)
{
    const char *other[] = {"r1"};
    for (uint64_t e = from; e < to; e++) {
        dl_entry counts = entry_by(w, e, "r1", true, other, 1);
        put(w, e, "r1", 0);
        CHECK(dl_roster_add(&counts.roster, "r1", (uint32_t)e + 1));
        write_entry(w, &counts);
    }
}

TEST(p20_stale_replica_drops_its_contribution_and_trains_from_the_newest)
{
    world w;
    make_world(&w, 1);
    w.pace.schedule.async = true;
    option(&w, "server.diloco.max_staleness", "1");
    join_run(&w);
    until(&w, DL_REQUEST_CONTRIBUTE);
    others_count(&w, 1, 4);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(4, w.control.entry);
    CHECK_INT(4, w.pace.base);
    CHECK_INT(1, w.noted[DL_NOTE_LATE]);
    CHECK_INT(4, next(&w, DL_REQUEST_CONTRIBUTE)->entry);
    end_world(&w);
}

TEST(p20_replica_with_a_damaged_contribution_closes_the_entry_and_trains_on)
{
    world w;
    make_world(&w, 1);
    w.pace.schedule.async = true;
    join_run(&w);
    until(&w, DL_REQUEST_CONTRIBUTE);
    next(&w, DL_REQUEST_LIST);
    w.put[0].n_bad = -1;
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK(!a->step.draft->commit);
    CHECK_INT(1, a->entry);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(2, w.control.entry);
    CHECK_INT(2, next(&w, DL_REQUEST_CONTRIBUTE)->entry); /* under another name */
    put(&w, 1, "r1", 0);                                  /* is first, by its base */
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(4, w.control.entry);
    CHECK(w.counted); /* the old one is still damaged, which does not affect the new one */
    CHECK_INT(1, w.noted[DL_NOTE_LATE]);
    end_world(&w);
}

TEST(p17_contribution_in_flight_of_an_earlier_generation_is_not_sent_twice)
{
    world w;
    make_world(&w, 1);
    w.pace.schedule.async = true;
    const char *own[] = {"r0"};
    const dl_entry counts = entry_by(&w, 1, "r1", true, own, 1);
    put(&w, 1, "r0", 0);
    write_entry(&w, &counts);
    w.args.self.number = 1;
    resume_run(&w, 1, 5);
    CHECK(until(&w, DL_REQUEST_SWAP)->swap.counted);
    until(&w, DL_REQUEST_TRAIN);
    CHECK(!w.counted); /* this generation has nothing in flight */
    end_world(&w);
}

/* r1 is ten times as fast, until it is not heard any more. */
TEST(alg_33_last_heartbeat_of_a_dead_replica_slows_no_other)
{
    world w;
    make_world(&w, 1);
    w.pace.schedule.async = true;
    option(&w, "server.diloco.dynamic_local_steps", "true");
    w.speed[0] = 1, w.speed[1] = 5;
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.pace.own_interval);
    w.beating = " r0 ";
    w.train_s = 20;
    for (int i = 0; i < 4; i++)
        next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(WORLD_H, w.pace.own_interval);
    end_world(&w);
}

TEST_MAIN(p20_replica_whose_contribution_was_counted_trains_on,
          p20_stale_replica_drops_its_contribution_and_trains_from_the_newest,
          p20_replica_with_a_damaged_contribution_closes_the_entry_and_trains_on,
          p17_contribution_in_flight_of_an_earlier_generation_is_not_sent_twice,
          alg_33_last_heartbeat_of_a_dead_replica_slows_no_other)
