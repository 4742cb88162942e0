/* judging_test.c - verdicts and bans in a machine, and in whole runs: P27. */
#include "machine_world.h"
#include "toy_run.h"

/* ---- one machine -------------------------------------------------------------------------- */

/* Makes three contributions, of which r2's is too long. */
static void make_court(world *w, const char *ban_after)
{
    make_world(w, 1);
    option(w, "run.replicas", "3");
    option(w, "check.norm", "3");
    option(w, "check.ban_after", ban_after);
    option(w, "check.ban_entries", "2");
    CHECK_OK(dl_bans_create(&w->control.bans, &w->config, WORLD_MEMBERS));
    CHECK(dl_roster_add(&w->control.roster, "r2", 0));
    w->beating = " r0 r1 r2 ";
}

static void end_court(world *w)
{
    dl_bans_destroy(w->control.bans);
    end_world(w);
}

static void put_three(world *w, uint64_t entry)
{
    put(w, entry, "r1", 0);
    put(w, entry, "r2", 0)->norm2 = 1e6;
}

TEST(p27_commit_names_rejected_replica_and_reason)
{
    world w;
    make_court(&w, "0");
    resume_run(&w, 1, 5);
    put_three(&w, 1);
    until(&w, DL_REQUEST_CREATE);
    CHECK_INT(1, w.asked[DL_REQUEST_JUDGE]);
    CHECK_INT(2, w.request.step.draft->n_members);
    CHECK_NEAR(0.5, w.request.step.draft->members[0].weight, 0);
    CHECK_INT(1, w.request.step.draft->n_rejected);
    CHECK_STR("r2", w.request.step.draft->rejected[0].generation.replica);
    CHECK_STR("norm", w.request.step.draft->rejected[0].reason);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_JUDGED]);
    CHECK_INT(0, w.noted[DL_NOTE_VOID] + w.noted[DL_NOTE_BANNED]);
    CHECK_INT(2, w.control.entry);
    CHECK(dl_roster_has(&w.control.roster, "r2", NULL)); /* missing once */
    end_court(&w);
}

TEST(p27_failed_read_is_named_unless_the_transfer_may_be_at_fault)
{
    world w;
    make_court(&w, "0");
    resume_run(&w, 1, 5);
    put_three(&w, 1);
    w.put[1].n_bad = -1, w.put[1].why = "non-finite";
    until(&w, DL_REQUEST_CREATE);
    CHECK_INT(1, w.request.step.draft->n_rejected);
    CHECK_STR("non-finite", w.request.step.draft->rejected[0].reason);
    end_court(&w);
    make_court(&w, "0");
    resume_run(&w, 1, 5);
    put_three(&w, 1);
    w.put[1].n_bad = -1, w.put[1].why = "truncated";
    until(&w, DL_REQUEST_CREATE);
    CHECK_INT(0, w.request.step.draft->n_rejected);
    end_court(&w);
}

TEST(p27_banned_replica_is_not_awaited_and_returns_later)
{
    world w;
    make_court(&w, "1");
    resume_run(&w, 1, 5);
    put_three(&w, 1);
    until(&w, DL_REQUEST_CREATE);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(1, w.noted[DL_NOTE_BANNED]);
    CHECK(!dl_roster_has(&w.control.roster, "r2", NULL));
    for (uint64_t e = 2; e < 4; e++) { /* it continues to send, and would pass the checks now */
        put(&w, e, "r1", 0);
        put(&w, e, "r2", 0);
        until(&w, DL_REQUEST_CREATE);
        CHECK_INT(2, w.request.step.draft->n_members);
        CHECK_INT(0, w.request.step.draft->n_rejected);
        until(&w, DL_REQUEST_TRAIN);
    }
    put(&w, 4, "r1", 0);
    put(&w, 4, "r2", 0);
    until(&w, DL_REQUEST_CREATE);
    CHECK_INT(3, w.request.step.draft->n_members);
    until(&w, DL_REQUEST_TRAIN);
    CHECK(dl_roster_has(&w.control.roster, "r2", NULL));
    end_court(&w);
}

