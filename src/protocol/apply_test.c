/* apply_test.c - a machine and an entry that is in the log: P1, P5, P7, P13, P25. */
#include "machine_world.h"

/* ---- entries that are committed without us ------------------------------------------------ */

TEST(p13_a_late_replica_reads_the_entry_before_contributing_and_adopts_it)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    capture(&w); /* trained; meanwhile: */
    others_commit(&w, 1, "r1");
    CHECK_INT(2, until(&w, DL_REQUEST_CONTRIBUTE)->entry);
    CHECK(w.request.contribute.announce); /* entry 1 waits for r1 alone from now on */
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_LATE]);
    CHECK(w.how == DL_ADOPT_THETA && !w.counted);
    end_world(&w);
}

TEST(p13_position_jumps_to_the_due_point_of_the_missed_entry)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    capture(&w);
    others_commit(&w, 1, "r1");
    others_commit(&w, 2, "r1");
    others_commit(&w, 3, "r1");
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(20, w.pace.position);
    CHECK_INT(25, dl_pace_train_until(&w.pace));
    CHECK_INT(2, w.n_jumps); /* when it joined, and once for both that it had not captured */
    end_world(&w);
}

TEST(p13_keep_continues_from_the_replica_s_own_parameters)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.on_uncounted", "keep");
    resume_run(&w, 1, 5);
    capture(&w);
    others_commit(&w, 1, "r1");
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.asked[DL_REQUEST_SWAP]);
    CHECK_INT(0, w.n_adopted + w.n_jumps);
    CHECK_INT(10, w.pace.position);
    end_world(&w);
}

TEST(p13_keep_adopts_an_entry_that_counted_it)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.on_uncounted", "keep");
    put(&w, 1, "r1", 0);
    resume_run(&w, 1, 5);
    next(&w, DL_REQUEST_CREATE);
    until(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted && w.how == DL_ADOPT_MIX);
    end_world(&w);
}

TEST(p13_an_abort_in_the_replicas_absence_leaves_its_training_alone)
{
    world w;
    make_world(&w, 1);
    resume_run(&w, 1, 5);
    capture(&w);
    const dl_entry e = entry_by(&w, 1, "r1", false, NULL, 0);
    write_entry(&w, &e);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.n_adopted + w.n_jumps);
    CHECK_INT(10, w.pace.position);
    end_world(&w);
}

TEST(p13_entries_missed_at_the_runs_end_are_adopted_before_done)
{
    world w;
    make_world(&w, WORLD_ENTRIES - 1);
    join_run(&w);
    capture(&w);
    others_commit(&w, WORLD_ENTRIES - 1, "r1");
    next(&w, DL_REQUEST_DONE);
    CHECK(w.how == DL_ADOPT_THETA && dl_pace_done(&w.pace));
    CHECK_INT(0, w.asked[DL_REQUEST_CONTRIBUTE]);
    end_world(&w);
}

/* ---- P7: errors, and whose they are ------------------------------------------------------- */

TEST(p7_a_damaged_reading_of_an_entry_is_read_again_first)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    w.n_damaged_reads = 1;
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    end_world(&w);
}

TEST(p7_an_entry_that_stays_unreadable_is_void_and_changes_no_roster)
{
    world w;
    make_world(&w, 1);
    CHECK_OK(dl_buf_add(&w.log[1], "{}", 2));
    w.digest[2] = w.digest[1];
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_INT(0, w.noted[DL_NOTE_ABORT]);
    CHECK_INT(2, w.control.roster.n);
    CHECK_INT(2, w.control.entry);
    end_world(&w);
}

TEST(p7_an_entry_that_changes_at_each_reading_is_void)
{
    world w;
    make_world(&w, 1);
    CHECK_OK(dl_buf_add(&w.log[1], "{}", 2));
    w.digest[2] = w.digest[1];
    join_run(&w);
    for (int i = 0; i < 100 && w.request.kind != DL_REQUEST_TRAIN; i++) {
        w.log[1].data[0]++;
        step(&w);
    }
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_INT(2, w.control.entry);
    end_world(&w);
}

