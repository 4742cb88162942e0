/* data_assignment_test.c - the ledger of assigned data (PROTOCOL P18), by hand. H = 5 steps of 2
 * samples, so a chunk is 10 samples; with run.replicas = 2 there are 66 slots for unlisted
 * replicas. */
#include "protocol/data_assignment.h"

#include "check.h"

enum { ROOM = 8, EACH = 10, GUESTS = 66 };

static dl_config config_of(const char *delay)
{
    dl_config c;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "data.deal", "log", "test"));
    CHECK_OK(dl_config_set(&c, "run.replicas", "2", "test"));
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_per_round", "5", "test"));
    CHECK_OK(dl_config_set(&c, "trainer.batch_size", "2", "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap_steps", delay, "test"));
    return c;
}

static dl_ledger *ledger_of(const dl_config *c)
{
    dl_schedule s;
    dl_ledger *l;
    CHECK_OK(dl_schedule_of(&s, c, 1));
    CHECK_OK(dl_ledger_create(&l, c, &s, ROOM));
    CHECK(l != NULL);
    return l;
}

static dl_ledger *a_ledger(void)
{
    const dl_config c = config_of("0");
    return ledger_of(&c);
}

static uint64_t chunk(const dl_ledger *l, uint64_t entry, const char *replica)
{
    uint64_t first = 0, len = 0;
    CHECK(dl_ledger_chunk(l, entry, replica, &first, &len));
    CHECK_INT(EACH, len);
    return first;
}