TEST(p27_banned_replica_uploads_nothing_and_follows_the_log)
{
    world w;
    make_court(&w, "1");
    w.control.roster.n = 0;
    CHECK(dl_roster_add(&w.control.roster, "r1", 0));
    CHECK(dl_roster_add(&w.control.roster, "r2", 0));
    w.control.bans->n = 1;
    w.control.bans->at[0] = (dl_strikes){.replica = "r0", .n = 1, .until = 3};
    resume_run(&w, 1, 5);
    put(&w, 1, "r1", 0);
    put(&w, 1, "r2", 0);
    until(&w, DL_REQUEST_CREATE);
    CHECK_INT(0, w.asked[DL_REQUEST_CONTRIBUTE]);
    CHECK_INT(2, w.request.step.draft->n_members);
    until(&w, DL_REQUEST_TRAIN);
    CHECK(!w.counted && w.how == DL_ADOPT_THETA);
    end_court(&w);
}

/* ---- verdicts of other replicas ---------------------------------------------------------------
 */

/* Writes r1's entry 1, which counts r0, r1 and perhaps r2, and rejects r2 or no replica. */
static void others_judge(world *w, size_t n_members, const char *rejects)
{
    static const char *const names[] = {"r0", "r1", "r2"};
    put(w, 1, "r0", 0);
    dl_entry e = entry_by(w, 1, "r1", true, names, n_members);
    if (rejects) {
        e.rejected[0] = (dl_rejected){.generation = generation_of("r2", 0), .bytes = WORLD_BYTES};
        snprintf(e.rejected[e.n_rejected++].reason, DL_WORD_MAX + 1, "%s", rejects);
    }
    write_entry(w, &e);
}

static void check_judged(size_t n_members, const char *rejects, unsigned voids)
{
    world w;
    make_court(&w, "0");
    put_three(&w, 1);
    others_judge(&w, n_members, rejects);
    join_run(&w);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(voids, w.noted[DL_NOTE_VOID]);
    CHECK_INT(2, w.control.entry);
    if (voids) CHECK_CONTAINS("verdicts are not what", w.said);
    end_court(&w);
}

TEST(p27_entry_with_wrong_verdicts_is_void)
{
    check_judged(2, "norm", 0);
    check_judged(3, NULL, 1); /* it counts a member that it had to reject */
    check_judged(2, "cosine", 1);
    check_judged(2, "non-finite", 1);
}

TEST(p27_reader_of_a_combined_update_accepts_verdicts_that_an_audit_disputes)
{
    world w;
    for (int audit = 0; audit < 2; audit++) {
        make_court(&w, "0");
        w.args.topology = DL_TOPOLOGY_LEADER;
        w.args.reader = w.args.audits = audit;
        put_three(&w, 1);
        others_judge(&w, 2, "cosine");
        join_run(&w);
        next(&w, DL_REQUEST_TRAIN);
        CHECK_INT(0, w.noted[DL_NOTE_VOID]);
        CHECK_INT(audit, w.noted[DL_NOTE_DISPUTE]);
        end_court(&w);
    }
}

TEST(p27_audit_continues_if_a_rejected_contribution_is_unreadable)
{
    world w;
    make_court(&w, "0");
    w.args.topology = DL_TOPOLOGY_LEADER;
    w.args.reader = w.args.audits = true;
    put_three(&w, 1);
    w.put[1].n_bad = -1;
    others_judge(&w, 2, "norm");
    join_run(&w);
    while (!w.noted[DL_NOTE_DISPUTE])
        step(&w);
    CHECK_CONTAINS("rejects the contribution of r2, which is damaged", w.said);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.noted[DL_NOTE_VOID]);
    CHECK_INT(1, w.noted[DL_NOTE_COMMIT]);
    end_court(&w);
}

/* ---- probes ------------------------------------------------------------------------------- */