/* Anyone can change such bytes between two readers. Both accept the same next entry. */
TEST(p7_an_entry_after_an_unreadable_one_follows_it_whatever_its_bytes_are)
{
    const char *const junk[] = {"{}", "other junk", NULL}; /* NULL: a copy of an entry */
    for (int i = 0; i < 3; i++) {
        world w;
        make_world(&w, 1);
        dl_entry e = entry_by(&w, 2, "r1", false, NULL, 0);
        e.prev = dl_hash_bytes("", 0);
        w.digest[2] = e.base = e.result = w.digest[1];
        write_entry(&w, &e);
        const void *bytes = junk[i] ? junk[i] : (const void *)w.log[2].data;
        CHECK_OK(dl_buf_add(&w.log[1], bytes, junk[i] ? strlen(junk[i]) : w.log[2].len));
        join_run(&w);
        until(&w, DL_REQUEST_TRAIN);
        CHECK_INT(1, w.noted[DL_NOTE_VOID]);
        CHECK_INT(1, w.noted[DL_NOTE_ABORT]);
        CHECK_INT(3, w.control.entry);
        end_world(&w);
    }
}

/* Anyone can write a copy, also in a run whose entries are signed. */
TEST(p7_a_copy_of_another_entry_is_void_and_changes_no_roster)
{
    world w;
    make_world(&w, 1);
    const dl_entry e = entry_by(&w, 2, "r1", false, NULL, 0);
    write_entry(&w, &e);
    CHECK_OK(dl_buf_add(&w.log[1], w.log[2].data, w.log[2].len));
    dl_buf_clear(&w.log[2]);
    w.digest[2] = w.digest[1];
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_INT(2, w.control.roster.n);
    CHECK_INT(2, w.control.entry);
    end_world(&w);
}

/* Makes the text's own check match again: its last 45 bytes are ,"check":"<hex>"}\n. */
static void reseal(dl_buf *text)
{
    char hex[DL_HASH_HEX + 1];
    const size_t sealed = text->len - 3 - DL_HASH_HEX - strlen(",\"check\":\"");
    dl_hash_to_hex(hex, dl_hash_bytes(text->data, sealed));
    memcpy((char *)text->data + text->len - 3 - DL_HASH_HEX, hex, DL_HASH_HEX);
}

/* A reader that does not know the outer optimizer cannot judge scalars, so they decide nothing that
 * `prev` depends on. */
TEST(p7_an_entry_with_wrong_scalars_is_void_and_part_of_the_chain)
{
    world w;
    make_world(&w, 1);
    dl_entry e = entry_by(&w, 1, "r1", false, NULL, 0);
    write_entry(&w, &e);
    char *lr = strstr((char *)w.log[1].data, "\"scalars\":{\"lr\"");
    CHECK(lr);
    memcpy(lr + strlen("\"scalars\":{\""), "rl", 2);
    reseal(&w.log[1]);
    e = entry_by(&w, 2, "r1", false, NULL, 0);
    w.digest[2] = e.base = e.result = w.digest[1];
    write_entry(&w, &e);
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_INT(1, w.noted[DL_NOTE_ABORT]);
    CHECK_INT(3, w.control.entry);
    end_world(&w);
}

TEST(p26_with_a_single_committer_a_broken_chain_stops_the_reader)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    w.control.committer = generation_of("r1", DL_GENERATION_ANY);
    w.control.prev.bytes[0] ^= 1; /* the entry that was read before has been overwritten */
    join_run(&w);
    CHECK_INT(DILOCO_EDIFFERS, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("two committers", diloco_error_text());
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p26_with_a_single_committer_half_an_entry_is_waited_for)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    w.control.committer = generation_of("r1", DL_GENERATION_ANY);
    w.n_damaged_reads = 1;
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_WAIT);
    CHECK(a->wait.log_only && a->wait.until == w.now + DL_SECOND);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    end_world(&w);
}

