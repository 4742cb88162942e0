/* machine_test.c - one replica up to the entry: begin, contribute, close, create (P5, P6, P9 to
 * P16). apply_test.c tests what follows once the entry is in the log, machine_announce_test.c
 * announcements, and machine_async_test.c asynchronous runs. */
#include "machine_world.h"

/* ---- begin ------------------------------------------------------------------------------ */

TEST(a_joiner_takes_the_shared_model_and_trains_to_the_next_due_point)
{
    world w;
    make_world(&w, 3);
    join_run(&w);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.n_jumps);
    CHECK_INT(15, w.pace.position);
    CHECK_INT(20, dl_pace_train_until(&w.pace));
    end_world(&w);
}

TEST(p16_a_resumed_replica_trains_on_from_where_it_was_saved)
{
    world w;
    make_world(&w, 3);
    resume_run(&w, 3, 18);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.n_jumps);
    CHECK_INT(18, w.pace.position);
    CHECK_INT(20, dl_pace_train_until(&w.pace));
    end_world(&w);
}

TEST(p16_a_replica_saved_at_the_due_point_contributes_without_training_again)
{
    world w;
    make_world(&w, 3);
    resume_run(&w, 3, 20);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(20, dl_pace_train_until(&w.pace)); /* a stop is due here */
    next(&w, DL_REQUEST_CONTRIBUTE);
    CHECK_INT(20, w.pace.position);
    CHECK_INT(0, w.n_jumps);
    end_world(&w);
}

TEST(p13_a_replica_saved_before_entries_it_missed_adopts_and_says_so)
{
    world w;
    make_world(&w, 3);
    w.digest[1] = w.digest[3];
    resume_run(&w, 1, 10);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.n_jumps);
    CHECK_INT(0, w.asked[DL_REQUEST_CONTRIBUTE]);
    CHECK_INT(15, w.pace.position);
    end_world(&w);
}

TEST(p3_saved_training_from_another_base_is_not_sent)
{
    for (int other = 0; other < 2; other++) {
        world w;
        make_world(&w, 3);
        dl_hash base = w.digest[3];
        base.bytes[7] ^= (unsigned char)other;
        resume_on(&w, 3, 20, base);
        until(&w, DL_REQUEST_TRAIN);
        CHECK_INT(other, w.n_jumps); /* takes theta, and repeats the training up to the due point */
        end_world(&w);
    }
}

TEST(p4_saved_state_ahead_of_the_log_is_refused)
{
    world w;
    make_world(&w, 3);
    resume_run(&w, 5, 27);
    CHECK_INT(DILOCO_EDIFFERS, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_CONTAINS("lost entries", diloco_error_text());
    end_world(&w);
}

static double lr_of_entry(void *user, uint64_t entry)
{
    (void)user;
    return 0.25 + (double)entry;
}

TEST(p2_the_learning_rate_of_the_first_entry_is_the_schedules)
{
    world w;
    make_world(&w, 0);
    w.args.lr = lr_of_entry;
    put(&w, 0, "r1", 0);
    join_run(&w);
    CHECK(w.control.lr == 0.25f);
    CHECK(until(&w, DL_REQUEST_CREATE)->step.draft->next.lr ==
          1.25f); /* and of the next, entry by entry */
    end_world(&w);
}

/* ---- contributing ----------------------------------------------------------------------- */

TEST(p6_a_replica_that_sees_a_later_generation_of_itself_stops)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    put(&w, 1, "r0", 1);
    CHECK_INT(DILOCO_EFENCED, until(&w, DL_REQUEST_FAIL)->fail.status);
    CHECK_INT(0, w.asked[DL_REQUEST_CREATE]);
    end_world(&w);
}

TEST(p15_a_contribution_of_a_former_generation_counts_for_the_new_one)
{
    world w;
    make_world(&w, 1);
    w.args.self = generation_of("r0", 4);
    w.taken = true;
    put(&w, 1, "r0", 3);
    put(&w, 1, "r1", 0);
    resume_run(&w, 1, 10);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK_INT(2, a->step.draft->n_members);
    CHECK_INT(3, a->step.draft->members[0].generation.number);
    until(&w, DL_REQUEST_TRAIN);
    CHECK(w.counted && w.how == DL_ADOPT_MIX);
    end_world(&w);
}