TEST(p27_committer_probes_and_names_rejections_in_the_entry)
{
    static const double probed[] = {2, 1.8, 1.9, 5};
    world w;
    make_court(&w, "1");
    option(&w, "check.probe", "1.5");
    w.probed = probed;
    resume_run(&w, 1, 5);
    put(&w, 1, "r1", 0);
    put(&w, 1, "r2", 0);
    until(&w, DL_REQUEST_CREATE);
    CHECK_INT(1, w.noted[DL_NOTE_PROBED]);
    CHECK_INT(2, w.request.step.draft->n_members);
    CHECK_INT(1, w.request.step.draft->n_rejected);
    CHECK_STR("r2", w.request.step.draft->rejected[0].generation.replica);
    CHECK_STR("probe", w.request.step.draft->rejected[0].reason);
    until(&w, DL_REQUEST_TRAIN);
    CHECK_INT(0, w.noted[DL_NOTE_VOID] + w.noted[DL_NOTE_BANNED]); /* it is no strike */
    end_court(&w);
}

TEST(p27_a_trainer_that_cannot_measure_stops_with_its_status)
{
    world w;
    make_court(&w, "0");
    resume_run(&w, 1, 5);
    put_three(&w, 1);
    w.failing.kind = DL_REQUEST_JUDGE;
    w.failing.status = DILOCO_EIO;
    until(&w, DL_REQUEST_FAIL);
    CHECK_INT(DILOCO_EIO, w.request.fail.status);
    end_court(&w);
}

static void check_probed_elsewhere(const char *most, double norm2, unsigned voids)
{
    world w;
    make_court(&w, "0");
    option(&w, "check.probe", most);
    put(&w, 1, "r1", 0);
    put(&w, 1, "r2", 0)->norm2 = norm2;
    others_judge(&w, 2, "probe");
    join_run(&w);
    next(&w, DL_REQUEST_TRAIN);
    CHECK_INT(voids, w.noted[DL_NOTE_VOID]);
    CHECK_INT(0, w.noted[DL_NOTE_PROBED]); /* no other replica measures */
    end_court(&w);
}

TEST(p27_probe_verdict_is_accepted_unless_other_checks_contradict)
{
    check_probed_elsewhere("1.5", 1, 0);
    check_probed_elsewhere("0", 1, 1);     /* this run does not probe */
    check_probed_elsewhere("1.5", 1e6, 1); /* the reason is wrong: it has to be "norm" */
}

/* ---- whole runs --------------------------------------------------------------------------- */

/* Entry 1 does not wait for a replica that entry 0 rejected (P9). In tests about the second
 * rejection, no replica completes entry 1 before r2's contribution to it is in this store. */
static const char *judged_twice;

static void let_r2_be_judged_twice(const toy *t, const diloco_run_info *now)
{
    char path[1024];
    if (!judged_twice || t->name[1] == '2' || now->entry != 1) return;
    snprintf(path, sizeof path, "%s/c/0000000001/r2.0000", judged_twice);
    while (access(path, F_OK))
        usleep(1000);
}

static void live_while_r2_is_judged_twice(toy all[3], const char *store)
{
    judged_twice = store;
    toy_live_all(all, 3);
    judged_twice = NULL;
}

/* r2 moves a thousand times as far in the first entries. */
static double fall_or_boast(toy *t, const diloco_run_info *now)
{
    let_r2_be_judged_twice(t, now);
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= t->name[1] == '2' && now->position < 6 ? 1000 : 1;
    return 0;
}

static diloco_status count_rejected(void *n_rejected, const diloco_log_entry *e)
{
    for (size_t i = 0; i < e->n_rejected; i++) {
        CHECK_STR("r2.0000", e->rejected[i]);
        CHECK_STR("norm", e->rejected_for[i]);
        ++*(size_t *)n_rejected;
    }
    return DILOCO_OK;
}

