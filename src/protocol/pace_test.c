/* pace_test.c - a replica's stops at each position, and the effect of the log on them: the rules of
 * pace.h one by one, without a machine, threads or tensors. */
#include "protocol/pace.h"

#include "check.h"

enum { ENTRIES = 12 };

typedef struct scene {
    dl_pace pace;
    dl_arena arena;
    dl_config config;
    dl_pace_capture captures[DL_PACE_MAX_CAPTURES];
    dl_pace_fragment fragments[8];
} scene;

/* Makes a replica that is up to date at the beginning of a run. */
static void begin(scene *s, dl_schedule schedule, const char *on_uncounted)
{
    dl_arena measure = {0};
    memset(s, 0, sizeof *s);
    dl_config_init(&s->config);
    CHECK_OK(dl_config_set(&s->config, "run.on_uncounted", on_uncounted, "test"));
    dl_pace_layout(&s->pace, &measure, &schedule);
    CHECK_OK(dl_arena_init(&s->arena, measure.used));
    dl_pace_layout(&s->pace, &s->arena, &schedule);
    dl_pace_begin(&s->pace, &s->config, ENTRIES, 0);
    CHECK_INT(DL_STOP_WAIT, dl_pace_next(&s->pace).kind); /* nothing before the log is read */
    dl_pace_caught_up(&s->pace);
    CHECK_INT(DL_STOP_JUMP, dl_pace_next(&s->pace).kind);
    dl_pace_jumped(&s->pace);
}

static void end(scene *s)
{
    dl_arena_deinit(&s->arena);
}

/* H = 100, two fragments, tau = 60: 0 at 100, 1 at 150; entry 0 is adopted at 160. */
static const dl_schedule overlapped = {.interval = 100, .n_fragments = 2, .delay = 60};
static const dl_schedule vanilla = {.interval = 5, .n_fragments = 1};

static void check_stop(const scene *s, dl_stop_kind kind, uint64_t entry)
{
    const dl_stop stop = dl_pace_next(&s->pace);
    CHECK_INT(kind, stop.kind);
    if (kind == DL_STOP_CAPTURE || kind == DL_STOP_ADOPT) CHECK_INT(entry, stop.entry);
}

/* Trains to the next stop, which can be done. */
static void train_to(scene *s, uint64_t position)
{
    CHECK_INT(position, dl_pace_train_until(&s->pace));
    s->pace.position = position;
}

static const dl_pace_capture *capture_of(dl_pace *pace, uint32_t fragment, bool awaited)
{
    const dl_pace_capture due = dl_pace_due_capture(pace, fragment, awaited);
    dl_pace_captured(pace, &due);
    return dl_pace_in_flight(pace, due.entry);
}

static const dl_pace_capture *capture(scene *s, uint64_t entry)
{
    check_stop(s, DL_STOP_CAPTURE, entry);
    return capture_of(&s->pace, (uint32_t)(entry % s->pace.schedule.n_fragments), true);
}

static void apply(scene *s, uint64_t entry, bool commit, bool counted)
{
    dl_pace_apply(&s->pace, entry, (uint32_t)(entry % s->pace.schedule.n_fragments), commit,
                  counted);
}

static dl_adoption adopt(scene *s, uint64_t entry)
{
    check_stop(s, DL_STOP_ADOPT, entry);
    CHECK(dl_pace_ready(&s->pace, dl_pace_next(&s->pace)));
    const dl_pace_capture *t = dl_pace_in_flight(&s->pace, entry);
    const dl_adoption how = dl_pace_adoption(&s->pace, t);
    dl_pace_adopted(&s->pace, t, how);
    return how;
}

/* ---- the usual sequence ----------------------------------------------------------------- */

TEST(without_overlap_a_due_point_is_a_capture_and_then_an_adoption_that_waits)
{
    scene s;
    begin(&s, vanilla, "adopt");
    train_to(&s, 5);
    capture(&s, 0);
    check_stop(&s, DL_STOP_ADOPT, 0);
    CHECK(!dl_pace_ready(&s.pace, dl_pace_next(&s.pace)));
    CHECK_INT(5, dl_pace_train_until(&s.pace)); /* no step before that */
    apply(&s, 0, true, true);
    CHECK_INT(DL_ADOPT_MIX, adopt(&s, 0));
    check_stop(&s, DL_STOP_NONE, 0);
    CHECK_INT(10, dl_pace_train_until(&s.pace));
    CHECK_INT(5, s.pace.fragments[0].since);
    end(&s);
}

