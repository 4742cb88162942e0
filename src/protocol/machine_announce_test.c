/* machine_announce_test.c - a replica that no entry waits for announces itself before it trains
 * (P9, P13). */
#include "machine_world.h"

TEST(p9_unawaited_replica_announces_itself_before_it_trains)
{
    world w;
    make_world(&w, 1);
    w.args.self = generation_of("r2", 0);
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_CONTRIBUTE);
    CHECK(a->contribute.announce && !a->contribute.pipelined);
    CHECK_INT(1, a->entry);
    next(&w, DL_REQUEST_WAIT);
    CHECK_INT(0, w.asked[DL_REQUEST_TRAIN]);
    others_commit(&w, 1, "r1");
    next(&w, DL_REQUEST_CONTRIBUTE);
    CHECK_INT(0, w.noted[DL_NOTE_LATE]);
    CHECK(w.request.contribute.announce); /* r1 did not see it: the next one is further ahead */
    CHECK_INT(3, w.request.entry);
    end_world(&w);
}

TEST(p13_unawaited_replica_trains_from_the_others_next_due_point)
{
    world w;
    make_world(&w, 3);
    w.args.self = generation_of("r2", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    CHECK_INT(0, w.asked[DL_REQUEST_TRAIN]);
    put(&w, 3, "r1", 0);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(20, w.pace.position);
    end_world(&w);
}

TEST(p13_unawaited_replica_trains_after_patience_if_no_other_contributes)
{
    world w;
    make_world(&w, 3);
    w.args.self = generation_of("r2", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    const dl_time began = w.now;
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(15, w.pace.position);
    CHECK(w.now >= dl_time_after(began, dl_time_from_seconds(w.config.patience_s)));
    end_world(&w);
}

/* The entry names r1 only, and later ones wait for r0, too. */
static void commit_without_us(world *w, uint64_t number)
{
    static const char *const r1 = "r1";
    const dl_entry e = entry_by(w, number, r1, true, &r1, 1);
    dl_entry named = e;
    put(w, number, r1, 0);
    CHECK(dl_roster_add(&named.roster, "r0", 0));
    write_entry(w, &named);
}

/* r0 trains for entries 3 and 4, which close before its due points. Others have then contributed to
 * entry 5. */
static void be_late_twice(world *w, const char *on_missing)
{
    make_world(w, 3);
    CHECK_OK(dl_config_set(&w->config, "run.on_missing", on_missing, "test"));
    join_run(w);
    w->pace.entries = WORLD_ROOM;
    for (uint64_t e = 3; e < 5; e++) {
        until(w, DL_REQUEST_TRAIN);
        commit_without_us(w, e);
        put(w, e + 1, "r1", 0);
        CHECK_INT(0, w->asked[DL_REQUEST_WAIT]);
        step(w);
    }
}

TEST(p13_replica_that_is_late_again_aligns_to_an_entry_without_contributions)
{
    world w;
    be_late_twice(&w, "commit_partial");
    CHECK_INT(5, until(&w, DL_REQUEST_WAIT)->entry);
    commit_without_us(&w, 5);
    CHECK_INT(6, next(&w, DL_REQUEST_LIST)->entry);
    until(&w, DL_REQUEST_WAIT);
    CHECK_INT(2, w.asked[DL_REQUEST_TRAIN]);
    put(&w, 6, "r1", 0);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(7 * WORLD_H, w.pace.position);
    end_world(&w);
}

/* The others wait for it, and it may not wait for them. */
TEST(p13_replica_that_a_waiting_entry_waits_for_does_not_align)
{
    world w;
    be_late_twice(&w, "wait");
    CHECK_INT(5, until(&w, DL_REQUEST_TRAIN)->entry);
    CHECK_INT(0, w.asked[DL_REQUEST_WAIT]);
    end_world(&w);
}

TEST(p13_replica_that_is_late_again_trains_after_three_entries)
{
    world w;
    be_late_twice(&w, "commit_partial");
    for (uint64_t e = 5; e < 8; e++) {
        CHECK_INT(e, (int)until(&w, DL_REQUEST_WAIT)->entry);
        CHECK_INT(2, w.asked[DL_REQUEST_TRAIN]);
        commit_without_us(&w, e);
        put(&w, e + 1, "r1", 0);
        step(&w);
    }
    CHECK_INT(8, until(&w, DL_REQUEST_TRAIN)->entry);
    end_world(&w);
}

TEST(p9_awaited_replica_does_not_announce_itself)
{
    world w;
    make_world(&w, 3);
    join_run(&w);
    CHECK(!until(&w, DL_REQUEST_CONTRIBUTE)->contribute.announce);
    CHECK_INT(1, w.asked[DL_REQUEST_TRAIN]);
    end_world(&w);
}

TEST(p9_announcements_without_effect_become_rarer)
{
    world w;
    unsigned announced = 0;
    make_world(&w, 1);
    w.args.self = generation_of("r2", 0);
    w.beating = " r1 ";
    join_run(&w);
    for (uint64_t e = 1; e + 1 < WORLD_ENTRIES; e++) {
        until(&w, DL_REQUEST_TRAIN);
        for (size_t i = 0; i < w.n_put; i++)
            if (w.put[i].entry == e && !strcmp(w.put[i].generation.replica, "r2"))
                announced |= 1u << e;
        capture(&w);
        others_commit(&w, e, "r1");
    }
    CHECK_INT(1u << 1 | 1u << 3, announced); /* the third is for an entry after the last */
    end_world(&w);
}

/* r2 announces itself to entries 1, 3 and, once 3 is over, 4 + 3 = 7. It counts in entry 4, and not
 * in 5 and 6, so no entry waits for it at entry 7, where its name is taken by then. */
TEST(p9_name_of_an_announcement_is_not_used_again)
{
    world w;
    static const char *const both[] = {"r1", "r2"};
    make_world(&w, 1);
    w.args.self = generation_of("r2", 0);
    w.beating = " r1 ";
    join_run(&w);
    w.pace.entries = WORLD_ROOM;
    for (uint64_t e = 1; e < 12; e++) {
        capture(&w);
        if (e == 4) until(&w, DL_REQUEST_CONTRIBUTE), step(&w);
        put(&w, e, "r1", 0);
        dl_entry entry = entry_by(&w, e, "r1", true, both, e == 4 ? 2 : 1);
        if (e == 5) CHECK(dl_roster_add(&entry.roster, "r2", 1));
        write_entry(&w, &entry);
    }
    unsigned n[WORLD_ROOM] = {0};
    for (size_t i = 0; i < w.n_put; i++)
        if (!strcmp(w.put[i].generation.replica, "r2")) CHECK_INT(1, ++n[w.put[i].entry]);
    CHECK_INT(1, n[1]);
    CHECK_INT(1, n[3]);
    CHECK_INT(1, n[7]);
    end_world(&w);
}

TEST(p9_no_announcement_for_an_entry_after_the_last)
{
    world w;
    make_world(&w, WORLD_ENTRIES - 1);
    w.args.self = generation_of("r2", 0);
    join_run(&w);
    until(&w, DL_REQUEST_CONTRIBUTE);
    CHECK(!w.request.contribute.announce);
    end_world(&w);
}

TEST(p9_reader_does_not_announce_itself)
{
    world w;
    make_world(&w, 3);
    w.args.self = generation_of("r2", 0);
    w.args.reader = true;
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.asked[DL_REQUEST_CONTRIBUTE]);
    end_world(&w);
}

TEST(p9_next_entry_waits_for_an_announced_replica)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    put(&w, 1, "r1", 0);
    put(&w, 1, "r2", 0)->samples = 0;
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    size_t at;
    CHECK_INT(2, a->step.draft->n_members);
    CHECK(dl_roster_has(&a->step.draft->roster, "r2", &at));
    CHECK_INT(0, a->step.draft->roster.misses[at]);
    end_world(&w);
}

TEST_MAIN(p9_unawaited_replica_announces_itself_before_it_trains,
          p13_unawaited_replica_trains_from_the_others_next_due_point,
          p13_unawaited_replica_trains_after_patience_if_no_other_contributes,
          p13_replica_that_is_late_again_aligns_to_an_entry_without_contributions,
          p13_replica_that_a_waiting_entry_waits_for_does_not_align,
          p13_replica_that_is_late_again_trains_after_three_entries,
          p9_awaited_replica_does_not_announce_itself, p9_announcements_without_effect_become_rarer,
          p9_name_of_an_announcement_is_not_used_again,
          p9_no_announcement_for_an_entry_after_the_last, p9_reader_does_not_announce_itself,
          p9_next_entry_waits_for_an_announced_replica)