TEST(p27_honest_members_decide_and_the_log_names_banned_ones)
{
    toy all[3];
    const char *store = scratch_path("run");
    diloco_verify_report report;
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 3, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "trainer.rounds", "12");
    toy_set_all(all, 3, "check.norm", "3");
    toy_set_all(all, 3, "check.ban_after", "2");
    toy_set_all(all, 3, "check.ban_entries", "3");
    for (int r = 0; r < 3; r++)
        all[r].step = fall_or_boast;
    toy_keep_record(&all[0]);
    toy_keep_record(&all[2]);
    live_while_r2_is_judged_twice(all, store);
    for (int r = 0; r < 3; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(-12, (double)all[r].w[0], 1e-5);
    }
    CHECK_CONTAINS("\"event\":\"reject\",\"entry\":0,\"replica\":\"r2.0000\",\"reason\":\"norm\"",
                   all[0].record);
    CHECK_CONTAINS(": 2 of its contributions were rejected", all[0].record);
    CHECK_CONTAINS("rejects this replica's contribution (norm)", all[2].record);
    size_t n_rejected = 0;
    CHECK_OK(diloco_log_walk(store, 0, count_rejected, &n_rejected));
    CHECK(n_rejected >= 2);
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_INT(12, report.commits);
    free(all[0].record);
    free(all[2].record);
}

static diloco_status count_without_r2(void *n_commits, const diloco_log_entry *e)
{
    if (e->n_rejected) *(size_t *)n_commits += e->commit;
    return DILOCO_OK;
}

/* The median with f = 1 needs three; without r2 the other two continue with f = 0. */
static void check_against_f(const char *exchange, const char *check, const char *value)
{
    toy all[3];
    const char *store = scratch_path(exchange);
    diloco_verify_report report;
    size_t n_commits = 0;
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "server.diloco.exchange", exchange);
    toy_set_all(all, 3, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 3, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 3, "server.diloco.combiner", "median");
    toy_set_all(all, 3, "run.min_replicas", "3");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "trainer.rounds", "4");
    toy_set_all(all, 3, check, value);
    for (int r = 0; r < 3; r++)
        all[r].step = fall_or_boast;
    live_while_r2_is_judged_twice(all, store);
    for (int r = 0; r < 3; r++)
        TOY_OK(all[r]);
    CHECK_OK(diloco_log_walk(store, 0, count_without_r2, &n_commits));
    CHECK(n_commits >= 2); /* later entries do not wait for r2, and may abort without it */
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
}

TEST(p27_a_rejected_member_counts_against_the_combiners_f)
{
    check_against_f("allgather", "check.norm", "3");
}

TEST(p27_it_does_where_slices_are_combined)
{
    check_against_f("sharded", "check.element", "10");
}

/* No check.* is set, and the combiner tolerates one malicious member. */
TEST(p27_failed_read_counts_against_f_without_checks)
{
    for (int robust = 0; robust < 2; robust++) {
        world w;
        make_world(&w, 1);
        CHECK(dl_roster_add(&w.control.roster, "r2", 0));
        option(&w, "server.diloco.combiner", robust ? "median" : "mean");
        resume_run(&w, 1, 5);
        put_three(&w, 1);
        w.put[1].n_bad = -1, w.put[1].why = "non-finite";
        until(&w, DL_REQUEST_CREATE);
        CHECK_INT(2, w.request.step.draft->n_members);
        CHECK_INT(robust, w.request.step.draft->n_rejected);
        end_world(&w);
    }
}

typedef struct in_slices {
    const char *reason;
    size_t n_rejected, n_combined;
} in_slices;

static diloco_status see_slices(void *user, const diloco_log_entry *e)
{
    in_slices *s = user;
    for (size_t i = 0; i < e->n_rejected; i++) {
        CHECK_STR("r2.0000", e->rejected[i]);
        CHECK_STR(s->reason, e->rejected_for[i]);
    }
    s->n_rejected += e->n_rejected;
    s->n_combined += e->combined_by[0] != 0;
    return DILOCO_OK;
}

/* r2's movement has the same length and the opposite direction. */
static double fall_or_rise(toy *t, const diloco_run_info *now)
{
    let_r2_be_judged_twice(t, now);
    for (int i = 0; i < TOY_N; i++)
        t->w[i] += t->name[1] == '2' ? 1 : -1;
    return 0;
}

