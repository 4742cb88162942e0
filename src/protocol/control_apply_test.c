/* control_apply_test.c - the control state's half of an applied entry: P4, P5, P7, P9, P10. */
#include "protocol/control_apply.h"

#include "check.h"

#define RUN "0123456789abcdef0123456789abcdef"
enum { ROOM = 6 };

/* A control state and an entry that fits it; done frees their memory. */
typedef struct pair {
    dl_control control;
    dl_entry entry, owner; /* owner: of the control's roster */
    dl_hash base;
} pair;

static dl_hash hash_of(const char *text)
{
    return dl_hash_bytes(text, strlen(text));
}

static void add_member(dl_entry *e, const char *replica, uint32_t generation)
{
    dl_member *m = &e->members[e->n_members++];
    *m = (dl_member){.generation.number = generation, .weight = 1};
    snprintf(m->generation.replica, sizeof m->generation.replica, "%s", replica);
}

/* Entry 7 of a run whose roster is a, b, c; a and b are counted. */
static pair a_pair(bool commit)
{
    pair p = {.base = hash_of("base")};
    CHECK_OK(dl_entry_init(&p.owner, ROOM));
    CHECK_OK(dl_entry_init(&p.entry, ROOM));
    p.control = (dl_control){
        .entry = 7, .prev = hash_of("prev"), .roster = p.owner.roster, .lr = 0.7f, .mu = 0.9f};
    CHECK(dl_roster_add(&p.control.roster, "a", 0));
    CHECK(dl_roster_add(&p.control.roster, "b", 0));
    CHECK(dl_roster_add(&p.control.roster, "c", 0));
    p.entry.commit = commit;
    p.entry.entry = 7;
    p.entry.prev = p.control.prev;
    p.entry.base = p.base;
    p.entry.next.lr = 0.5f;
    p.entry.next.mu = 0.8f;
    strcpy(p.entry.run, RUN);
    strcpy(p.entry.committer.replica, "b");
    add_member(&p.entry, "a", 0);
    add_member(&p.entry, "b", 2);
    return p;
}

static void done(pair *p)
{
    dl_entry_deinit(&p->entry);
    dl_entry_deinit(&p->owner);
}

static const char *reason(const pair *p)
{
    return dl_control_void_reason(&p->control, &p->entry, RUN, 0, p->base);
}

static const char *names_of(const dl_roster *roster)
{
    static char text[ROOM * (DL_REPLICA_MAX + 12)];
    text[0] = 0;
    for (size_t i = 0; i < roster->n; i++) {
        const size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%s%s:%u", i ? " " : "", roster->names[i],
                 roster->misses[i]);
    }
    return text;
}

/* Returns the roster that an entry would carry; the arguments say which replicas are silent. */
static const char *next_roster(pair *p, bool a, bool b, bool c)
{
    const bool silent[] = {a, b, c};
    dl_control_next_roster(&p->entry.roster, &p->control, &p->entry, silent);
    return names_of(&p->entry.roster);
}

TEST(an_entry_that_fits_the_state_before_it_is_not_void)
{
    pair p = a_pair(true);
    CHECK(reason(&p) == NULL);
    p.entry.commit = false;
    CHECK(reason(&p) == NULL);
    p.entry.n_members = 0; /* an abort may have no members */
    CHECK(reason(&p) == NULL);
    done(&p);
}

TEST(p7_an_entry_of_another_run_is_void)
{
    pair p = a_pair(true);
    p.entry.run[3] ^= 1;
    CHECK_CONTAINS("another run", reason(&p));
    done(&p);
}

TEST(p7_an_entry_under_another_number_than_its_own_is_void)
{
    pair p = a_pair(true);
    p.entry.entry = 8;
    CHECK_CONTAINS("number", reason(&p));
    done(&p);
}

TEST(p7_entry_with_a_wrong_prev_is_void)
{
    pair p = a_pair(true);
    p.entry.prev.bytes[15] ^= 1;
    CHECK_CONTAINS("prev", reason(&p));
    done(&p);
}

TEST(p7_an_entry_on_another_base_is_void_abort_included)
{
    pair p = a_pair(true);
    p.entry.base.bytes[0] ^= 1;
    CHECK_CONTAINS("base", reason(&p));
    p.entry.commit = false;
    CHECK_CONTAINS("base", reason(&p));
    done(&p);
}