/* ---- collecting -------------------------------------------------------------------------- */

TEST(p7_a_contribution_with_one_bad_read_is_read_again_and_counts)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    put(&w, 1, "r1", 0)->n_bad = 1;
    CHECK_INT(2, until(&w, DL_REQUEST_CREATE)->step.draft->n_members);
    CHECK_INT(1, w.n_fresh);
    CHECK_INT(0, w.noted[DL_NOTE_REJECT]);
    end_world(&w);
}

TEST(p7_a_contribution_that_never_reads_well_is_rejected_and_not_waited_for)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    put(&w, 1, "r1", 0)->n_bad = -1;
    const dl_request *a = until(&w, DL_REQUEST_CREATE); /* although its heartbeat continues */
    CHECK_INT(1, w.noted[DL_NOTE_REJECT]);
    CHECK_STR("checksum", w.said);
    CHECK(!a->step.draft->commit);
    CHECK_STR("silent: r1", a->step.draft->abort.reason);
    end_world(&w);
}

TEST(p9_a_contribution_from_outside_the_roster_counts)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    put(&w, 1, "r1", 0);
    put(&w, 1, "guest", 0);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK_INT(3, a->step.draft->n_members);
    CHECK(dl_roster_has(&a->step.draft->roster, "guest", NULL));
    end_world(&w);
}

TEST(p9_claims_count_within_bounds_and_cuts_are_noted)
{
    world w;
    make_world(&w, 1);
    w.args.weighting = dl_weighting_find("num_samples");
    join_run(&w);
    put(&w, 1, "r1", 0)->samples = UINT64_MAX;
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK_INT(2, a->step.draft->n_members);
    CHECK_NEAR(16. / 17, a->step.draft->members[1].weight, 1e-6);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_CUT]);
    end_world(&w);
}

static uint64_t square(const dl_member_facts *member)
{
    return member->samples * member->samples;
}

/* The square of a claim that is within bounds is not. */
TEST(p9_a_weight_counts_within_bounds)
{
    static const dl_weighting rule = {.name = "square", .raw = square};
    world w;
    make_world(&w, 1);
    w.args.weighting = &rule;
    join_run(&w);
    put(&w, 1, "r1", 0)->samples *= 10;
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK_NEAR(16. / 17, a->step.draft->members[1].weight, 1e-6);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_CUT]);
    end_world(&w);
}

/* ---- closing ---------------------------------------------------------------------------- */

TEST(p9_the_first_entry_waits_for_replicas_then_takes_min_replicas_at_start_timeout)
{
    world w;
    make_world(&w, 0);
    option(&w, "run.start_timeout", "60");
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK(w.now >= 60 * DL_SECOND && w.now <= 61 * DL_SECOND);
    CHECK(a->step.draft->commit);
    CHECK_INT(1, a->step.draft->n_members);
    CHECK_INT(0, w.asked[DL_REQUEST_WATCH]); /* no replica can be silent yet */
    end_world(&w);
}

TEST(p9_the_first_entry_closes_at_once_when_replicas_are_there)
{
    world w;
    make_world(&w, 0);
    put(&w, 0, "r1", 0);
    join_run(&w);
    CHECK_INT(2, until(&w, DL_REQUEST_CREATE)->step.draft->n_members);
    CHECK_INT(0, w.asked[DL_REQUEST_WAIT]);
    end_world(&w);
}

TEST(p11_the_deadline_runs_from_the_replicas_own_upload)
{
    world w;
    make_world(&w, 1);
    w.train_s = 500;
    w.upload_s = 40;
    join_run(&w);
    until(&w, DL_REQUEST_WATCH);
    CHECK_INT(500 + 40 + 100, w.now / DL_SECOND);
    CHECK_NEAR(100, w.deadline_s, 1e-9);
    end_world(&w);
}

TEST(p11_part_of_an_interval_gives_the_time_of_a_whole_one)
{
    world w;
    make_world(&w, 3);
    option(&w, "run.deadline", "0"); /* derived from measurements */
    w.train_s = 40;
    w.upload_s = 1;
    resume_run(&w, 3, 18); /* 2 of 5 steps */
    until(&w, DL_REQUEST_LIST);
    CHECK_NEAR(5.0 / 2 * 40 + 4, w.deadline_s, 1e-6);
    end_world(&w);
}