/* An entry with r2 is not combined by slices: all contributions are read whole. After r2's ban
 * entries are combined by slices again. */
static void check_in_slices(const char *reason, const char *option, const char *value,
                            double (*moves)(toy *t, const diloco_run_info *now))
{
    toy all[3];
    const char *store = scratch_path(reason);
    diloco_verify_report report;
    in_slices seen = {.reason = reason};
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "server.diloco.exchange", "sharded");
    toy_set_all(all, 3, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 3, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "trainer.rounds", "8");
    toy_set_all(all, 3, "run.deadline", "0.3");
    toy_set_all(all, 3, "run.retain", "all");
    toy_set_all(all, 3, option, value);
    toy_set_all(all, 3, "check.ban_after", "2");
    toy_set_all(all, 3, "check.ban_entries", "3");
    for (int r = 0; r < 3; r++)
        all[r].step = moves;
    live_while_r2_is_judged_twice(all, store);
    for (int r = 0; r < 3; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(-8, (double)all[r].w[0], 1e-5);
    }
    CHECK_OK(diloco_log_walk(store, 0, see_slices, &seen));
    CHECK(seen.n_rejected >= 2 && seen.n_combined >= 1);
    /* a reader of all contributions has the same verdicts */
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
}

TEST(p27_an_element_beyond_its_bound_is_rejected_where_slices_are_combined)
{
    check_in_slices("bound", "check.element", "10", fall_or_boast);
}

TEST(p27_measures_of_slices_give_verdicts_of_norms_and_directions)
{
    check_in_slices("norm", "check.norm", "3", fall_or_boast);
    check_in_slices("cosine", "check.cosine", "-0.5", fall_or_rise);
}

static double fall_each_at_its_pace(toy *t, const diloco_run_info *now)
{
    (void)now;
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= t->name[1] == '2' ? 2 : 1;
    return 0;
}

static diloco_status see_copies(void *n_rejected, const diloco_log_entry *e)
{
    CHECK(e->combined_by[0] != 0);
    for (size_t i = 0; i < e->n_rejected; i++) {
        CHECK_STR("r1.0000", e->rejected[i]);
        CHECK_STR("copy", e->rejected_for[i]);
        ++*(size_t *)n_rejected;
    }
    return DILOCO_OK;
}

/* Equal bytes have equal tables of slices, so no more has to be read. */
TEST(p27_the_bytes_of_another_are_rejected_where_slices_are_combined)
{
    toy all[3];
    const char *store = scratch_path("copies");
    size_t n_rejected = 0;
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "server.diloco.exchange", "sharded");
    toy_set_all(all, 3, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 3, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "check.copy", "1");
    for (int r = 0; r < 3; r++)
        all[r].step = fall_each_at_its_pace;
    toy_live_all(all, 3);
    for (int r = 0; r < 3; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(-6, (double)all[r].w[0], 1e-5);
    }
    CHECK_OK(diloco_log_walk(store, 0, see_copies, &n_rejected));
    CHECK(n_rejected >= 1);
}

/* r2 repeats its movement each time, the others never do. */
static double fall_or_repeat(toy *t, const diloco_run_info *now)
{
    const float each = t->name[1] == '2' ? 3 : t->name[1] == '1' ? 2 : 1;
    let_r2_be_judged_twice(t, now);
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= each + (t->name[1] == '2' ? 0 : (float)now->position / 16);
    return 0;
}

static diloco_status see_repeats(void *n_rejected, const diloco_log_entry *e)
{
    for (size_t i = 0; i < e->n_rejected; i++) {
        CHECK_STR("r2.0000", e->rejected[i]);
        CHECK_STR("repeat", e->rejected_for[i]);
        ++*(size_t *)n_rejected;
    }
    if (e->entry == 0) CHECK_INT(0, e->n_rejected); /* it was not seen before */
    return DILOCO_OK;
}

