/* close_rule_test.c - when an entry closes, and how: P9, P10, P11, P12. */
#include "protocol/close_rule.h"

#include "check.h"

enum { ROOM = 8 };

typedef struct table {
    dl_config config;
    dl_control control;
    dl_entry owner; /* of the roster */
    dl_candidate rows[ROOM];
    dl_candidate_table known;
    bool silent[ROOM];
    dl_closing c;
} table;

static void option(table *t, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&t->config, name, value, "test"));
}

/* Entry 3 with the roster r0 … r3; it began at 0 s, and its deadline is at 100 s. */
static void begin(table *t)
{
    memset(t, 0, sizeof *t);
    dl_config_init(&t->config);
    CHECK_OK(dl_entry_init(&t->owner, ROOM));
    t->control = (dl_control){.entry = 3, .roster = t->owner.roster};
    t->known = (dl_candidate_table){.at = t->rows, .cap = ROOM};
    for (int i = 0; i < 4; i++) {
        char name[DL_GENERATION_TEXT];
        snprintf(name, sizeof name, "r%d", i);
        CHECK(dl_roster_add(&t->control.roster, name, 0));
    }
    t->c = (dl_closing){.config = &t->config,
                        .control = &t->control,
                        .known = &t->known,
                        .silent = t->silent,
                        .deadline = 100 * DL_SECOND,
                        .enough_at = DL_NEVER};
}

static void there(table *t, int first, int last)
{
    for (int i = first; i <= last; i++) {
        dl_generation generation = {.number = 0};
        snprintf(generation.replica, sizeof generation.replica, "r%d", i);
        dl_candidate_accept(dl_candidate_add(&t->known, &generation, 0, 9),
                            &(dl_contribution){.stats.samples = 1}, 1);
    }
}

/* Replica i skips this entry. */
static void passes(table *t, int i)
{
    dl_generation generation = {.number = 0};
    snprintf(generation.replica, sizeof generation.replica, "r%d", i);
    dl_candidate_accept(dl_candidate_add(&t->known, &generation, 0, 9),
                        &(dl_contribution){.stats.samples = 0}, 0);
}

static dl_verdict look(table *t, int at_s)
{
    t->c.now = at_s * DL_SECOND;
    return dl_closing_look(&t->c);
}

static dl_verdict watched(table *t)
{
    t->c.now = 100 * DL_SECOND;
    return dl_closing_watched(&t->c);
}

TEST(p10_an_entry_closes_when_the_whole_roster_has_contributed)
{
    table t;
    begin(&t);
    there(&t, 0, 3);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 1).kind);
    dl_entry_deinit(&t.owner);
}

TEST(close_at_takes_a_quorum_once_its_grace_is_over)
{
    table t;
    begin(&t);
    option(&t, "run.close_at", "2");
    option(&t, "run.grace", "5");
    there(&t, 0, 0);
    CHECK(!dl_closing_has_enough(&t.c));
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 1).kind);
    there(&t, 1, 1);
    CHECK(dl_closing_has_enough(&t.c));
    t.c.enough_at = 2 * DL_SECOND;
    const dl_verdict v = look(&t, 6);
    CHECK_INT(DL_VERDICT_WAIT, v.kind);
    CHECK_INT(7 * DL_SECOND, v.until);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 7).kind);
    t.c.slack_s = 20; /* of which gamma: */
    option(&t, "run.grace_slack", "0.5");
    CHECK_INT(12 * DL_SECOND, look(&t, 7).until);
    there(&t, 2, 3);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 7).kind); /* all: no replica to wait for */
    option(&t, "run.close_at", "9");
    CHECK(dl_closing_has_enough(&t.c)); /* more than there are means all of them */
    dl_entry_deinit(&t.owner);
}