TEST(p10_wait_waits_for_the_slow_as_long_as_their_hearts_beat)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    while (w.now < 5000 * DL_SECOND)
        step(&w);
    CHECK_INT(0, w.asked[DL_REQUEST_CREATE]);
    put(&w, 1, "r1", 0); /* at last */
    CHECK_INT(2, until(&w, DL_REQUEST_CREATE)->step.draft->n_members);
    end_world(&w);
}

TEST(p10_wait_never_waits_for_the_silent)
{
    world w;
    make_world(&w, 1);
    w.beating = " r0 ";
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK(!a->step.draft->commit && a->step.draft->n_members == 1);
    CHECK_INT(1, a->step.draft->roster.n);
    CHECK_INT(1, w.noted[DL_NOTE_SILENT]);
    CHECK(w.now < (2 + 100 + 30 + 1) * DL_SECOND);
    end_world(&w);
}

TEST(p11_only_replicas_that_have_not_contributed_are_watched)
{
    world w;
    make_world(&w, 1);
    join_run(&w);
    const dl_watch_request *watch = &until(&w, DL_REQUEST_WATCH)->watch;
    CHECK_INT(2, watch->roster->n);
    CHECK_STR("r0", watch->roster->names[0]);
    CHECK(watch->present[0] && !watch->present[1]);
    end_world(&w);
}

TEST(p10_commit_partial_commits_with_a_quorum_at_the_deadline)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.on_missing", "commit_partial"); /* quorum 0.5 of r0, r1 */
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK(a->step.draft->commit && a->step.draft->n_members == 1);
    CHECK_INT(2, a->step.draft->roster.n); /* P9: r1 is waited for once more */
    CHECK_INT(102, w.now / DL_SECOND);
    end_world(&w);
}

TEST(p12_commit_partial_without_a_quorum_aborts)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.on_missing", "commit_partial");
    option(&w, "run.quorum", "0.9");
    join_run(&w);
    CHECK(!until(&w, DL_REQUEST_CREATE)->step.draft->commit);
    end_world(&w);
}

TEST(p10_an_abort_keeps_local_training_and_doubles_the_next_deadline)
{
    world w;
    make_world(&w, 1);
    option(&w, "run.on_missing", "abort");
    resume_run(&w, 1, 5);
    until(&w, DL_REQUEST_CREATE);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.n_adopted + w.n_jumps);
    CHECK_INT(10, w.pace.position);
    CHECK_INT(15, dl_pace_train_until(&w.pace));
    next(&w, DL_REQUEST_CREATE);
    CHECK_NEAR(200, w.deadline_s, 1e-9);
    end_world(&w);
}

/* ---- creating --------------------------------------------------------------------------- */

TEST(p4_a_draft_continues_the_chain)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    const dl_entry *d = until(&w, DL_REQUEST_CREATE)->step.draft;
    CHECK_INT(1, d->entry);
    CHECK_INT(10, d->position);
    CHECK(dl_hash_equal(d->prev, w.control.prev) && dl_hash_equal(d->base, w.digest[1]));
    CHECK(dl_hash_equal(d->result, result_of(d)));
    CHECK(d->members[0].weight == 0.5f && d->members[1].weight == 0.5f);
    CHECK(d->next.lr == (float)w.config.outer_lr && !d->last);
    end_world(&w);
}

TEST(b2_a_step_that_is_not_finite_becomes_an_abort)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    w.numeric = true;
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK(!a->step.draft->commit && a->step.draft->n_members == 2);
    CHECK_CONTAINS("inf", a->step.draft->abort.reason);
    CHECK(dl_hash_equal(a->step.draft->result, a->step.draft->base));
    end_world(&w);
}

TEST(p26_a_store_that_does_not_give_an_entry_back_cannot_carry_the_run)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    w.lossy = true;
    join_run(&w);
    CHECK_INT(DILOCO_EREFUSED, until(&w, DL_REQUEST_FAIL)->fail.status);
    end_world(&w);
}

TEST(p26_replica_waits_for_the_single_committer)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    w.control.committer = generation_of("r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    until(&w, DL_REQUEST_WAIT);
    CHECK_INT(0,
              w.asked[DL_REQUEST_COMPUTE] + w.asked[DL_REQUEST_CREATE] + w.asked[DL_REQUEST_WATCH]);
    end_world(&w);
}