TEST(p15_an_entry_that_counts_two_generations_of_a_replica_is_void)
{
    pair p = a_pair(true);
    strcpy(p.entry.members[0].generation.replica, "b");
    CHECK_CONTAINS("twice", reason(&p));
    done(&p);
}

TEST(p7_commit_without_members_is_void)
{
    pair p = a_pair(true);
    p.entry.n_members = 0;
    CHECK_CONTAINS("no contribution", reason(&p));
    done(&p);
}

TEST(p4_an_applied_entry_is_the_next_ones_prev)
{
    pair p = a_pair(true);
    dl_control_apply(&p.control, &p.entry, hash_of("text"));
    CHECK_INT(8, p.control.entry);
    CHECK(dl_hash_equal(hash_of("text"), p.control.prev));
    done(&p);
}

TEST(p9_every_entry_an_abort_too_sets_roster_lr_and_mu_of_the_next)
{
    for (int commit = 0; commit < 2; commit++) {
        pair p = a_pair(commit);
        CHECK(dl_roster_add(&p.entry.roster, "d", 1));
        p.entry.last = true;
        dl_control_apply(&p.control, &p.entry, hash_of("text"));
        CHECK_STR("d:1", names_of(&p.control.roster));
        CHECK(p.control.lr == 0.5f && p.control.mu == 0.8f && p.control.last);
        done(&p);
    }
}

TEST(p10_aborts_and_voids_in_a_row_are_counted_until_a_commit)
{
    pair p = a_pair(false);
    dl_control_apply(&p.control, &p.entry, hash_of("1"));
    dl_control_apply_void(&p.control, &p.entry, hash_of("2"));
    dl_control_apply(&p.control, &p.entry, hash_of("3"));
    CHECK_INT(3, p.control.n_aborts);
    p.entry.commit = true;
    dl_control_apply(&p.control, &p.entry, hash_of("4"));
    CHECK_INT(0, p.control.n_aborts);
    done(&p);
}

TEST(p25_the_newest_snapshot_that_was_named_stays_known)
{
    pair p = a_pair(true);
    p.entry.snapshot = 5;
    dl_control_apply(&p.control, &p.entry, hash_of("1"));
    p.entry.snapshot = 3; /* a committer that did not know of it */
    dl_control_apply(&p.control, &p.entry, hash_of("2"));
    CHECK_INT(5, p.control.snapshot);
    done(&p);
}

TEST(p7_a_void_entry_keeps_the_roster_but_for_its_committer_and_changes_nothing_else)
{
    pair p = a_pair(true);
    p.entry.snapshot = 6;
    dl_control_apply_void(&p.control, &p.entry, hash_of("text"));
    CHECK_INT(8, p.control.entry);
    CHECK(dl_hash_equal(hash_of("text"), p.control.prev));
    CHECK_STR("a:0 c:0", names_of(&p.control.roster));
    CHECK(p.control.lr == 0.7f && p.control.mu == 0.9f);
    CHECK_INT(0, p.control.snapshot);
    done(&p);
}

TEST(p7_void_entry_of_an_unlisted_committer_leaves_the_roster)
{
    pair p = a_pair(true);
    strcpy(p.entry.committer.replica, "z");
    dl_control_apply_void(&p.control, &p.entry, hash_of("text"));
    CHECK_STR("a:0 b:0 c:0", names_of(&p.control.roster));
    done(&p);
}

TEST(p9_commit_keeps_a_replica_that_misses_its_first_entry)
{
    pair p = a_pair(true);
    CHECK_STR("a:0 b:0 c:1", next_roster(&p, false, false, false));
    done(&p);
}

TEST(p9_commit_drops_a_replica_after_two_consecutive_misses)
{
    pair p = a_pair(true);
    p.control.roster.misses[2] = 1;
    CHECK_STR("a:0 b:0", next_roster(&p, false, false, false));
    done(&p);
}

TEST(p9_being_counted_forgives_a_miss)
{
    pair p = a_pair(true);
    p.control.roster.misses[0] = 1;
    CHECK_STR("a:0 b:0 c:1", next_roster(&p, false, false, false));
    done(&p);
}