/* Makes an entry with members "r0,r1" and a roster of that form; a member may be "r1+2": held 2. */
static dl_entry entry_of(uint64_t number, bool commit, const char *members, const char *roster)
{
    dl_entry e;
    char text[128], *rest, *name;
    CHECK_OK(dl_entry_init(&e, ROOM));
    e.entry = number;
    e.commit = commit;
    snprintf(text, sizeof text, "%s", members);
    for (name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        dl_member *m = &e.members[e.n_members++];
        *m = (dl_member){.weight = 1};
        char *plus = strchr(name, '+');
        if (plus) m->held = (uint32_t)atoi(plus + 1), *plus = 0;
        snprintf(m->generation.replica, sizeof m->generation.replica, "%s", name);
    }
    snprintf(text, sizeof text, "%s", roster);
    for (name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        CHECK(dl_roster_add(&e.roster, name, 0));
    return e;
}

static void apply(dl_ledger *l, uint64_t number, bool commit, const char *members,
                  const char *roster)
{
    dl_entry e = entry_of(number, commit, members, roster);
    dl_ledger_apply(l, &e, &e.roster);
    dl_entry_deinit(&e);
}

/* Makes a contribution of r0's that used its last n chunks. */
static dl_contribution facts_of(const dl_ledger *l, uint64_t entry, const char *replica, uint64_t n)
{
    dl_contribution c = {.entry = entry, .stats.samples = n * EACH};
    snprintf(c.generation.replica, sizeof c.generation.replica, "%s", replica);
    dl_ledger_list(l, entry, replica, c.stats.samples, &c.assigned);
    return c;
}

TEST(p18_local_data_has_no_ledger_and_an_asynchronous_run_assigns_none)
{
    dl_config c = config_of("0");
    dl_schedule s;
    dl_ledger *l;
    CHECK_OK(dl_config_set(&c, "data.deal", "local", "test"));
    CHECK_OK(dl_schedule_of(&s, &c, 1));
    CHECK_OK(dl_ledger_create(&l, &c, &s, ROOM));
    CHECK(l == NULL);
    dl_ledger_destroy(l);
    CHECK_OK(dl_config_set(&c, "data.deal", "log", "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.schedule", "async", "test"));
    CHECK_OK(dl_schedule_of(&s, &c, 1));
    CHECK_STATUS(DILOCO_EREFUSED, dl_ledger_create(&l, &c, &s, ROOM));
    CHECK_CONTAINS("schedule \"offset\"", diloco_error_text());
}

TEST(p18_first_roster_is_empty_so_names_give_the_slots)
{
    dl_ledger *l = a_ledger();
    CHECK_INT(0, chunk(l, 0, "r0"));
    CHECK_INT(10, chunk(l, 0, "r1"));
    CHECK_INT(30, chunk(l, 0, "node3"));
    CHECK_INT(GUESTS * EACH, dl_ledger_cursor(l));
    CHECK_INT(GUESTS * EACH, dl_ledger_open(l));
    uint64_t first, len;
    CHECK(!dl_ledger_chunk(l, 1, "r0", &first, &len)); /* not dealt yet */
    dl_ledger_destroy(l);
}

TEST(p18_commit_counts_its_members_and_returned_samples_are_assigned_next)
{
    dl_ledger *l = a_ledger();
    apply(l, 0, true, "r0,r2", "r0,r2"); /* [0, 10) and [20, 30) */
    CHECK_INT(10, chunk(l, 1, "r0"));    /* by rank, returned ones first */
    CHECK_INT(30, chunk(l, 1, "r2"));
    CHECK_INT(50, chunk(l, 1, "r1")); /* unlisted: the second of those after the roster */
    CHECK_INT(20, dl_ledger_cursor(l) - dl_ledger_open(l));
    uint64_t first, len;
    CHECK(!dl_ledger_chunk(l, 0, "r0", &first, &len)); /* settled */
    apply(l, 1, true, "r0,r2", "r0,r2");
    CHECK_INT(40, chunk(l, 2, "r0")); /* without gaps: 0 to 40 have counted */
    CHECK_INT(40, dl_ledger_cursor(l) - dl_ledger_open(l));
    dl_ledger_destroy(l);
}

TEST(p18_an_abort_leaves_chunks_held_and_a_commit_counts_those_that_were_used)
{
    dl_ledger *l = a_ledger();
    apply(l, 0, true, "r0,r1", "r0,r1");
    apply(l, 1, false, "r0", "r0,r1"); /* [20, 30), [30, 40) held */
    CHECK(dl_ledger_holds(l));
    const uint64_t next = chunk(l, 2, "r0"), other = chunk(l, 2, "r1");
    const dl_contribution both = facts_of(l, 2, "r0", 2), one = facts_of(l, 2, "r1", 1);
    CHECK_INT(2, both.assigned.n);
    CHECK_INT(20, both.assigned.first[0]);
    CHECK_INT(next, both.assigned.first[1]);
    CHECK(!dl_ledger_refuses(l, &both) && !dl_ledger_refuses(l, &one));
    CHECK_INT(other, one.assigned.first[0]);
    apply(l, 2, true, "r0+1,r1", "r0,r1");
    CHECK_INT(20 + 20 + 10, dl_ledger_cursor(l) - dl_ledger_open(l));
    CHECK_INT(30, chunk(l, 3, "r0")); /* r1's of entry 1 did not count */
    CHECK(!dl_ledger_holds(l));
    dl_ledger_destroy(l);
}

TEST(p18_after_sixteen_aborts_in_a_row_all_is_returned)
{
    dl_ledger *l = a_ledger();
    for (uint64_t e = 0; e < 15; e++)
        apply(l, e, false, "r0", "r0,r1");
    CHECK(dl_ledger_holds(l));
    CHECK_INT(16, facts_of(l, 15, "r0", 16).assigned.n);
    dl_ledger_apply(l, NULL, &(dl_roster){.n = 0}); /* a void one is an abort */
    CHECK(!dl_ledger_holds(l));
    CHECK_INT(dl_ledger_cursor(l), dl_ledger_open(l));
    CHECK_INT(0, chunk(l, 16, "r0"));
    dl_ledger_destroy(l);
}

TEST(p18_gradients_are_lost_with_an_abort_and_their_samples_returned)
{
    dl_config c = config_of("0");
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_per_round", "1", "test"));
    dl_ledger *l = ledger_of(&c);
    apply(l, 0, true, "r0,r1", "r0,r1"); /* a chunk is 2 samples */
    apply(l, 1, false, "r0", "r0,r1");
    CHECK(!dl_ledger_holds(l));
    uint64_t first, len;
    CHECK(dl_ledger_chunk(l, 2, "r0", &first, &len));
    CHECK_INT(4, first);
    CHECK_INT(2, len);
    dl_ledger_destroy(l);
}

static void check_refused(const dl_ledger *l, dl_contribution c, const char *part)
{
    const char *why = dl_ledger_refuses(l, &c);
    if (!why) CHECK_FAIL("not refused, and should be: %s", part);
    CHECK_CONTAINS(part, why);
}

TEST(p18_a_contribution_of_other_samples_than_its_own_is_refused_by_name)
{
    dl_ledger *l = a_ledger();
    apply(l, 0, true, "r0,r1", "r0,r1");
    apply(l, 1, false, "r0,r1", "r0,r1");
    const dl_contribution good = facts_of(l, 2, "r0", 1);
    CHECK(!dl_ledger_refuses(l, &good));
    dl_contribution c = good;
    c.assigned.first[0] = chunk(l, 2, "r1");
    check_refused(l, c, "not dealt to it");
    c = good;
    c.assigned.n = 0;
    check_refused(l, c, "does not say");
    c = good;
    c.stats.samples = 9;
    check_refused(l, c, "whole");
    c = good;
    c.assigned.len = 20;
    check_refused(l, c, "whole");
    c = facts_of(l, 2, "r0", 2);
    c.stats.samples += EACH;
    c.assigned.n = 3;
    check_refused(l, c, "have counted or were returned");
    c = good;
    c.stats.samples = 0;
    check_refused(l, c, "not trained on");
    c.assigned = (dl_assigned){.n = 0};
    CHECK(!dl_ledger_refuses(l, &c)); /* it skips the entry */
    dl_ledger_destroy(l);
}

TEST(p18_of_two_unlisted_replicas_on_one_slot_an_entry_counts_one)
{
    dl_ledger *l = a_ledger(), *scratch = a_ledger();
    apply(l, 0, true, "r0,r1", "r0,r1");
    CHECK_INT(chunk(l, 1, "r7"), chunk(l, 1, "q7"));
    dl_entry e = entry_of(1, true, "q7,r0", "q7,r0");
    const dl_member twin = {.generation.replica = "r7"}, other = {.generation.replica = "r1"};
    CHECK(!dl_ledger_has_room(l, &e, &twin));
    CHECK(dl_ledger_has_room(l, &e, &other));
    dl_entry_deinit(&e);
    e = entry_of(1, true, "q7,r7", "q7,r0");
    e.assignment.there = true;
    CHECK_CONTAINS("counts samples twice", dl_ledger_void_reason(l, scratch, &e));
    dl_entry_deinit(&e);
    dl_ledger_destroy(scratch);
    dl_ledger_destroy(l);
}

TEST(p18_entry_with_another_ledger_is_void)
{
    dl_ledger *l = a_ledger(), *scratch = a_ledger();
    dl_entry e = entry_of(0, true, "r0,r1", "r0,r1");
    CHECK_CONTAINS("deals no data", dl_ledger_void_reason(l, scratch, &e));
    dl_ledger_copy(scratch, l);
    dl_ledger_apply(scratch, &e, &e.roster);
    e.assignment = dl_ledger_assignment(scratch);
    CHECK(e.assignment.there && e.assignment.len == EACH &&
          e.assignment.cursor == dl_ledger_cursor(scratch));
    CHECK(!dl_ledger_void_reason(l, scratch, &e));
    e.members[1].held = 1;
    CHECK_CONTAINS("have counted or were returned", dl_ledger_void_reason(l, scratch, &e));
    e.members[1].held = 0;
    e.assignment.ledger.bytes[0] ^= 1;
    CHECK_CONTAINS("not what the ledger gives", dl_ledger_void_reason(l, scratch, &e));
    CHECK(!dl_ledger_gives(l, scratch, &e));
    dl_entry_deinit(&e);
    dl_ledger_destroy(scratch);
    dl_ledger_destroy(l);
}

TEST(p18_with_overlap_assigned_samples_are_never_assigned_again)
{
    dl_config c = config_of("2");
    dl_ledger *l = ledger_of(&c);
    CHECK(!dl_ledger_is_exact(l) && !dl_assignment_is_exact(&c));
    const uint64_t ahead = chunk(l, 1, "r0"); /* L = 1, and one more is dealt ahead */
    apply(l, 0, true, "r0,r1", "r0,r1");
    CHECK_INT(ahead, chunk(l, 1, "r0")); /* as an unlisted replica */
    const uint64_t lost = chunk(l, 2, "r1");
    apply(l, 1, true, "r0,r1", "r0,r1");
    apply(l, 2, true, "r0", "r0,r1"); /* r1 is skipped: by rank, its chunk is used up */
    for (uint64_t e = 3; e < 12; e++) {
        CHECK(chunk(l, e, "r0") != lost && chunk(l, e, "r1") != lost);
        apply(l, e, e % 3 > 0, "r0,r1", "r0,r1");
    }
    dl_ledger_destroy(l);
}

/* Returns the text of a ledger as a member of an object. */
static dl_buf text_of(const dl_ledger *l)
{
    dl_buf text;
    dl_json j;
    dl_buf_init(&text, 1 << 20);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_ledger_write(&j, l);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    return text;
}

TEST(p18_a_ledger_comes_back_from_a_snapshot_as_it_was)
{
    dl_ledger *l = a_ledger(), *back = a_ledger();
    apply(l, 0, true, "r0,r5", "r0,r5");
    apply(l, 1, true, "r0", "r0,r5");
    apply(l, 2, false, "r0,r5", "r0,r5");
    dl_buf text = text_of(l);
    dl_json_value root;
    CHECK_OK(dl_json_parse(&root, text.data, text.len));
    CHECK_OK(dl_ledger_read(back, root, 3));
    CHECK(dl_hash_equal(dl_ledger_assignment(l).ledger, dl_ledger_assignment(back).ledger));
    CHECK_INT(chunk(l, 3, "r5"), chunk(back, 3, "r5"));
    apply(l, 3, true, "r0+1,r5+1", "r0,r5");
    apply(back, 3, true, "r0+1,r5+1", "r0,r5");
    CHECK(dl_hash_equal(dl_ledger_assignment(l).ledger, dl_ledger_assignment(back).ledger));
    dl_buf_deinit(&text);
    dl_ledger_destroy(back);
    dl_ledger_destroy(l);
}

static void check_unreadable(const char *text, const char *part)
{
    dl_ledger *l = a_ledger();
    dl_json_value root;
    CHECK_OK(dl_json_parse(&root, text, strlen(text)));
    CHECK_STATUS(DILOCO_EPROTO, dl_ledger_read(l, root, 1));
    CHECK_CONTAINS(part, diloco_error_text());
    dl_ledger_destroy(l);
}

TEST(p18_invalid_ledger_is_refused)
{
#define LEDGER(returned, first, assignments)                                                       \
    "{\"ledger\":{\"cursor\":900,\"returned\":" returned ",\"first\":" first                       \
    ",\"deals\":" assignments "}}"
#define DEAL(roster, chunks)                                                                       \
    "[{\"each\":10,\"roster\":" roster ",\"misses\":[],\"chunks\":" chunks "}]"
    check_unreadable("{}", "no ledger");
    check_unreadable(LEDGER("[[10,20],[20,30]]", "1", "[]"), "do not ascend");
    check_unreadable(LEDGER("[[10,10]]", "1", "[]"), "do not ascend");
    check_unreadable(LEDGER("[[890,900]]", "1", "[]"), "do not ascend");
    check_unreadable(LEDGER("[[1]]", "1", "[]"), "pair");
    check_unreadable(LEDGER("[]", "2", "[]"), "\"first\"");
    check_unreadable(LEDGER("[]", "1", "[]"), "deals");
    check_unreadable(LEDGER("[]", "1", "[7]"), "no deal");
    check_unreadable(LEDGER("[]", "1", DEAL("[]", "[[0,67]]")), "more chunks");
    check_unreadable(LEDGER("[]", "1", DEAL("[]", "[[0,65]]")), "fewer chunks");
    check_unreadable(LEDGER("[]", "1", DEAL("[\"r0\"]", "[[0,66]]")), "misses");
}

TEST_MAIN(p18_local_data_has_no_ledger_and_an_asynchronous_run_assigns_none,
          p18_first_roster_is_empty_so_names_give_the_slots,
          p18_commit_counts_its_members_and_returned_samples_are_assigned_next,
          p18_an_abort_leaves_chunks_held_and_a_commit_counts_those_that_were_used,
          p18_after_sixteen_aborts_in_a_row_all_is_returned,
          p18_gradients_are_lost_with_an_abort_and_their_samples_returned,
          p18_a_contribution_of_other_samples_than_its_own_is_refused_by_name,
          p18_of_two_unlisted_replicas_on_one_slot_an_entry_counts_one,
          p18_entry_with_another_ledger_is_void,
          p18_with_overlap_assigned_samples_are_never_assigned_again,
          p18_a_ledger_comes_back_from_a_snapshot_as_it_was, p18_invalid_ledger_is_refused)