TEST(p10_entry_waits_for_missing_replicas_before_the_deadline)
{
    table t;
    begin(&t);
    there(&t, 0, 2);
    there(&t, 5, 6); /* guests do not replace the roster */
    const dl_verdict v = look(&t, 99);
    CHECK_INT(DL_VERDICT_WAIT, v.kind);
    CHECK_INT(100 * DL_SECOND, v.until);
    dl_entry_deinit(&t.owner);
}

TEST(p11_heartbeats_are_looked_at_past_the_deadline_only)
{
    table t;
    begin(&t);
    there(&t, 0, 2);
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 99).kind);
    CHECK_INT(DL_VERDICT_WATCH, look(&t, 100).kind);
    dl_entry_deinit(&t.owner);
}

TEST(p12_an_entry_without_contributions_never_commits)
{
    table t;
    begin(&t);
    t.control.roster.n = 0; /* every replica left */
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 1).kind);
    option(&t, "run.on_missing", "commit_partial");
    option(&t, "run.quorum", "0");
    CHECK_INT(DL_VERDICT_ABORT, watched(&t).kind);
    dl_entry_deinit(&t.owner);
}

TEST(p9_the_first_entry_closes_with_replicas_contributions)
{
    table t;
    begin(&t);
    t.control.entry = 0;
    t.control.roster.n = 0;
    option(&t, "run.replicas", "3");
    there(&t, 0, 1);
    const dl_verdict v = look(&t, 1);
    CHECK_INT(DL_VERDICT_WAIT, v.kind);
    CHECK(v.until == DL_NEVER);
    there(&t, 2, 2);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 1).kind);
    dl_entry_deinit(&t.owner);
}

/* A process that was killed with contributions in flight skips the first entries. */
TEST(p9_entry_does_not_wait_for_a_replica_that_skips_it)
{
    for (int entry = 0; entry < 4; entry += 3) { /* without a roster, and with one */
        table t;
        begin(&t);
        t.control.entry = (uint64_t)entry;
        option(&t, "run.replicas", "4");
        there(&t, 0, 2);
        CHECK_INT(DL_VERDICT_WAIT, look(&t, 1).kind);
        passes(&t, 3);
        CHECK_INT(DL_VERDICT_COMMIT, look(&t, 1).kind);
        dl_entry_deinit(&t.owner);
    }
}

TEST(p9_an_entry_that_all_have_passed_aborts_at_once)
{
    for (int entry = 0; entry < 4; entry += 3) {
        table t;
        begin(&t);
        t.control.entry = (uint64_t)entry;
        option(&t, "run.replicas", "4");
        for (int i = 0; i < 4; i++) {
            CHECK_INT(DL_VERDICT_WAIT, look(&t, 1).kind);
            passes(&t, i);
        }
        const dl_verdict v = look(&t, 1);
        CHECK_INT(DL_VERDICT_ABORT, v.kind);
        CHECK_STR("no replica has trained on it", v.reason);
        dl_entry_deinit(&t.owner);
    }
}

TEST(p9_the_first_entry_closes_with_min_replicas_from_start_timeout_on)
{
    table t;
    begin(&t);
    t.control.entry = 0;
    t.control.roster.n = 0;
    option(&t, "run.replicas", "3");
    option(&t, "run.min_replicas", "2");
    option(&t, "run.start_timeout", "60");
    t.c.began = 10 * DL_SECOND;
    there(&t, 0, 1);
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 69).kind);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 70).kind);
    dl_entry_deinit(&t.owner);
}

static void junk(table *t, const char *name)
{
    dl_generation generation = {.number = 0};
    snprintf(generation.replica, sizeof generation.replica, "%s", name);
    dl_candidate *k = dl_candidate_add(&t->known, &generation, 0, 9);
    while (dl_candidate_doubt(k, "header")) {
    }
}