TEST(p26_other_generation_decides_only_if_the_log_names_none)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    w.control.committer = generation_of("r0", 7);
    join_run(&w);
    until(&w, DL_REQUEST_WAIT);
    until(&w, DL_REQUEST_WAIT);
    CHECK_INT(0, w.asked[DL_REQUEST_CREATE]);
    end_world(&w);
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    w.control.committer = generation_of("r0", DL_GENERATION_ANY);
    join_run(&w);
    CHECK(until(&w, DL_REQUEST_CREATE)->step.draft->commit);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.control.committer.number); /* from here on only this generation */
    end_world(&w);
}

TEST(p26_restarted_single_committer_takes_over)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    w.control.committer = generation_of("r0", 7);
    w.args.formers =
        (dl_former_generations){.at = {5, 7, 9}, .n = 3}; /* 9 ended before it took over */
    join_run(&w);
    const dl_request *a = until(&w, DL_REQUEST_CREATE);
    CHECK(a->step.draft->abort.takeover && !a->step.draft->commit);
    CHECK_STR("r0.0000 takes over from r0", a->step.draft->abort.reason);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.control.committer.number);
    end_world(&w);
}

/* It follows the contribution, since creating the entry would show whether it exists. */
TEST(p5_complete_entry_is_created_without_a_look_at_the_log)
{
    for (int missing = 0; missing < 2; missing++) {
        world w;
        make_world(&w, 1);
        if (!missing) put(&w, 1, "r1", 0);
        join_run(&w);
        until(&w, DL_REQUEST_CONTRIBUTE);
        const unsigned n_read = w.asked[DL_REQUEST_READ];
        until(&w, missing ? DL_REQUEST_WAIT : DL_REQUEST_CREATE);
        CHECK_INT(n_read + (unsigned)missing, w.asked[DL_REQUEST_READ]);
        end_world(&w);
    }
}

TEST(p5_losing_the_race_with_the_same_members_costs_no_second_computation)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    dl_entry theirs = *until(&w, DL_REQUEST_CREATE)->step.draft;
    theirs.committer = generation_of("r1", 0);
    write_entry(&w, &theirs);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.asked[DL_REQUEST_COMPUTE]);
    CHECK(w.counted && w.how == DL_ADOPT_MIX);
    CHECK_INT(1, w.asked[DL_REQUEST_SWAP]);
    CHECK_INT(2, w.control.entry);
    end_world(&w);
}

TEST(p5_losing_the_race_with_other_members_computes_the_winner_s_result)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_CREATE);
    const char *members[] = {"r1"};
    const dl_entry theirs = entry_by(&w, 1, "r1", true, members, 1);
    write_entry(&w, &theirs);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(2, w.asked[DL_REQUEST_COMPUTE]);
    CHECK_INT(0, w.noted[DL_NOTE_DISPUTE]);
    CHECK(!w.counted && w.how == DL_ADOPT_THETA);
    end_world(&w);
}

TEST(p5_losing_the_race_to_an_abort_is_an_abort)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_CREATE);
    const dl_entry theirs = entry_by(&w, 1, "r1", false, NULL, 0);
    write_entry(&w, &theirs);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_ABORT]);
    CHECK_INT(0, w.noted[DL_NOTE_COMMIT]);
    CHECK(dl_hash_equal(w.digest[2], w.digest[1]));
    end_world(&w);
}

TEST(p25_contribution_collected_after_its_listing_ends_no_replica)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_FETCH);
    w.failing.status = DILOCO_ENOENT;
    w.failing.kind = DL_REQUEST_FETCH;
    others_commit(&w, 1, "r1");
    next(&w, DL_REQUEST_READ);
    w.failing.status = DILOCO_OK;
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(2, w.control.entry);
    end_world(&w);
}

TEST(a_failure_that_no_phase_expects_stops_the_replica_with_its_status)
{
    const dl_request_kind kinds[] = {DL_REQUEST_TRAIN, DL_REQUEST_CONTRIBUTE, DL_REQUEST_CREATE};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        world w;
        make_world(&w, 1);
        put(&w, 1, "r1", 0);
        w.failing.status = DILOCO_EFULL;
        w.failing.kind = kinds[i];
        join_run(&w);
        CHECK_INT(DILOCO_EFULL, until(&w, DL_REQUEST_FAIL)->fail.status);
        end_world(&w);
    }
}

