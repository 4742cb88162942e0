/* unreadable_test.c - entries that name unreadable bytes (P7). They are void if at most as many
 * committers build on them as may be malicious, and are waited for if more do. */
#include "machine_world.h"
#include "protocol/void/unreadable.h"
#include "protocol/void/voided.h"

TEST(p7_f_committers_may_be_malicious_up_to_a_minority)
{
    world w;
    dl_identity identity = {.policy = DL_INVITED, .n_committers = 1};
    const struct {
        const char *replicas, *combiner;
        size_t max_byzantine;
    } rows[] = {{"1", "mean", 0}, {"2", "mean", 0},   {"3", "mean", 1},
                {"9", "mean", 1}, {"9", "median", 4}, {"9", "krum", 3}};
    make_world(&w, 1);
    option(&w, "server.diloco.byzantine", "3");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        option(&w, "run.replicas", rows[i].replicas);
        option(&w, "server.diloco.combiner", rows[i].combiner);
        CHECK_INT(rows[i].max_byzantine,
                  dl_unreadable_max_byzantine(&w.config, NULL, &w.control.roster));
    }
    option(&w, "run.replicas", "1");
    CHECK(dl_roster_add(&w.control.roster, "r2", 0)); /* more than at the beginning */
    CHECK_INT(1, dl_unreadable_max_byzantine(&w.config, NULL, &w.control.roster));
    CHECK_INT(0, dl_unreadable_max_byzantine(&w.config, &identity, &w.control.roster));
    option(&w, "run.single_committer", "r1");
    CHECK_INT(0, dl_unreadable_max_byzantine(&w.config, NULL, &w.control.roster));
    end_world(&w);
}

/* r0 is one of five. r1 commits entry 1 with its own contribution, which no replica can read. */
static void begin(world *w, bool gone)
{
    make_world(w, 1);
    option(w, "run.replicas", "5");
    others_commit(w, 1, "r1");
    w->put[0].n_bad = -1;
    if (gone) w->n_put = 0;
}

static void find_it_void(world *w, unsigned starts)
{
    for (unsigned i = 0; i < starts; i++) {
        CHECK(until(w, DL_REQUEST_REJOIN)->entry ==
              UINT64_MAX); /* a later snapshot may do without it */
        CHECK_INT(0, w->noted[DL_NOTE_VOID]);
        rejoin(w);
    }
}

TEST(p7_an_entry_of_a_damaged_contribution_is_void_when_no_snapshot_does_without_it)
{
    world w;
    begin(&w, false);
    join_run(&w);
    find_it_void(&w, 1);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(6, w.asked[DL_REQUEST_FETCH]); /* three readings before, three after */
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_STR(DL_UNREADABLE_VOID, w.said);
    CHECK(!dl_roster_has(&w.control.roster, "r1", NULL));
    CHECK_INT(2, w.control.entry);
    end_world(&w);
}