TEST(with_overlap_training_continues_between_capture_and_adoption)
{
    scene s;
    begin(&s, overlapped, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    train_to(&s, 150);
    capture(&s, 1); /* two in flight: L = 2 */
    CHECK(dl_pace_in_flight(&s.pace, 0) && dl_pace_in_flight(&s.pace, 1) &&
          !dl_pace_in_flight(&s.pace, 2));
    train_to(&s, 160);
    CHECK(!dl_pace_ready(&s.pace, dl_pace_next(&s.pace)));
    apply(&s, 0, true, true);
    CHECK_INT(DL_ADOPT_MIX, adopt(&s, 0));
    CHECK_INT(160, s.pace.fragments[0].since);
    CHECK_INT(0, s.pace.fragments[1].since);
    CHECK(!dl_pace_in_flight(&s.pace, 0));
    train_to(&s, 200);
    end(&s);
}

TEST(alg_19_with_an_own_overlap_all_is_taken_as_ever_and_adopted_before)
{
    scene s;
    dl_schedule own = overlapped;
    own.early = 50;
    begin(&s, own, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    train_to(&s, 110);
    CHECK(!dl_pace_ready(&s.pace, dl_pace_next(&s.pace)));
    apply(&s, 0, true, true);
    CHECK_INT(DL_ADOPT_MIX, adopt(&s, 0));
    train_to(&s, 150);
    capture(&s, 1);
    /* no early adoption: it waits, and a resume does not repeat the capture */
    s.pace.schedule.early = 60;
    check_stop(&s, DL_STOP_ADOPT, 1);
    dl_pace_saved saved = {.captures = s.captures, .fragments = s.fragments};
    CHECK(!dl_pace_save(&s.pace, &saved));
    CHECK_INT(2, saved.n_captured);
    apply(&s, 1, true, true);
    CHECK_INT(DL_ADOPT_MIX, adopt(&s, 1));
    train_to(&s, 200);
    end(&s);
}

TEST(an_entry_that_is_decided_early_is_adopted_at_its_scheduled_step)
{
    scene s;
    begin(&s, overlapped, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    apply(&s, 0, true, true);
    check_stop(&s, DL_STOP_NONE, 0);
    train_to(&s, 150);
    end(&s);
}

/* docs/architecture.md section 2: first the due fragment is captured, then the due entry is
 * adopted. */
TEST(at_one_position_a_capture_comes_before_an_adoption)
{
    const dl_schedule tie = {.interval = 100, .n_fragments = 2, .delay = 50};
    scene s;
    begin(&s, tie, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    apply(&s, 0, true, true);
    train_to(&s, 150);
    capture(&s, 1);
    adopt(&s, 0);
    end(&s);
}

TEST(fragments_that_are_due_together_are_all_captured_before_one_is_adopted)
{
    const dl_schedule two_a_step = {.interval = 2, .n_fragments = 4};
    scene s;
    begin(&s, two_a_step, "adopt");
    train_to(&s, 2);
    capture(&s, 0);
    capture(&s, 1);
    apply(&s, 0, true, true);
    adopt(&s, 0);
    check_stop(&s, DL_STOP_ADOPT, 1);
    CHECK(!dl_pace_ready(&s.pace, dl_pace_next(&s.pace)));
    end(&s);
}

TEST(last_due_point_ends_training_and_adopts_entries_in_flight)
{
    scene s;
    begin(&s, overlapped, "adopt");
    for (uint64_t e = 0; e < ENTRIES; e++) {
        while (dl_pace_next(&s.pace).kind == DL_STOP_NONE)
            s.pace.position = dl_pace_train_until(&s.pace);
        while (dl_pace_next(&s.pace).kind == DL_STOP_ADOPT)
            adopt(&s, dl_pace_next(&s.pace).entry);
        while (dl_pace_next(&s.pace).kind == DL_STOP_NONE)
            s.pace.position = dl_pace_train_until(&s.pace);
        capture(&s, e);
        apply(&s, e, true, true);
    }
    CHECK_INT(dl_schedule_end(&overlapped, ENTRIES), s.pace.position);
    CHECK(!dl_pace_done(&s.pace));
    adopt(&s, ENTRIES - 2);
    adopt(&s, ENTRIES - 1); /* 60 steps early */
    CHECK(dl_pace_done(&s.pace));
    check_stop(&s, DL_STOP_NONE, 0);
    CHECK(dl_pace_train_until(&s.pace) == UINT64_MAX);
    end(&s);
}

/* ---- the effect of an entry ---------------------------------------------------------------- */

static dl_adoption adoption(const char *on_uncounted, bool commit, bool counted)
{
    scene s;
    begin(&s, vanilla, on_uncounted);
    train_to(&s, 5);
    capture(&s, 0);
    apply(&s, 0, commit, counted);
    const dl_adoption how = adopt(&s, 0);
    CHECK_INT(how == DL_ADOPT_NOTHING ? 0 : 5, s.pace.fragments[0].since);
    end(&s);
    return how;
}

TEST(adoption_follows_from_the_counted_members)
{
    CHECK_INT(DL_ADOPT_MIX, adoption("adopt", true, true));
    CHECK_INT(DL_ADOPT_THETA, adoption("adopt", true, false)); /* P13: whatever local_mix */
    CHECK_INT(DL_ADOPT_NOTHING, adoption("adopt", false, false));
    CHECK_INT(DL_ADOPT_MIX, adoption("keep", true, true));
    /* continues to train from its own */
    CHECK_INT(DL_ADOPT_NOTHING, adoption("keep", true, false));
    CHECK_INT(DL_ADOPT_NOTHING, adoption("keep", false, false));
}

/* Entries that are committed before their due point: at position 3 the log is at 4. */
static void pass_over(scene *s, const char *on_uncounted, bool commit)
{
    begin(s, vanilla, on_uncounted);
    s->pace.position = 3;
    dl_pace_fall_behind(&s->pace);
    check_stop(s, DL_STOP_WAIT, 0);
    CHECK(!dl_pace_ready(&s->pace, dl_pace_next(&s->pace)));
    for (uint64_t e = 0; e < 4; e++)
        apply(s, e, commit, false);
    dl_pace_caught_up(&s->pace);
    check_stop(s, DL_STOP_JUMP, 0);
}

TEST(p13_skipped_replica_jumps_to_the_last_due_point_and_takes_theta)
{
    scene s;
    pass_over(&s, "adopt", true);
    CHECK(s.pace.fragments[0].behind);
    dl_pace_jumped(&s.pace);
    CHECK_INT(20, s.pace.position);
    CHECK_INT(20, s.pace.fragments[0].since);
    CHECK(!s.pace.fragments[0].behind);
    train_to(&s, 25);
    capture(&s, 4);
    end(&s);
}

TEST(p13_skipped_replica_with_keep_jumps_without_theta)
{
    scene s;
    pass_over(&s, "keep", true);
    CHECK(!s.pace.fragments[0].behind);
    dl_pace_jumped(&s.pace);
    CHECK_INT(20, s.pace.position);
    CHECK_INT(0, s.pace.fragments[0].since);
    end(&s);
}

TEST(p13_aborts_move_the_position_and_nothing_else)
{
    scene s;
    pass_over(&s, "adopt", false);
    CHECK(!s.pace.fragments[0].behind);
    dl_pace_jumped(&s.pace);
    CHECK_INT(20, s.pace.position);
    end(&s);
}

TEST(p13_entries_in_flight_are_adopted_before_a_jump)
{
    scene s;
    begin(&s, overlapped, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    s.pace.position = 120;
    dl_pace_fall_behind(&s.pace);
    apply(&s, 0, true, true);
    apply(&s, 1, true, false); /* captured by the others at 150 */
    dl_pace_caught_up(&s.pace);
    CHECK_INT(DL_ADOPT_MIX, adopt(&s, 0)); /* 40 steps before its time */
    check_stop(&s, DL_STOP_JUMP, 0);
    CHECK(!s.pace.fragments[0].behind && s.pace.fragments[1].behind);
    dl_pace_jumped(&s.pace);
    CHECK_INT(150, s.pace.position);
    CHECK_INT(120, s.pace.fragments[0].since);
    CHECK_INT(150, s.pace.fragments[1].since);
    train_to(&s, 200);
    capture(&s, 2);
    end(&s);
}

TEST(entry_that_counts_an_earlier_generation_causes_a_jump_with_keep_too)
{
    scene s;
    begin(&s, vanilla, "keep");
    apply(&s, 0, true, true); /* not captured by this generation */
    check_stop(&s, DL_STOP_JUMP, 0);
    CHECK(s.pace.fragments[0].behind);
    end(&s);
}

TEST(an_entry_that_is_read_again_changes_nothing)
{
    scene s;
    begin(&s, vanilla, "adopt");
    train_to(&s, 5);
    capture(&s, 0);
    apply(&s, 0, true, true);
    apply(&s, 0, false, false);
    CHECK_INT(DL_ADOPT_MIX, adopt(&s, 0));
    end(&s);
}

/* ---- joining replicas -------------------------------------------------------------------- */

TEST(p13_aligned_replica_adopts_entries_in_flight_and_jumps_to_the_open_due_point)
{
    scene s;
    begin(&s, overlapped, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    apply(&s, 0, true, false);
    dl_pace_fall_behind(&s.pace);
    check_stop(&s, DL_STOP_WAIT, 0);
    dl_pace_align(&s.pace, 1);
    dl_pace_caught_up(&s.pace);
    check_stop(&s, DL_STOP_ADOPT, 0);
    adopt(&s, 0);
    check_stop(&s, DL_STOP_JUMP, 0);
    dl_pace_jumped(&s.pace);
    CHECK_INT(150, s.pace.position);
    check_stop(&s, DL_STOP_CAPTURE, 1);
    end(&s);
}

TEST(p13_restart_forgets_the_due_point_to_jump_to)
{
    scene s;
    begin(&s, vanilla, "adopt");
    dl_pace_fall_behind(&s.pace);
    dl_pace_align(&s.pace, 0);
    dl_pace_restart(&s.pace);
    dl_pace_caught_up(&s.pace);
    check_stop(&s, DL_STOP_JUMP, 0);
    dl_pace_jumped(&s.pace);
    CHECK_INT(0, s.pace.position);
    end(&s);
}

TEST(p14_a_joiner_is_mute_until_it_has_H_minus_tau_steps_unless_an_entry_waits_for_it)
{
    scene s;
    begin(&s, overlapped, "adopt");
    apply(&s, 0, true, false);
    apply(&s, 1, true, false);
    apply(&s, 2, true, false);
    dl_pace_jumped(&s.pace);
    CHECK_INT(200, s.pace.position);
    train_to(&s, 250);
    CHECK(!capture_of(&s.pace, 1, false)->mute); /* 50 steps on it: more than 40 */
    apply(&s, 3, true, false);
    train_to(&s, 300);
    CHECK(!capture_of(&s.pace, 0, false)->mute);
    end(&s);

    const dl_schedule short_tau = {.interval = 100, .n_fragments = 2, .delay = 1};
    begin(&s, short_tau, "adopt");
    for (uint64_t e = 0; e < 3; e++)
        apply(&s, e, true, false);
    dl_pace_jumped(&s.pace);
    train_to(&s, 250);
    dl_pace awaited = s.pace; /* the same replica, if the entry waits for it by name */
    CHECK(!capture_of(&awaited, 1, true)->mute);
    CHECK(capture_of(&s.pace, 1, false)->mute); /* 50 of 99 */
    train_to(&s, 251);
    apply(&s, 3, true, false);
    CHECK_INT(DL_ADOPT_THETA, adopt(&s, 3));
    train_to(&s, 300);
    CHECK(!capture_of(&s.pace, 0, false)->mute);
    end(&s);
}

TEST(p14_joining_replica_knows_its_first_whole_contribution)
{
    scene s;
    const dl_schedule short_tau = {.interval = 100, .n_fragments = 2, .delay = 1};
    begin(&s, short_tau, "adopt");
    for (uint64_t e = 0; e < 3; e++)
        apply(&s, e, true, false);
    for (int jumped = 0; jumped < 2; jumped++) { /* it will begin at 200 */
        CHECK(!dl_pace_will_be_whole(&s.pace, 3, 1));
        CHECK(dl_pace_will_be_whole(&s.pace, 4, 0));
        CHECK(dl_pace_will_be_whole(&s.pace, 5, 1));
        if (!jumped) dl_pace_jumped(&s.pace);
    }
    end(&s);
}

TEST(p14_awaited_replica_is_never_mute)
{
    scene s;
    begin(&s, overlapped, "adopt");
    for (uint64_t e = 0; e < 3; e++)
        apply(&s, e, true, false);
    dl_pace_jumped(&s.pace);
    train_to(&s, 250);
    s.pace.fragments[1].since = 249;
    CHECK(!capture_of(&s.pace, 1, true)->mute);
    end(&s);
}

/* ---- save, resume, restart --------------------------------------------------------------- */

static bool save(scene *s, dl_pace_saved *saved)
{
    *saved = (dl_pace_saved){.captures = s->captures, .fragments = s->fragments};
    return dl_pace_save(&s->pace, saved);
}

/* Another generation, which knows what the earlier one knew. */
static void resume(scene *s, const dl_schedule *schedule, const dl_pace_saved *saved)
{
    begin(s, *schedule, "adopt");
    dl_pace_resume(&s->pace, saved);
    s->pace.reading = true;
    check_stop(s, DL_STOP_WAIT, 0);
    dl_pace_caught_up(&s->pace);
}

TEST(p16_resume_has_the_earlier_generations_entries_in_flight)
{
    scene before, after;
    dl_pace_saved saved;
    begin(&before, overlapped, "adopt");
    train_to(&before, 100);
    capture(&before, 0);
    train_to(&before, 150);
    capture(&before, 1);
    apply(&before, 0, true, true);
    before.pace.position = 155;
    CHECK(!save(&before, &saved));
    resume(&after, &overlapped, &saved);
    CHECK_INT(155, after.pace.position);
    CHECK(dl_pace_in_flight(&after.pace, 0)->gone && dl_pace_in_flight(&after.pace, 1)->gone);
    train_to(&after, 160);
    CHECK_INT(DL_ADOPT_MIX, adopt(&after, 0)); /* decided before the save */
    apply(&after, 1, true, true);
    train_to(&after, 200);
    const dl_pace_capture *t = capture(&after, 2);
    CHECK(!t->gone && !t->mute);
    train_to(&after, 210);
    CHECK_INT(DL_ADOPT_MIX, adopt(&after, 1)); /* decided after it */
    end(&before), end(&after);
}

/* The save precedes the capture. The steps after it are trained again, and adopt where they did. */
TEST(p16_resume_adopts_a_capture_after_the_save_where_it_was_adopted)
{
    static const dl_schedule one = {.interval = 100, .n_fragments = 1, .delay = 60};
    for (int counted = 0; counted < 2; counted++) {
        scene before, after;
        dl_pace_saved saved;
        begin(&before, one, "adopt");
        train_to(&before, 100);
        CHECK(!save(&before, &saved));
        begin(&after, one, "adopt");
        dl_pace_resume(&after.pace, &saved);
        after.pace.reading = true;
        apply(&after, 0, true, counted);
        dl_pace_caught_up(&after.pace);
        if (counted) {
            train_to(&after, 160);
            CHECK_INT(DL_ADOPT_MIX, adopt(&after, 0));
            train_to(&after, 200);
            CHECK(!capture(&after, 1)->mute);
        } else {
            check_stop(&after, DL_STOP_JUMP, 1);
        }
        end(&before), end(&after);
    }
}

/* With several fragments no equal bits are promised, and P14 decides about the next contribution.
 */
TEST(p16_resume_with_two_fragments_jumps_over_a_capture_after_the_save)
{
    scene before, after;
    dl_pace_saved saved;
    begin(&before, overlapped, "adopt");
    train_to(&before, 100);
    CHECK(!save(&before, &saved));
    begin(&after, overlapped, "adopt");
    dl_pace_resume(&after.pace, &saved);
    after.pace.reading = true;
    apply(&after, 0, true, true);
    dl_pace_caught_up(&after.pace);
    check_stop(&after, DL_STOP_JUMP, 0);
    end(&before), end(&after);
}

/* Only the capture of the saved due point is repeated with its bits. */
TEST(p16_resume_from_an_older_save_jumps)
{
    static const dl_schedule one = {.interval = 100, .n_fragments = 1, .delay = 60};
    scene before, after;
    dl_pace_saved saved;
    begin(&before, one, "adopt");
    before.pace.position = 99;
    CHECK(!save(&before, &saved));
    begin(&after, one, "adopt");
    dl_pace_resume(&after.pace, &saved);
    after.pace.reading = true;
    apply(&after, 0, true, true);
    dl_pace_caught_up(&after.pace);
    check_stop(&after, DL_STOP_JUMP, 1);
    end(&before), end(&after);
}

TEST(p16_without_overlap_a_capture_that_is_not_decided_is_repeated)
{
    scene before, after;
    dl_pace_saved saved;
    begin(&before, vanilla, "adopt");
    train_to(&before, 5);
    CHECK(!save(&before, &saved));
    capture(&before, 0);
    CHECK(save(&before, &saved));
    CHECK_INT(0, saved.n_captured);
    resume(&after, &vanilla, &saved);
    CHECK(!capture(&after, 0)->gone);
    end(&after);

    apply(&before, 0, true, true); /* decided, and not adopted yet */
    CHECK(!save(&before, &saved));
    resume(&after, &vanilla, &saved);
    CHECK_INT(DL_ADOPT_MIX, adopt(&after, 0));
    end(&before), end(&after);
}

TEST(p3_resume_knows_which_fragments_have_to_adopt_theta)
{
    scene before, after;
    dl_pace_saved saved;
    begin(&before, overlapped, "adopt");
    before.pace.position = 90;
    apply(&before, 0, true, false); /* read, but the trainer did not know it when it saved */
    save(&before, &saved);
    resume(&after, &overlapped, &saved);
    check_stop(&after, DL_STOP_JUMP, 0);
    CHECK(after.pace.fragments[0].behind && !after.pace.fragments[1].behind);
    end(&before), end(&after);
}

TEST(p14_a_resume_knows_since_when_it_trains_on_a_fragment)
{
    scene before, after;
    dl_pace_saved saved;
    begin(&before, vanilla, "adopt");
    for (uint64_t e = 0; e < 3; e++)
        apply(&before, e, true, false);
    dl_pace_jumped(&before.pace);
    before.pace.position = 17;
    save(&before, &saved);
    resume(&after, &vanilla, &saved);
    CHECK_INT(15, after.pace.fragments[0].since);
    end(&before), end(&after);
}

/* After a restart from another state theta replaces all. Contributions in flight stay in flight, so
 * that there are never more than L. */
TEST(restart_takes_theta_everywhere_and_marks_entries_in_flight_gone)
{
    scene s;
    begin(&s, overlapped, "adopt");
    train_to(&s, 100);
    capture(&s, 0);
    train_to(&s, 150);
    capture(&s, 1);
    dl_pace_restart(&s.pace);
    check_stop(&s, DL_STOP_WAIT, 0);
    dl_pace_caught_up(&s.pace);
    CHECK(s.pace.fragments[0].behind && s.pace.fragments[1].behind);
    check_stop(&s, DL_STOP_JUMP, 0);
    dl_pace_jumped(&s.pace);
    CHECK_INT(150, s.pace.position);
    CHECK(dl_pace_in_flight(&s.pace, 0)->gone && dl_pace_in_flight(&s.pace, 1)->gone);
    train_to(&s, 160);
    check_stop(&s, DL_STOP_ADOPT, 0);
    CHECK(!dl_pace_ready(&s.pace, dl_pace_next(&s.pace)));
    apply(&s, 0, true, false);
    CHECK_INT(DL_ADOPT_THETA, adopt(&s, 0));
    end(&s);
}

TEST_MAIN(without_overlap_a_due_point_is_a_capture_and_then_an_adoption_that_waits,
          with_overlap_training_continues_between_capture_and_adoption,
          alg_19_with_an_own_overlap_all_is_taken_as_ever_and_adopted_before,
          an_entry_that_is_decided_early_is_adopted_at_its_scheduled_step,
          at_one_position_a_capture_comes_before_an_adoption,
          fragments_that_are_due_together_are_all_captured_before_one_is_adopted,
          last_due_point_ends_training_and_adopts_entries_in_flight,
          adoption_follows_from_the_counted_members,
          p13_skipped_replica_jumps_to_the_last_due_point_and_takes_theta,
          p13_skipped_replica_with_keep_jumps_without_theta,
          p13_aborts_move_the_position_and_nothing_else,
          p13_entries_in_flight_are_adopted_before_a_jump,
          p13_aligned_replica_adopts_entries_in_flight_and_jumps_to_the_open_due_point,
          p13_restart_forgets_the_due_point_to_jump_to,
          entry_that_counts_an_earlier_generation_causes_a_jump_with_keep_too,
          an_entry_that_is_read_again_changes_nothing,
          p14_a_joiner_is_mute_until_it_has_H_minus_tau_steps_unless_an_entry_waits_for_it,
          p14_joining_replica_knows_its_first_whole_contribution, p14_awaited_replica_is_never_mute,
          p16_resume_has_the_earlier_generations_entries_in_flight,
          p16_resume_adopts_a_capture_after_the_save_where_it_was_adopted,
          p16_resume_with_two_fragments_jumps_over_a_capture_after_the_save,
          p16_resume_from_an_older_save_jumps,
          p16_without_overlap_a_capture_that_is_not_decided_is_repeated,
          p3_resume_knows_which_fragments_have_to_adopt_theta,
          p14_a_resume_knows_since_when_it_trains_on_a_fragment,
          restart_takes_theta_everywhere_and_marks_entries_in_flight_gone)