/* A ban that has ended is still remembered, and an audit knows of it wherever it begins. */
TEST(p27_repeated_contribution_is_rejected_with_allgather_and_sharded)
{
    static const char *const topologies[] = {"allgather", "sharded"};
    for (size_t w = 0; w < 2; w++) {
        toy all[3];
        const char *store = scratch_path(w ? "repeats_sharded" : "repeats");
        diloco_verify_report report;
        size_t n_rejected = 0;
        toy_crew(all, 3, store, "none");
        toy_set_all(all, 3, "server.diloco.exchange", topologies[w]);
        toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
        toy_set_all(all, 3, "trainer.rounds", "7");
        toy_set_all(all, 3, "run.snapshot_every", "0.001");
        toy_set_all(all, 3, "check.repeat", "2");
        toy_set_all(all, 3, "check.ban_after", "1");
        toy_set_all(all, 3, "check.ban_entries", "2");
        for (int r = 0; r < 3; r++)
            all[r].step = fall_or_repeat;
        toy_keep_record(&all[2]);
        live_while_r2_is_judged_twice(all, store);
        for (int r = 0; r < 3; r++)
            TOY_OK(all[r]);
        CHECK_CONTAINS("rejects this replica's contribution (repeat)", all[2].record);
        CHECK_OK(diloco_log_walk(store, 0, see_repeats, &n_rejected));
        CHECK(n_rejected >= 1);
        CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
        CHECK_INT(0, report.voids);
        free(all[2].record);
    }
}

/* r2 is banned by its second entry, and the run ends while it is out. */
TEST(p27_the_status_names_excluded_replicas_with_end_and_reason)
{
    toy all[3];
    const char *store = scratch_path("banned");
    diloco_run_status s;
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "trainer.rounds", "4");
    toy_set_all(all, 3, "run.min_replicas", "3");
    toy_set_all(all, 3, "check.norm", "3");
    toy_set_all(all, 3, "check.ban_after", "2");
    toy_set_all(all, 3, "check.ban_entries", "9");
    for (int r = 0; r < 3; r++)
        all[r].step = fall_or_boast;
    live_while_r2_is_judged_twice(all, store);
    for (int r = 0; r < 3; r++)
        TOY_OK(all[r]);
    CHECK_OK(diloco_run_status_read(&s, store, 0));
    CHECK_INT(3, s.n_replicas);
    CHECK_INT(1, s.n_banned);
    CHECK_INT(2, s.rejected.n);
    CHECK_INT(1, s.rejected.n_reasons);
    CHECK_STR("norm", s.rejected.reasons[0].reason);
    CHECK_INT(2, s.rejected.reasons[0].n);
    const diloco_replica_status *r0 = s.replicas[0], *r2 = s.replicas[2];
    CHECK_INT(0, r0->rejected.n + r0->strikes + r0->banned_until);
    CHECK_INT(2, r2->rejected.n);
    CHECK_INT(2, r2->strikes);
    CHECK(r2->banned_until > 9);
    diloco_run_status_free(&s);
}

/* Measures how far the model is above the honest direction, which is down. */
static diloco_status how_high(void *user, double *loss, const void *const *data, size_t n)
{
    double sum = 0;
    if (n != 1) return dl_fail(DILOCO_EINVAL, "%zu tensors", n);
    for (int i = 0; i < TOY_N; i++)
        sum += 100 + (double)((const float *)data[0])[i];
    *loss = sum / TOY_N;
    return user ? dl_fail(DILOCO_EIO, "the held-out data is gone") : DILOCO_OK;
}

static diloco_status offer_probe(toy *t, diloco_run *run)
{
    diloco_run_on_probe(run, how_high, t->user);
    return DILOCO_OK;
}

static diloco_status offer_probe_and_split(toy *t, diloco_run *run)
{
    diloco_run_on_probe(run, how_high, t->user);
    return diloco_run_split(run);
}