/* Without a roster nothing shows whose it is. It cannot close the entry before the others come. */
TEST(p9_junk_does_not_answer_for_the_first_entry_before_start_timeout)
{
    table t;
    begin(&t);
    t.control.entry = 0;
    t.control.roster.n = 0;
    option(&t, "run.replicas", "3");
    option(&t, "run.min_replicas", "2");
    option(&t, "run.start_timeout", "60");
    junk(&t, "a0"), junk(&t, "a1"), junk(&t, "a2");
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 59).kind); /* nor abort it */
    there(&t, 0, 0);
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 59).kind);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 60).kind); /* the store damages r1's uploads */
    there(&t, 1, 2);
    CHECK_INT(DL_VERDICT_COMMIT, look(&t, 1).kind);
    dl_entry_deinit(&t.owner);
}

/* The rule closes the first entry, whether a replica is seconds or minutes late: with all, or with
 * the least that may begin. */
TEST(sto_16_replicas_that_start_0_60_and_600_s_late_close_the_first_entry_by_policy)
{
    static const int starts[] = {0, 60, 600};
    for (int least = 0; least < 2; least++) {
        table t;
        int closed = 0;
        begin(&t);
        t.control.entry = 0;
        t.control.roster.n = 0;
        option(&t, "run.replicas", "3");
        if (least) option(&t, "run.min_replicas", "2");
        if (least) option(&t, "run.start_timeout", "120");
        t.c.began = 0;
        for (int now = 0; now <= 700 && !closed; now++) {
            for (int i = 0; i < 3; i++)
                if (now == starts[i]) there(&t, i, i);
            const dl_verdict v = look(&t, now);
            CHECK(v.kind == DL_VERDICT_WAIT || v.kind == DL_VERDICT_COMMIT); /* never an abort */
            if (v.kind == DL_VERDICT_COMMIT) closed = now;
        }
        CHECK_INT(least ? 120 : 600, closed);
        dl_entry_deinit(&t.owner);
    }
}

TEST(p9_the_first_entry_never_closes_with_fewer_than_min_replicas)
{
    table t;
    begin(&t);
    t.control.entry = 0;
    t.control.roster.n = 0;
    option(&t, "run.replicas", "3");
    option(&t, "run.min_replicas", "2");
    there(&t, 0, 0);
    CHECK_INT(DL_VERDICT_WAIT, look(&t, 1000000).kind);
    dl_entry_deinit(&t.owner);
}

TEST(p10_wait_waits_for_the_slow)
{
    table t;
    begin(&t);
    option(&t, "run.patience", "40");
    there(&t, 0, 1);
    t.silent[2] = true; /* one is silent, the other is only slow */
    const dl_verdict v = watched(&t);
    CHECK_INT(DL_VERDICT_WAIT, v.kind);
    CHECK_INT(110 * DL_SECOND, v.until); /* a quarter of the patience */
    dl_entry_deinit(&t.owner);
}

TEST(p10_wait_skips_silent_replicas_and_names_them)
{
    table t;
    begin(&t);
    there(&t, 0, 1);
    t.silent[2] = t.silent[3] = true;
    const dl_verdict v = watched(&t);
    CHECK_INT(DL_VERDICT_ABORT, v.kind);
    CHECK_STR("silent: r2 r3", v.reason);
    dl_entry_deinit(&t.owner);
}

TEST(p10_commit_partial_commits_with_a_quorum_of_the_roster)
{
    table t;
    begin(&t);
    option(&t, "run.on_missing", "commit_partial");
    option(&t, "run.quorum", "0.6"); /* of 4: 3 */
    there(&t, 0, 1);
    CHECK_INT(DL_VERDICT_ABORT, watched(&t).kind);
    CHECK_CONTAINS("quorum", watched(&t).reason);
    there(&t, 2, 2);
    CHECK_INT(DL_VERDICT_COMMIT, watched(&t).kind);
    dl_entry_deinit(&t.owner);
}