TEST(an_entry_of_another_format_version_stops_the_reader)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    char *version = strstr((char *)w.log[1].data, "\"version\":1");
    CHECK(version != NULL);
    version[10] = '9';
    reseal(&w.log[1]);
    join_run(&w);
    CHECK_INT(DILOCO_EDIFFERS, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("version 9", diloco_error_text());
    end_world(&w);
}

TEST(p7_a_mismatching_result_is_read_again_then_disputed_and_void)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    const char *members[] = {"r1"};
    dl_entry forged = entry_by(&w, 1, "r1", true, members, 1);
    forged.result.bytes[0] ^= 1;
    write_entry(&w, &forged);
    w.digest[2] = w.digest[1]; /* a void entry changes nothing */
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(2, w.asked[DL_REQUEST_COMPUTE]);
    CHECK_INT(1, w.n_fresh);
    CHECK_INT(1, w.noted[DL_NOTE_DISPUTE]);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_INT(0, w.noted[DL_NOTE_COMMIT]);
    CHECK(!dl_roster_has(&w.control.roster, "r1", NULL)); /* no entry waits for its committer */
    CHECK_INT(1, w.control.n_aborts);
    put(&w, 2, "r1", 0);
    CHECK(dl_hash_equal(until(&w, DL_REQUEST_CREATE)->step.draft->base, w.digest[1]));
    end_world(&w);
}

TEST(p7_an_entry_that_counts_a_contribution_which_is_not_valid_is_void)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    w.put[0].n_bad = -1;
    w.put[0].why = "non-finite";
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_CONTAINS("not valid", w.said);
    CHECK_INT(0, w.asked[DL_REQUEST_COMPUTE]);
    end_world(&w);
}

TEST(fed_17_an_abort_that_empties_the_momentum_is_void_where_the_run_keeps_it)
{
    world w;
    make_world(&w, 1);
    w.config.plato_compat = true; /* of clients alone, and this run has no clients */
    dl_entry e = entry_by(&w, 1, "r1", false, NULL, 0);
    e.abort.emptied = true;
    e.result = dl_hash_bytes("emptied", 7);
    write_entry(&w, &e);
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    CHECK_CONTAINS("and this run keeps it", w.said);
    CHECK_INT(0, w.asked[DL_REQUEST_COMPUTE]);
    end_world(&w);
}

TEST(p7_a_contribution_that_the_store_damaged_voids_nothing)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    w.put[0].n_bad = -1;
    join_run(&w);
    CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX); /* a later snapshot does without it */
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p7_an_entry_that_counts_other_bytes_than_the_contribution_has_is_void)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    const char *members[] = {"r1"};
    dl_entry forged = entry_by(&w, 1, "r1", true, members, 1);
    forged.members[0].body.bytes[5] ^= 1;
    write_entry(&w, &forged);
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_CONTAINS("not valid", w.said);
    end_world(&w);
}

TEST(p7_a_step_that_is_not_finite_for_the_reader_is_disputed)
{
    world w;
    make_world(&w, 1);
    others_commit(&w, 1, "r1");
    w.numeric = true;
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_DISPUTE]);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

/* Writes an entry whose base is another state than ours. */
static void write_on_another_base(world *w, uint64_t number)
{
    dl_entry e = entry_by(w, number, "r1", false, NULL, 0);
    e.base.bytes[0] ^= 1;
    e.result = e.base;
    write_entry(w, &e);
}

TEST(p7_other_base_causes_one_rejoin_and_is_then_void)
{
    world w;
    make_world(&w, 3);
    write_on_another_base(&w, 3);
    join_run(&w);
    CHECK_INT(2, until(&w, DL_REQUEST_REJOIN)->entry);
    CHECK(w.pace.reading); /* a reading that fails leaves the state incomplete */
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    rejoin(&w); /* the snapshot agrees with us, so the entry is wrong */
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.asked[DL_REQUEST_REJOIN]);
    CHECK_INT(1, w.noted[DL_NOTE_VOID]);
    end_world(&w);
}

