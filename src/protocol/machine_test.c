/* machine_test.c - one replica up to the entry: begin, contribute, close, create (P5, P6, P9 to
 * P16). apply_test.c tests what follows once the entry is in the log. */
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

/* ---- announcing --------------------------------------------------------------------------- */

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

TEST(p25_contribution_collected_after_its_listing_ends_no_replica)
{
    world w;
    make_world(&w, 1);
    put(&w, 1, "r1", 0);
    join_run(&w);
    until(&w, DL_REQUEST_FETCH);
    w.failing = DILOCO_ENOENT;
    w.failing_kind = DL_REQUEST_FETCH;
    others_commit(&w, 1, "r1");
    next(&w, DL_REQUEST_READ);
    w.failing = DILOCO_OK;
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(2, w.control.entry);
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

TEST(a_failure_that_no_phase_expects_stops_the_replica_with_its_status)
{
    const dl_request_kind kinds[] = {DL_REQUEST_TRAIN, DL_REQUEST_CONTRIBUTE, DL_REQUEST_CREATE};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        world w;
        make_world(&w, 1);
        put(&w, 1, "r1", 0);
        w.failing = DILOCO_EFULL;
        w.failing_kind = kinds[i];
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
    w.failing = dl_fail(DILOCO_EIO, "the disk is gone");
    w.failing_kind = DL_REQUEST_CONTRIBUTE;
    step(&w);
    CHECK_STR("entry 0: contributing -> over; CONTRIBUTE io, then FAIL", moves[4]);
    end_world(&w);
}

TEST_MAIN(p9_claims_count_within_bounds_and_cuts_are_noted,
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
          p9_unawaited_replica_announces_itself_before_it_trains,
          p13_unawaited_replica_trains_from_the_others_next_due_point,
          p13_unawaited_replica_trains_after_patience_if_no_other_contributes,
          p9_awaited_replica_does_not_announce_itself, p9_announcements_without_effect_become_rarer,
          p9_no_announcement_for_an_entry_after_the_last, p9_reader_does_not_announce_itself,
          p9_next_entry_waits_for_an_announced_replica,
          p9_the_first_entry_waits_for_replicas_then_takes_min_replicas_at_start_timeout,
          p9_the_first_entry_closes_at_once_when_replicas_are_there,
          p11_the_deadline_runs_from_the_replicas_own_upload,
          p11_part_of_an_interval_gives_the_time_of_a_whole_one,
          p10_wait_waits_for_the_slow_as_long_as_their_hearts_beat,
          p10_wait_never_waits_for_the_silent,
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
          p20_replica_whose_contribution_was_counted_trains_on,
          p25_contribution_collected_after_its_listing_ends_no_replica,
          p20_stale_replica_drops_its_contribution_and_trains_from_the_newest,
          p20_replica_with_a_damaged_contribution_closes_the_entry_and_trains_on,
          p17_contribution_in_flight_of_an_earlier_generation_is_not_sent_twice,
          alg_33_last_heartbeat_of_a_dead_replica_slows_no_other,
          a_failure_that_no_phase_expects_stops_the_replica_with_its_status,
          trace_has_each_move_with_its_request_and_reply)