TEST(p10_abort_aborts_with_any_members_present)
{
    table t;
    begin(&t);
    option(&t, "run.on_missing", "abort");
    there(&t, 0, 2);
    CHECK_INT(DL_VERDICT_ABORT, watched(&t).kind);
    dl_entry_deinit(&t.owner);
}

TEST(many_silent_names_are_cut_to_fit_the_reason)
{
    table t;
    begin(&t);
    t.control.roster.n = 0;
    for (int i = 0; i < ROOM; i++) {
        char name[DL_GENERATION_TEXT];
        snprintf(name, sizeof name, "a-replica-of-a-long-name-%d", i);
        CHECK(dl_roster_add(&t.control.roster, name, 0));
        t.silent[i] = true;
    }
    const dl_verdict v = watched(&t);
    CHECK_INT(DL_VERDICT_ABORT, v.kind);
    CHECK_INT(DL_REASON_MAX, strlen(v.reason));
    CHECK_CONTAINS("long-name-1", v.reason);
    dl_entry_deinit(&t.owner);
}

TEST(p11_a_deadline_is_the_option_or_a_round_and_four_uploads)
{
    table t;
    begin(&t);
    CHECK_INT(5 + 20 + 4 * 3, dl_closing_deadline(&t.config, 0, 5 * DL_SECOND, 20, 3) / DL_SECOND);
    CHECK_INT(5 + 10 + 4, dl_closing_deadline(&t.config, 0, 5 * DL_SECOND, 0.1, 1) / DL_SECOND);
    CHECK_INT(5 + 60 + 4, dl_closing_deadline(&t.config, 0, 5 * DL_SECOND, 0, 1) / DL_SECOND);
    option(&t, "run.patience", "240"); /* the only option */
    CHECK_INT(5 + 40 + 4, dl_closing_deadline(&t.config, 0, 5 * DL_SECOND, 20, 1) / DL_SECOND);
    option(&t, "run.deadline", "7");
    CHECK_INT(5 + 7, dl_closing_deadline(&t.config, 0, 5 * DL_SECOND, 20, 3) / DL_SECOND);
    dl_entry_deinit(&t.owner);
}

TEST(p10_each_abort_in_a_row_doubles_the_deadline)
{
    table t;
    begin(&t);
    option(&t, "run.deadline", "7");
    CHECK_INT(5 + 7 * 8, dl_closing_deadline(&t.config, 3, 5 * DL_SECOND, 0, 0) / DL_SECOND);
    CHECK_INT(dl_closing_deadline(&t.config, 16, 0, 0, 0),
              dl_closing_deadline(&t.config, 1000, 0, 0, 0)); /* it is bounded */
    dl_entry_deinit(&t.owner);
}

TEST_MAIN(p10_an_entry_closes_when_the_whole_roster_has_contributed,
          close_at_takes_a_quorum_once_its_grace_is_over,
          p10_entry_waits_for_missing_replicas_before_the_deadline,
          p11_heartbeats_are_looked_at_past_the_deadline_only,
          p12_an_entry_without_contributions_never_commits,
          p9_the_first_entry_closes_with_replicas_contributions,
          p9_entry_does_not_wait_for_a_replica_that_skips_it,
          p9_an_entry_that_all_have_passed_aborts_at_once,
          p9_the_first_entry_closes_with_min_replicas_from_start_timeout_on,
          p9_junk_does_not_answer_for_the_first_entry_before_start_timeout,
          sto_16_replicas_that_start_0_60_and_600_s_late_close_the_first_entry_by_policy,
          p9_the_first_entry_never_closes_with_fewer_than_min_replicas, p10_wait_waits_for_the_slow,
          p10_wait_skips_silent_replicas_and_names_them,
          p10_commit_partial_commits_with_a_quorum_of_the_roster,
          p10_abort_aborts_with_any_members_present, many_silent_names_are_cut_to_fit_the_reason,
          p11_a_deadline_is_the_option_or_a_round_and_four_uploads,
          p10_each_abort_in_a_row_doubles_the_deadline)