TEST(p7_reader_never_rejoins)
{
    world w;
    make_world(&w, 3);
    w.args.reader = true;
    write_on_another_base(&w, 3);
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.asked[DL_REQUEST_REJOIN]);
    CHECK_CONTAINS("base", w.said);
    end_world(&w);
}

/* ---- P25: collected contributions, and snapshots ------------------------------------------ */

TEST(p25_contributions_that_are_gone_mean_a_newer_snapshot_is_there)
{
    world w;
    make_world(&w, 3);
    others_commit(&w, 3, "r1");
    w.n_put = 0; /* collected */
    join_run(&w);
    CHECK(until(&w, DL_REQUEST_REJOIN)->entry == UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        rejoin(&w);
        until(&w, DL_REQUEST_REJOIN);
    }
    rejoin(&w); /* three rejoins found nothing newer: they are lost */
    CHECK_INT(DILOCO_ENOENT, until(&w, DL_REQUEST_FAIL)->fail.status);
    end_world(&w);
}

TEST(p25_a_reader_says_that_contributions_are_gone)
{
    world w;
    make_world(&w, 3);
    w.args.reader = true;
    others_commit(&w, 3, "r1");
    w.n_put = 0;
    join_run(&w);
    CHECK_INT(DILOCO_ENOENT, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("gone", diloco_error_text());
    end_world(&w);
}

/* Commits the open entry as the first to create it. */
static void commit_one(world *w)
{
    until(w, DL_REQUEST_TRAIN);
    put(w, w->control.entry, "r1", 0);
    next(w, DL_REQUEST_SWAP);
}

TEST(p25_a_snapshot_is_due_once_contributions_exceed_twice_its_size)
{
    world w;
    make_world(&w, 1);
    w.args.snapshot_bytes = 150; /* an entry brings 200 */
    w.train_s = 11;              /* a sixtieth of snapshot_every is 10 s */
    join_run(&w);
    commit_one(&w);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.asked[DL_REQUEST_SNAPSHOT]);
    commit_one(&w);
    CHECK_INT(3, next(&w, DL_REQUEST_SNAPSHOT)->entry);
    CHECK(!w.request.snapshot.final);
    commit_one(&w); /* it counts from the last one on */
    CHECK_INT(1, w.asked[DL_REQUEST_SNAPSHOT]);
    end_world(&w);
}

TEST(p25_a_small_model_is_not_written_more_often_than_sixty_times_a_period)
{
    world w;
    make_world(&w, 1);
    w.args.snapshot_bytes = 10;
    w.train_s = w.upload_s = 1;
    join_run(&w);
    for (int i = 0; i < 3; i++)
        commit_one(&w);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.asked[DL_REQUEST_SNAPSHOT]);
    end_world(&w);
}

TEST(p25_a_snapshot_is_due_after_snapshot_every)
{
    world w;
    make_world(&w, 1);
    w.train_s = 700;
    join_run(&w);
    commit_one(&w);
    CHECK_INT(2, next(&w, DL_REQUEST_SNAPSHOT)->entry);
    end_world(&w);
}

TEST(p25_a_snapshot_that_another_committer_names_is_as_good)
{
    world w;
    make_world(&w, 1);
    w.train_s = 400;
    join_run(&w);
    capture(&w);
    put(&w, 1, "r1", 0);
    const char *members[] = {"r1"};
    dl_entry e = entry_by(&w, 1, "r1", true, members, 1);
    CHECK(dl_roster_add(&e.roster, "r0", 0));
    e.snapshot = 1;
    write_entry(&w, &e);
    next(&w, DL_REQUEST_TRAIN);
    commit_one(&w); /* 800 s since the beginning, 400 s since that snapshot */
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.asked[DL_REQUEST_SNAPSHOT]);
    end_world(&w);
}