TEST(p7_so_is_one_of_a_contribution_that_is_not_there)
{
    world w;
    begin(&w, true);
    join_run(&w);
    find_it_void(&w, 3);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p7_a_contribution_that_can_be_read_again_voids_nothing)
{
    world w;
    begin(&w, false);
    w.put[0].n_bad = 4;
    join_run(&w);
    find_it_void(&w, 1);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

/* Writes an abort, from the state that r1 says it has. */
static void go_on(world *w, uint64_t number, const char *by)
{
    const dl_entry e = entry_by(w, number, by, false, NULL, 0);
    write_entry(w, &e);
}

/* Writes entries 2 and 3 after it; for r0 the state stays that before entry 1. */
static void others_go_on(world *w, const char *second)
{
    go_on(w, 2, "r1");
    go_on(w, 3, second);
    for (int e = 2; e <= 4; e++)
        w->digest[e] = w->digest[1];
}

TEST(p7_its_committer_alone_may_build_on_it_in_vain)
{
    world w;
    begin(&w, false);
    others_go_on(&w, "r1");
    join_run(&w);
    find_it_void(&w, 1);
    for (uint64_t e = 2; e <= 3; e++) { /* they have another base: perhaps this replica is wrong */
        CHECK_INT(e - 1, until(&w, DL_REQUEST_REJOIN)->entry);
        rejoin(&w);
    }
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(3, w.noted[DL_NOTE_VOID]);
    CHECK_INT(4, w.control.entry);
    end_world(&w);
}

TEST(p7_entry_is_accepted_with_one_more_committer_and_needs_a_snapshot)
{
    world w;
    begin(&w, false);
    others_go_on(&w, "r2");
    join_run(&w);
    find_it_void(&w, 1);
    for (uint64_t e = 2; e <= 3; e++) {
        CHECK_INT(e - 1, until(&w, DL_REQUEST_REJOIN)->entry);
        rejoin(&w);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
        rejoin(&w);
    }
    CHECK_INT(DILOCO_EPROTO, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("the run is at entry 3", diloco_error_text());
    end_world(&w);
}

/* r1 has committed entry 1, the others have read it, and then its text was damaged in the store. */
static void begin_damaged(world *w, const char *replicas, const char *second)
{
    make_world(w, 1);
    option(w, "run.replicas", replicas);
    if (strcmp(replicas, "2") != 0) CHECK(dl_roster_add(&w->control.roster, "r2", 0));
    others_commit(w, 1, "r1");
    go_on(w, 2, "r1");
    go_on(w, 3, second);
    dl_buf_clear(&w->log[1]);
    CHECK_OK(dl_buf_add(&w->log[1], "garbage", 7));
    for (int e = 2; e <= 4; e++)
        w->digest[e] = w->digest[1];
}

TEST(p7_replica_with_a_damaged_entry_rejoins_after_it)
{
    world w;
    begin_damaged(&w, "3", "r2");
    join_run(&w);
    for (uint64_t e = 2; e <= 3; e++) {
        CHECK_INT(e - 1, until(&w, DL_REQUEST_REJOIN)->entry);
        rejoin(&w);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
        rejoin(&w);
    }
    CHECK_INT(DILOCO_EPROTO, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("entry 1 cannot be read", diloco_error_text());
    CHECK_CONTAINS("log/0000000001.json", diloco_error_text());
    end_world(&w);
}

TEST(p7_with_two_replicas_one_committer_that_continues_is_enough)
{
    world w;
    begin_damaged(&w, "2", "r1");
    join_run(&w);
    CHECK_INT(1, until(&w, DL_REQUEST_REJOIN)->entry);
    rejoin(&w);
    CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
    end_world(&w);
}

TEST(p7_one_committer_of_three_is_not_enough_for_a_damaged_entry)
{
    world w;
    begin_damaged(&w, "3", "r1");
    join_run(&w);
    for (uint64_t e = 2; e <= 3; e++) {
        CHECK_INT(e - 1, until(&w, DL_REQUEST_REJOIN)->entry);
        rejoin(&w);
    }
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(3, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p7_generation_that_built_on_an_entry_does_not_find_it_void)
{
    world w;
    begin(&w, false);
    dl_pace_begin(&w.pace, &w.config, WORLD_ENTRIES, 1);
    resume_on(&w, 2, WORLD_H, w.digest[2]);
    CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
    const dl_machine_start again = {.fragments = &w.fragment, .bases = &w.digest[2], .now = w.now};
    dl_pace_restart(&w.pace);
    w.request = dl_machine_begin(w.machine, &again);
    CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
    /* it was void, up to the entry that the earlier generation had reached */
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p7_a_reader_finds_it_void_at_once_and_an_audit_without_collection_too)
{
    world w;
    begin(&w, false);
    w.args.reader = true;
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    end_world(&w);
    begin(&w, true);
    w.args.reader = true;
    option(&w, "run.retain", "all");
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

/* r0 is one of two. Entry 2 is an operator's: it voids entry 1, which r1 has committed. */
static void begin_voided(world *w, int n_bad)
{
    make_world(w, 1);
    option(w, "run.replicas", "2");
    others_commit(w, 1, "r1");
    w->put[0].n_bad = n_bad;
    dl_entry e = entry_by(w, 2, "r1", false, NULL, 0);
    e.abort.voids = 2;
    e.base = e.result = w->digest[1];
    write_entry(w, &e);
}

TEST(p7_with_two_replicas_an_operator_voids_an_unreadable_entry)
{
    world w;
    begin_voided(&w, -1);
    w.digest[2] = w.digest[3] = w.digest[1];
    join_run(&w);
    find_it_void(&w, 3);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_STR(DL_VOIDED, w.said);
    CHECK_INT(1, w.noted[DL_NOTE_ABORT]);
    CHECK_INT(3, w.control.entry);
    end_world(&w);
}

TEST(p7_replica_that_read_a_voided_entry_rejoins_before_it)
{
    world w;
    begin_voided(&w, 0);
    const dl_hash prev = w.control.prev;
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_REJOIN);
    CHECK(a->rejoin.voided);
    CHECK_INT(1, a->entry);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    w.digest[2] = w.digest[3] = w.digest[1];
    w.control.entry = 1; /* of the snapshot */
    w.control.prev = prev;
    rejoin(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]); /* it is void now, though it can be read */
    CHECK_STR(DL_VOIDED, w.said);
    CHECK_INT(3, w.control.entry);
    end_world(&w);
}

/* Entry 2 voids entry 1, entry 4 voids entry 3. A replica that goes back for the second may have to
 * read the log from a snapshot before the first. */
TEST(p7_two_decisions_are_both_remembered)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.replicas", "2");
    const dl_hash before = w.digest[1], prev = w.control.prev;
    others_commit(&w, 1, "r1");
    dl_entry e = entry_by(&w, 2, "r1", false, NULL, 0);
    e.abort.voids = 2;
    e.base = e.result = before;
    write_entry(&w, &e);
    join_run(&w);
    CHECK_INT(1, until(&w, DL_REQUEST_REJOIN)->entry);
    w.digest[2] = w.digest[3] = before;
    w.control.entry = 1;
    w.control.prev = prev;
    rejoin(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(3, w.control.entry);
    others_commit(&w, 3, "r1");
    e = entry_by(&w, 4, "r1", false, NULL, 0);
    e.abort.voids = 4;
    e.base = e.result = before;
    write_entry(&w, &e);
    w.control.entry = 1; /* and the only snapshot is from before both */
    w.control.prev = prev;
    rejoin(&w);
    CHECK_INT(3, until(&w, DL_REQUEST_REJOIN)->entry);
    w.digest[4] = w.digest[5] = before;
    w.control.entry = 1;
    w.control.prev = prev;
    rejoin(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(5, w.control.entry);
    CHECK_STR(DL_VOIDED, w.said);
    end_world(&w);
}

/* A snapshot of entry 1's state, which entry 2 voids, is not used. A replica that began from one
 * goes further back. */
TEST(p7_snapshot_of_a_void_entry_is_skipped)
{
    world w;
    begin_voided(&w, 0);
    const dl_hash prev = w.control.prev;
    join_run(&w);
    until(&w, DL_REQUEST_REJOIN);
    w.digest[3] = w.digest[1];
    w.control.entry = 2; /* of entry 1, counted */
    w.control.prev = dl_hash_bytes(w.log[1].data, w.log[1].len);
    rejoin(&w);
    CHECK_INT(1, until(&w, DL_REQUEST_REJOIN)->entry);
    CHECK(w.request.rejoin.voided);
    w.digest[2] = w.digest[1];
    w.control.entry = 1;
    w.control.prev = prev;
    rejoin(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(3, w.control.entry);
    end_world(&w);
}

TEST(decisions_cover_forget_and_undo)
{
    dl_decisions all = {.n = 0};
    dl_decisions_add(&all, 3, 5);
    dl_decisions_add(&all, 7, 9);
    CHECK(dl_decisions_void(&all, 3) && dl_decisions_void(&all, 8));
    CHECK(!dl_decisions_void(&all, 5) && !dl_decisions_void(&all, 2));
    CHECK(dl_decisions_undo(&all, 4) && dl_decisions_undo(&all, 5) && !dl_decisions_undo(&all, 3));
    dl_decisions_add(&all, 4, 6); /* overlaps: both hold */
    CHECK(dl_decisions_void(&all, 3) && dl_decisions_void(&all, 5));
    CHECK_INT(3, all.n);
    dl_decisions_add(&all, 2, 10);
    CHECK_INT(1, all.n);
    for (uint64_t i = 0; i < 2 * DL_DECISIONS; i++)
        dl_decisions_add(&all, 100 * (i + 1), 100 * (i + 1) + 1);
    CHECK_INT(DL_DECISIONS, all.n);
    CHECK(dl_decisions_void(&all, 200 * DL_DECISIONS) && !dl_decisions_void(&all, 2));
}

TEST(p7_without_a_decision_two_replicas_stop_and_say_the_way_out)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.replicas", "2");
    others_commit(&w, 1, "r1");
    w.put[0].n_bad = -1;
    join_run(&w);
    find_it_void(&w, 3);
    CHECK_INT(DILOCO_EPROTO, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("entry 1 needs the contribution of r1", diloco_error_text());
    CHECK_CONTAINS("diloco void", diloco_error_text());
    end_world(&w);
}

TEST(p7_no_decision_voids_if_committers_are_enough)
{
    world w;
    begin_voided(&w, 0);
    option(&w, "run.replicas", "3");
    join_run(&w);
    until(&w, DL_REQUEST_REJOIN); /* it has another base: perhaps this replica is wrong */
    CHECK(!w.request.rejoin.voided);
    rejoin(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK(strcmp(DL_VOIDED, w.said) != 0);
    end_world(&w);
}

TEST_MAIN(p7_f_committers_may_be_malicious_up_to_a_minority,
          p7_an_entry_of_a_damaged_contribution_is_void_when_no_snapshot_does_without_it,
          p7_so_is_one_of_a_contribution_that_is_not_there,
          p7_a_contribution_that_can_be_read_again_voids_nothing,
          p7_its_committer_alone_may_build_on_it_in_vain,
          p7_entry_is_accepted_with_one_more_committer_and_needs_a_snapshot,
          p7_replica_with_a_damaged_entry_rejoins_after_it,
          p7_with_two_replicas_one_committer_that_continues_is_enough,
          p7_one_committer_of_three_is_not_enough_for_a_damaged_entry,
          p7_generation_that_built_on_an_entry_does_not_find_it_void,
          p7_a_reader_finds_it_void_at_once_and_an_audit_without_collection_too,
          p7_with_two_replicas_an_operator_voids_an_unreadable_entry,
          p7_replica_that_read_a_voided_entry_rejoins_before_it,
          p7_two_decisions_are_both_remembered, p7_snapshot_of_a_void_entry_is_skipped,
          decisions_cover_forget_and_undo,
          p7_without_a_decision_two_replicas_stop_and_say_the_way_out,
          p7_no_decision_voids_if_committers_are_enough)