TEST(p9_a_member_from_outside_the_roster_is_on_the_next_one)
{
    pair p = a_pair(true);
    add_member(&p.entry, "d", 0);
    CHECK_STR("a:0 b:0 c:1 d:0", next_roster(&p, false, false, false));
    done(&p);
}

TEST(p10_an_abort_drops_the_silent_and_keeps_the_slow_without_a_miss)
{
    pair p = a_pair(false);
    p.entry.n_members = 1; /* a was present; b and c were not */
    CHECK_STR("a:0 c:0", next_roster(&p, false, true, false));
    done(&p);
}

TEST(p9_an_abort_does_not_count_as_a_miss)
{
    pair p = a_pair(false);
    p.control.roster.misses[2] = 1;
    CHECK_STR("a:0 b:0 c:1", next_roster(&p, false, false, false));
    done(&p);
}

TEST(p10_present_replica_stays_even_if_its_heartbeat_is_silent)
{
    pair p = a_pair(false);
    CHECK_STR("a:0 b:0 c:0", next_roster(&p, true, true, false));
    done(&p);
}

TEST(p26_only_the_generation_that_the_entry_before_names_may_commit)
{
    pair p = a_pair(true);
    p.entry.committer.number = 2;
    strcpy(p.control.committer.replica, "b");
    p.control.committer.number = DL_GENERATION_ANY;
    CHECK(!reason(&p));
    dl_control_apply(&p.control, &p.entry, hash_of("text"));
    CHECK_INT(2, p.control.committer.number);
    p.entry.entry = 8;
    p.entry.prev = p.control.prev;
    CHECK(!reason(&p));
    p.entry.committer.number = 3; /* another generation of it */
    CHECK_CONTAINS("committer", reason(&p));
    strcpy(p.entry.committer.replica, "a");
    p.entry.committer.number = 2;
    CHECK_CONTAINS("committer", reason(&p));
    done(&p);
}

TEST(p26_takeover_names_another_committer_and_a_void_entry_none)
{
    pair p = a_pair(false);
    strcpy(p.control.committer.replica, "a");
    p.control.committer.number = 1;
    CHECK_CONTAINS("committer", reason(&p));
    dl_control_apply_void(&p.control, &p.entry, hash_of("void"));
    CHECK_STR("a", p.control.committer.replica);
    p.entry.entry = 8;
    p.entry.prev = p.control.prev;
    p.entry.abort.takeover = true;
    CHECK(!reason(&p));
    dl_control_apply(&p.control, &p.entry, hash_of("text"));
    CHECK_STR("b", p.control.committer.replica);
    done(&p);
}

TEST_MAIN(p26_only_the_generation_that_the_entry_before_names_may_commit,
          p26_takeover_names_another_committer_and_a_void_entry_none,
          an_entry_that_fits_the_state_before_it_is_not_void, p7_an_entry_of_another_run_is_void,
          p7_an_entry_under_another_number_than_its_own_is_void, p7_entry_with_a_wrong_prev_is_void,
          p7_an_entry_on_another_base_is_void_abort_included,
          p15_an_entry_that_counts_two_generations_of_a_replica_is_void,
          p7_commit_without_members_is_void, p4_an_applied_entry_is_the_next_ones_prev,
          p9_every_entry_an_abort_too_sets_roster_lr_and_mu_of_the_next,
          p10_aborts_and_voids_in_a_row_are_counted_until_a_commit,
          p25_the_newest_snapshot_that_was_named_stays_known,
          p7_a_void_entry_keeps_the_roster_but_for_its_committer_and_changes_nothing_else,
          p7_void_entry_of_an_unlisted_committer_leaves_the_roster,
          p9_commit_keeps_a_replica_that_misses_its_first_entry,
          p9_commit_drops_a_replica_after_two_consecutive_misses, p9_being_counted_forgives_a_miss,
          p9_a_member_from_outside_the_roster_is_on_the_next_one,
          p10_an_abort_drops_the_silent_and_keeps_the_slow_without_a_miss,
          p9_an_abort_does_not_count_as_a_miss,
          p10_present_replica_stays_even_if_its_heartbeat_is_silent)