TEST(p25_replica_that_did_not_create_the_entry_writes_no_snapshot)
{
    world w;
    make_world(&w, 1);
    w.train_s = 700;
    put(&w, 1, "r1", 0);
    join_run(&w);
    dl_entry theirs = *until(&w, DL_REQUEST_CREATE)->step.draft;
    theirs.committer = generation_of("r1", 0);
    write_entry(&w, &theirs);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.asked[DL_REQUEST_SNAPSHOT]);
    end_world(&w);
}

TEST(p25_a_snapshot_that_fails_stops_nothing)
{
    world w;
    make_world(&w, 1);
    w.train_s = 700;
    w.failing.status = DILOCO_EFULL;
    w.failing.kind = DL_REQUEST_SNAPSHOT;
    join_run(&w);
    commit_one(&w);
    next(&w, DL_REQUEST_SNAPSHOT);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(15, dl_pace_train_until(&w.pace));
    end_world(&w);
}

TEST(the_last_entrys_creator_writes_a_final_snapshot_and_is_done)
{
    world w;
    make_world(&w, WORLD_ENTRIES - 1);
    join_run(&w);
    put(&w, WORLD_ENTRIES - 1, "r1", 0);
    CHECK(until(&w, DL_REQUEST_CREATE)->step.draft->last);
    CHECK(until(&w, DL_REQUEST_SNAPSHOT)->snapshot.final);
    CHECK_INT(WORLD_ENTRIES, w.request.entry);
    next(&w, DL_REQUEST_DONE);
    CHECK(w.control.last);
    CHECK_INT(1, w.n_jumps); /* when it joined */
    CHECK_INT(1, w.n_adopted);
    end_world(&w);
}

TEST_MAIN(p13_a_late_replica_reads_the_entry_before_contributing_and_adopts_it,
          p13_position_jumps_to_the_due_point_of_the_missed_entry,
          p13_keep_continues_from_the_replica_s_own_parameters,
          p13_keep_adopts_an_entry_that_counted_it,
          p13_an_abort_in_the_replicas_absence_leaves_its_training_alone,
          p13_entries_missed_at_the_runs_end_are_adopted_before_done,
          p7_a_damaged_reading_of_an_entry_is_read_again_first,
          p7_an_entry_that_stays_unreadable_is_void_and_changes_no_roster,
          p7_an_entry_that_changes_at_each_reading_is_void,
          p7_an_entry_after_an_unreadable_one_follows_it_whatever_its_bytes_are,
          p7_a_copy_of_another_entry_is_void_and_changes_no_roster,
          p7_an_entry_with_wrong_scalars_is_void_and_part_of_the_chain,
          p26_with_a_single_committer_a_broken_chain_stops_the_reader,
          p26_with_a_single_committer_half_an_entry_is_waited_for,
          an_entry_of_another_format_version_stops_the_reader,
          p7_a_mismatching_result_is_read_again_then_disputed_and_void,
          p7_an_entry_that_counts_a_contribution_which_is_not_valid_is_void,
          fed_17_an_abort_that_empties_the_momentum_is_void_where_the_run_keeps_it,
          p7_a_contribution_that_the_store_damaged_voids_nothing,
          p7_an_entry_that_counts_other_bytes_than_the_contribution_has_is_void,
          p7_a_step_that_is_not_finite_for_the_reader_is_disputed,
          p7_other_base_causes_one_rejoin_and_is_then_void, p7_reader_never_rejoins,
          p25_contributions_that_are_gone_mean_a_newer_snapshot_is_there,
          p25_a_reader_says_that_contributions_are_gone,
          p25_a_snapshot_is_due_once_contributions_exceed_twice_its_size,
          p25_a_small_model_is_not_written_more_often_than_sixty_times_a_period,
          p25_a_snapshot_is_due_after_snapshot_every,
          p25_a_snapshot_that_another_committer_names_is_as_good,
          p25_replica_that_did_not_create_the_entry_writes_no_snapshot,
          p25_a_snapshot_that_fails_stops_nothing,
          the_last_entrys_creator_writes_a_final_snapshot_and_is_done)