static void make_probing_crew(toy *all, const char *store)
{
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 3, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "run.min_replicas", "3");
    toy_set_all(all, 3, "check.probe", "1.001");
    for (int r = 0; r < 3; r++) {
        all[r].step = fall_or_rise;
        all[r].prepare = offer_probe;
        all[r].user = NULL;
    }
}

TEST(p27_a_probing_run_goes_where_the_loss_falls_and_verifies_without_measuring)
{
    toy all[3];
    const char *store = scratch_path("probing");
    diloco_verify_report report;
    diloco_run_status s;
    make_probing_crew(all, store);
    for (int r = 0; r < 3; r++)
        toy_keep_record(&all[r]);
    live_while_r2_is_judged_twice(all, store);
    size_t n_probed = 0;
    for (int r = 0; r < 3; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(-4, (double)all[r].w[0], 1e-5);
        n_probed += strstr(all[r].record, "\"event\":\"probe\"") != NULL;
        free(all[r].record);
    }
    CHECK(n_probed >= 1);
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_INT(4, report.commits);
    CHECK_OK(diloco_run_status_read(&s, store, 0));
    CHECK(s.rejected.n >= 2);
    CHECK_STR("probe", s.rejected.reasons[0].reason);
    diloco_run_status_free(&s);
}

TEST(p27_a_run_that_probes_takes_no_replica_that_cannot_and_gives_back_its_error)
{
    toy t = toy_of("r0", "mem://blind");
    toy_set(&t, "check.probe", "1.5");
    CHECK_STATUS(DILOCO_EREFUSED, toy_live(&t));
    CHECK_CONTAINS("diloco_run_on_probe", t.text);
    t = toy_of("r0", "mem://split");
    toy_set(&t, "check.probe", "1.5");
    t.prepare = offer_probe_and_split;
    CHECK_STATUS(DILOCO_EREFUSED, toy_live(&t));
    CHECK_CONTAINS("after diloco_run_split", t.text);
    t = toy_of("r0", "mem://gradients");
    toy_set(&t, "check.probe", "1.5");
    t.prepare = offer_probe;
    t.gradients = true;
    CHECK_STATUS(DILOCO_EREFUSED, toy_live(&t));
    CHECK_CONTAINS("contributes gradients", t.text);
    t = toy_of("r0", "mem://broken");
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "check.probe", "1.5");
    t.prepare = offer_probe;
    t.user = &t;
    CHECK_STATUS(DILOCO_EIO, toy_live(&t));
    CHECK_CONTAINS("held-out data is gone", t.text);
}

TEST_MAIN(p27_a_rejected_member_counts_against_the_combiners_f,
          p27_it_does_where_slices_are_combined, p27_failed_read_counts_against_f_without_checks,
          p27_commit_names_rejected_replica_and_reason,
          p27_failed_read_is_named_unless_the_transfer_may_be_at_fault,
          p27_banned_replica_is_not_awaited_and_returns_later,
          p27_banned_replica_uploads_nothing_and_follows_the_log,
          p27_entry_with_wrong_verdicts_is_void,
          p27_reader_of_a_combined_update_accepts_verdicts_that_an_audit_disputes,
          p27_audit_continues_if_a_rejected_contribution_is_unreadable,
          p27_committer_probes_and_names_rejections_in_the_entry,
          p27_a_trainer_that_cannot_measure_stops_with_its_status,
          p27_probe_verdict_is_accepted_unless_other_checks_contradict,
          p27_honest_members_decide_and_the_log_names_banned_ones,
          p27_an_element_beyond_its_bound_is_rejected_where_slices_are_combined,
          p27_measures_of_slices_give_verdicts_of_norms_and_directions,
          p27_the_bytes_of_another_are_rejected_where_slices_are_combined,
          p27_repeated_contribution_is_rejected_with_allgather_and_sharded,
          p27_the_status_names_excluded_replicas_with_end_and_reason,
          p27_a_probing_run_goes_where_the_loss_falls_and_verifies_without_measuring,
          p27_a_run_that_probes_takes_no_replica_that_cannot_and_gives_back_its_error)