/* ---- the trace ---- */

static char moves[64][DL_TRANSITION_TEXT];
static size_t n_moves;

static void keep_move(void *user, const dl_transition *move)
{
    (void)user;
    CHECK(n_moves < sizeof moves / sizeof *moves);
    dl_transition_text(moves[n_moves++], sizeof *moves, move);
}

static bool has_moved(const char *text)
{
    for (size_t i = 0; i < n_moves; i++)
        if (!strcmp(moves[i], text)) return true;
    return false;
}

TEST(trace_has_each_move_with_its_request_and_reply)
{
    world w;
    n_moves = 0;
    make_world(&w, 0);
    w.args.listener.trace = keep_move;
    join_run(&w);
    CHECK_STR("entry 0: start -> catching up; REJOIN done, then READ", moves[0]);
    until(&w, DL_REQUEST_CONTRIBUTE);
    CHECK(has_moved("entry 0: catching up -> training; READ absent, then TRAIN"));
    CHECK(has_moved("entry 0: late check -> contributing; READ absent, then CONTRIBUTE"));
    CHECK_INT(4, n_moves);
    w.failing.status = dl_fail(DILOCO_EIO, "the disk is gone");
    w.failing.kind = DL_REQUEST_CONTRIBUTE;
    step(&w);
    CHECK_STR("entry 0: contributing -> over; CONTRIBUTE io, then FAIL", moves[4]);
    end_world(&w);
}

TEST_MAIN(p9_claims_count_within_bounds_and_cuts_are_noted, p9_a_weight_counts_within_bounds,
          a_joiner_takes_the_shared_model_and_trains_to_the_next_due_point,
          p16_a_resumed_replica_trains_on_from_where_it_was_saved,
          p16_a_replica_saved_at_the_due_point_contributes_without_training_again,
          p13_a_replica_saved_before_entries_it_missed_adopts_and_says_so,
          p3_saved_training_from_another_base_is_not_sent,
          p4_saved_state_ahead_of_the_log_is_refused,
          p2_the_learning_rate_of_the_first_entry_is_the_schedules,
          p6_a_replica_that_sees_a_later_generation_of_itself_stops,
          p15_a_contribution_of_a_former_generation_counts_for_the_new_one,
          p7_a_contribution_with_one_bad_read_is_read_again_and_counts,
          p7_a_contribution_that_never_reads_well_is_rejected_and_not_waited_for,
          p9_a_contribution_from_outside_the_roster_counts,
          p9_the_first_entry_waits_for_replicas_then_takes_min_replicas_at_start_timeout,
          p9_the_first_entry_closes_at_once_when_replicas_are_there,
          p11_the_deadline_runs_from_the_replicas_own_upload,
          p11_part_of_an_interval_gives_the_time_of_a_whole_one,
          p10_wait_waits_for_the_slow_as_long_as_their_hearts_beat,
          p10_wait_never_waits_for_the_silent,
          p11_only_replicas_that_have_not_contributed_are_watched,
          p10_commit_partial_commits_with_a_quorum_at_the_deadline,
          p12_commit_partial_without_a_quorum_aborts,
          p10_an_abort_keeps_local_training_and_doubles_the_next_deadline,
          p4_a_draft_continues_the_chain, b2_a_step_that_is_not_finite_becomes_an_abort,
          p26_a_store_that_does_not_give_an_entry_back_cannot_carry_the_run,
          p26_replica_waits_for_the_single_committer,
          p26_other_generation_decides_only_if_the_log_names_none,
          p26_restarted_single_committer_takes_over,
          p5_complete_entry_is_created_without_a_look_at_the_log,
          p5_losing_the_race_with_the_same_members_costs_no_second_computation,
          p5_losing_the_race_with_other_members_computes_the_winner_s_result,
          p5_losing_the_race_to_an_abort_is_an_abort,
          p25_contribution_collected_after_its_listing_ends_no_replica,
          a_failure_that_no_phase_expects_stops_the_replica_with_its_status,
          trace_has_each_move_with_its_request_and_reply)
