/* node_test.c - the rules of a node without a log, each by itself. sim_test.c has them together. */
#include "gossip/node.h"

#include "check.h"

#define S DL_SECOND

static const char run[] = "0123456789abcdef0123456789abcdef";

static dl_beat beat(int i)
{
    dl_beat b = {.run = "0123456789abcdef0123456789abcdef"};
    snprintf(b.generation.replica, sizeof b.generation.replica, "r%d", i);
    snprintf(b.id, sizeof b.id, "%032x", (unsigned)i + 1);
    snprintf(b.address, sizeof b.address, "http://n:%d", i + 1);
    return b;
}

/* r0, which knows r1 … r<n-1>, at the end of its first round's steps. */
static dl_node exchanging(size_t n, const char *exchange, size_t min_peers)
{
    dl_node node;
    const dl_beat self = beat(0);
    const dl_node_rules rules = {.seed = 1,
                                 .pairs = exchange[0] == 'p',
                                 .min_peers = min_peers,
                                 .expected = n,
                                 .rounds = 9,
                                 .start = 60 * S,
                                 .patience = 20 * S,
                                 .deadline = 10 * S};
    dl_node_init(&node, &rules, &self, 0, 0);
    for (int i = 1; i < (int)n; i++) {
        const dl_beat b = beat(i);
        CHECK_INT(i - 1, dl_node_heard(&node, &b, 0));
    }
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&node, 0));
    dl_node_trained(&node, 0);
    return node;
}

static void arrive(dl_node *n, size_t member, dl_time now)
{
    CHECK(dl_node_got(n, member, dl_node_wants(n, member, now)));
}

TEST(a_round_ends_when_all_that_are_live_have_come)
{
    dl_node n = exchanging(3, "all", 2);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, S));
    arrive(&n, 0, S);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, S));
    arrive(&n, 1, S);
    CHECK_INT(DL_TODO_STEP, dl_node_next(&n, S));
    dl_node_stepped(&n, true, S);
    CHECK_INT(1, n.round);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, S));
}

TEST(a_round_ends_at_its_deadline_without_a_stalled_node_and_does_not_wait_for_it_again)
{
    dl_node n = exchanging(3, "all", 2);
    arrive(&n, 0, S);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 9 * S));
    CHECK_INT(DL_TODO_STEP, dl_node_next(&n, 10 * S));
    CHECK(n.members[1].late);
    dl_node_stepped(&n, true, 10 * S);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, 10 * S));
    dl_node_trained(&n, 11 * S);
    arrive(&n, 0, 11 * S);
    CHECK_INT(DL_TODO_STEP, dl_node_next(&n, 11 * S));
}

TEST(nothing_is_wanted_of_a_member_that_keeps_no_object_of_the_round)
{
    dl_node n = exchanging(3, "all", 2);
    dl_beat b = beat(1);
    b.contributed = DL_NODE_KEEP;
    dl_node_heard(&n, &b, S);
    CHECK_INT(DL_OBJECT_CONTRIBUTION, dl_node_wants(&n, 0, S).object);
    b.contributed = DL_NODE_KEEP + 1;
    dl_node_heard(&n, &b, S);
    CHECK_INT(DL_OBJECT_NONE, dl_node_wants(&n, 0, S).object);
    CHECK_INT(DL_OBJECT_CONTRIBUTION, dl_node_wants(&n, 1, S).object);
}

/* Objects may come before the heartbeat that announces them, and after a later one. */
TEST(agreement_waits_for_each_node_whose_contribution_came_before_its_heartbeat)
{
    dl_node n = exchanging(3, "all", 2);
    n.rules.agree_every = 2;
    for (int round = 0; round < 2; round++) {
        if (round) {
            CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, S));
            dl_node_trained(&n, S);
        }
        arrive(&n, 0, S);
        arrive(&n, 1, S);
        CHECK_INT(DL_TODO_STEP, dl_node_next(&n, S));
        dl_node_stepped(&n, true, S);
    }
    CHECK_INT(DL_TODO_PUBLISH, dl_node_next(&n, S));
    dl_node_published(&n, S);
    const dl_beat late = beat(2); /* from before its first contribution */
    dl_node_heard(&n, &late, S);
    arrive(&n, 0, S);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, S));
    arrive(&n, 1, S);
    CHECK_INT(DL_TODO_AGREE, dl_node_next(&n, S));
}

/* r2's heartbeats say that it has contributed, and nothing of it ever comes: rounds 0, 2, 5, 10, 19
 * and 36 wait for it. */
TEST(a_node_that_says_it_contributed_and_sends_nothing_is_waited_for_ever_more_seldom)
{
    dl_node n = exchanging(3, "all", 2);
    dl_time now = S;
    int deadlines = 0;
    n.rules.rounds = 100;
    for (uint64_t round = 0; round < 40; round++) {
        for (int i = 1; i < 3; i++) {
            dl_beat b = beat(i);
            b.contributed = round + 1;
            dl_node_heard(&n, &b, now);
        }
        arrive(&n, 0, now);
        if (dl_node_next(&n, now) == DL_TODO_WAIT) {
            deadlines++;
            now = n.until;
            CHECK_INT(DL_TODO_STEP, dl_node_next(&n, now));
        }
        dl_node_stepped(&n, true, now);
        CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, now));
        dl_node_trained(&n, now);
    }
    CHECK_INT(6, deadlines);
    arrive(&n, 1, now); /* it came: it is waited for again */
    arrive(&n, 0, now);
    CHECK_INT(DL_TODO_STEP, dl_node_next(&n, now));
    dl_node_stepped(&n, true, now);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, now));
    dl_node_trained(&n, now);
    arrive(&n, 0, now);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, now));
}

TEST(with_fewer_than_min_peers_at_the_deadline_the_round_is_skipped)
{
    dl_node n = exchanging(3, "all", 3);
    arrive(&n, 0, S);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 9 * S));
    CHECK_INT(DL_TODO_PASS, dl_node_next(&n, 10 * S));
    dl_node_stepped(&n, false, 10 * S);
    CHECK_INT(0, n.self.stepped);
    CHECK_INT(1, n.round);
}

TEST(no_node_steps_alone_after_all_others_left)
{
    dl_node n = exchanging(3, "all", 2);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 9 * S));
    n.members[0].heard = n.members[1].heard = -100 * S;
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 9 * S));
    CHECK_INT(DL_TODO_PASS, dl_node_next(&n, 10 * S));
}

TEST(a_second_object_of_a_name_does_not_count_twice)
{
    dl_node n = exchanging(3, "all", 2);
    const dl_want want = dl_node_wants(&n, 0, S);
    size_t set[DL_NODE_MAX + 1];
    CHECK(dl_node_got(&n, 0, want));
    CHECK(!dl_node_got(&n, 0, want));
    CHECK_INT(2, dl_node_set(&n, set));
}

TEST(a_message_for_another_round_is_not_accepted)
{
    dl_node n = exchanging(3, "all", 2);
    dl_want want = dl_node_wants(&n, 0, S);
    want.round = 7;
    CHECK(!dl_node_got(&n, 0, want));
    dl_node_refused(&n, 0, want, DL_IGNORED_FUTURE, false);
    CHECK_INT(1, n.ignored[DL_IGNORED_FUTURE]);
    CHECK_INT(1, n.self.ignored);
    CHECK_INT(DL_OBJECT_CONTRIBUTION, dl_node_wants(&n, 0, S).object);
}

TEST(a_refused_contribution_is_neither_awaited_nor_counted)
{
    dl_node n = exchanging(3, "all", 2);
    arrive(&n, 0, S);
    dl_node_refused(&n, 1, dl_node_wants(&n, 1, S), DL_IGNORED_DAMAGED, true);
    CHECK_INT(1, dl_node_n_struck(&n));
    CHECK_INT(DL_TODO_STEP, dl_node_next(&n, S));
    CHECK_INT(1, n.ignored[DL_IGNORED_DAMAGED]);
}

TEST(messages_of_another_run_name_holder_or_older_generation_are_counted_and_dropped)
{
    dl_node n = exchanging(3, "all", 2);
    dl_beat b = beat(3);
    b.run[0] = 'f';
    CHECK_INT(DL_NODE_MAX, dl_node_heard(&n, &b, S));
    CHECK_INT(1, n.ignored[DL_IGNORED_FOREIGN]);
    b = beat(1);
    b.id[0] = 'f';
    CHECK_INT(DL_NODE_MAX, dl_node_heard(&n, &b, S));
    CHECK_INT(1, n.ignored[DL_IGNORED_DUPLICATE]);
    b = beat(1);
    b.generation.number = 1;
    CHECK_INT(0, dl_node_heard(&n, &b, S));
    b.generation.number = 0;
    CHECK_INT(DL_NODE_MAX, dl_node_heard(&n, &b, S));
    CHECK_INT(2, n.ignored[DL_IGNORED_DUPLICATE]);
    b = beat(0);
    CHECK_INT(DL_NODE_MAX, dl_node_heard(&n, &b, S)); /* itself: nothing wrong with that */
    CHECK_INT(2, n.ignored[DL_IGNORED_DUPLICATE]);
}

TEST(members_are_bounded_and_a_silent_one_is_replaced)
{
    dl_node n = exchanging(2, "all", 2);
    for (int i = 2; i <= DL_NODE_MAX; i++) {
        const dl_beat b = beat(i);
        CHECK(dl_node_heard(&n, &b, 5 * S) < DL_NODE_MAX);
    }
    const dl_beat more = beat(500);
    CHECK_INT(DL_NODE_MAX, dl_node_heard(&n, &more, 6 * S));
    CHECK_INT(0, dl_node_heard(&n, &more, 21 * S)); /* r1 was heard at 0 */
    CHECK_INT(DL_NODE_MAX, n.n_members);
}

TEST(partners_are_each_others_and_the_odd_one_passes_at_once)
{
    enum { N = 5 };
    dl_node all[N];
    const char *partner[N];
    for (int i = 0; i < N; i++) {
        const dl_beat self = beat(i);
        dl_node_init(&all[i],
                     &(dl_node_rules){.seed = 3,
                                      .pairs = true,
                                      .min_peers = 2,
                                      .expected = N,
                                      .rounds = 9,
                                      .start = S,
                                      .patience = 20 * S,
                                      .deadline = 10 * S},
                     &self, 0, 0);
        for (int j = N - 1; j >= 0; j--) { /* another order at each */
            const dl_beat b = beat((j + i) % N);
            dl_node_heard(&all[i], &b, 0);
        }
        CHECK_INT(DL_TODO_TRAIN, dl_node_next(&all[i], 0));
        dl_node_trained(&all[i], 0);
        const size_t p = all[i].partner;
        partner[i] = p == DL_NODE_MAX ? "" : all[i].members[p].beat.generation.replica;
        CHECK_INT(p == DL_NODE_MAX ? DL_TODO_PASS : DL_TODO_WAIT, dl_node_next(&all[i], S));
    }
    int alone = 0;
    for (int i = 0; i < N; i++) {
        alone += !*partner[i];
        if (*partner[i]) CHECK_STR(beat(i).generation.replica, partner[atoi(partner[i] + 1)]);
    }
    CHECK_INT(1, alone);
}

TEST(a_newcomer_copies_the_model_that_most_have)
{
    const dl_beat self = beat(0);
    dl_node n;
    dl_node_init(&n,
                 &(dl_node_rules){.min_peers = 2,
                                  .expected = 4,
                                  .rounds = 9,
                                  .start = 60 * S,
                                  .patience = 20 * S,
                                  .deadline = 10 * S},
                 &self, 0, 0);
    n.fresh = true;
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 0));
    for (int i = 1; i < 4; i++) {
        dl_beat b = beat(i);
        b.contributed = b.state = 5;
        b.digest.bytes[0] = i == 1 ? 1 : 2;
        dl_node_heard(&n, &b, S);
    }
    CHECK_INT(DL_TODO_COPY, dl_node_next(&n, S));
    CHECK_STR("r2", n.members[n.source].beat.generation.replica);
    dl_node_copied(&n, false, 0, S); /* not there: another */
    CHECK_INT(DL_TODO_COPY, dl_node_next(&n, S));
    CHECK(strcmp("r2", n.members[n.source].beat.generation.replica) != 0);
    dl_node_copied(&n, true, 5, S);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, S));
    CHECK_INT(5, n.round);
}

TEST(a_joiner_that_copied_the_first_model_waits_for_all_before_the_first_round)
{
    const dl_beat self = beat(0);
    dl_node n;
    dl_node_init(&n,
                 &(dl_node_rules){.min_peers = 3,
                                  .expected = 5,
                                  .rounds = 9,
                                  .start = 60 * S,
                                  .patience = 20 * S,
                                  .deadline = 10 * S},
                 &self, 0, 0);
    n.fresh = n.blank = true;
    for (int i = 1; i < 5; i++) {
        dl_beat b = beat(i);
        dl_node_heard(&n, &b, S);
        if (i == 1) {
            CHECK_INT(DL_TODO_COPY, dl_node_next(&n, S));
            dl_node_copied(&n, true, 0, S);
        }
        CHECK_INT(i < 4 ? DL_TODO_WAIT : DL_TODO_TRAIN, dl_node_next(&n, S));
    }
}

/* The odd one of a round passes at once: a node that starts slowly has a partner all the same. */
TEST(nodes_wait_for_a_slow_starter_and_keep_up)
{
    dl_node n;
    const dl_beat self = beat(0);
    const dl_node_rules rules = {.seed = 1,
                                 .pairs = true,
                                 .min_peers = 2,
                                 .expected = 3,
                                 .rounds = 9,
                                 .start = 60 * S,
                                 .patience = 20 * S,
                                 .deadline = 10 * S};
    dl_node_init(&n, &rules, &self, 0, 0);
    n.fresh = true;
    dl_beat ahead = beat(1), beside = beat(2);
    ahead.state = ahead.contributed = 1;
    beside.contributed = 1;
    dl_node_heard(&n, &ahead, 0);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 0)); /* its partner may not have been heard yet */
    dl_node_heard(&n, &beside, 0);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, 0));
    beside.state = 1; /* no member is left there */
    dl_node_heard(&n, &beside, 0);
    n.phase = DL_PHASE_COPY;
    CHECK_INT(DL_TODO_COPY, dl_node_next(&n, 0));
}

TEST(too_few_to_begin_with_is_said_when_the_time_is_over)
{
    const dl_beat self = beat(0);
    dl_node n;
    dl_node_init(&n,
                 &(dl_node_rules){.min_peers = 2,
                                  .expected = 4,
                                  .rounds = 9,
                                  .start = 60 * S,
                                  .patience = 20 * S,
                                  .deadline = 10 * S},
                 &self, 0, 0);
    n.fresh = true;
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 59 * S));
    CHECK_INT(DL_TODO_ALONE, dl_node_next(&n, 60 * S));
    const dl_beat b = beat(1);
    dl_node_heard(&n, &b, 61 * S);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&n, 61 * S));
}

TEST(the_last_round_lingers_until_all_are_done)
{
    dl_node n = exchanging(2, "all", 2);
    n.rules.rounds = 1;
    arrive(&n, 0, S);
    CHECK_INT(DL_TODO_STEP, dl_node_next(&n, S));
    dl_node_stepped(&n, true, S);
    CHECK(n.self.done);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, S));
    dl_beat b = beat(1);
    b.done = true;
    dl_node_heard(&n, &b, 2 * S);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&n, 2 * S));
    CHECK_INT(DL_TODO_END, dl_node_next(&n, 2 * S));
    CHECK_STR(run, n.self.run);
}

TEST_MAIN(nothing_is_wanted_of_a_member_that_keeps_no_object_of_the_round,
          a_round_ends_when_all_that_are_live_have_come,
          a_round_ends_at_its_deadline_without_a_stalled_node_and_does_not_wait_for_it_again,
          agreement_waits_for_each_node_whose_contribution_came_before_its_heartbeat,
          a_node_that_says_it_contributed_and_sends_nothing_is_waited_for_ever_more_seldom,
          with_fewer_than_min_peers_at_the_deadline_the_round_is_skipped,
          no_node_steps_alone_after_all_others_left, a_second_object_of_a_name_does_not_count_twice,
          a_message_for_another_round_is_not_accepted,
          a_refused_contribution_is_neither_awaited_nor_counted,
          messages_of_another_run_name_holder_or_older_generation_are_counted_and_dropped,
          members_are_bounded_and_a_silent_one_is_replaced,
          partners_are_each_others_and_the_odd_one_passes_at_once,
          a_newcomer_copies_the_model_that_most_have,
          a_joiner_that_copied_the_first_model_waits_for_all_before_the_first_round,
          nodes_wait_for_a_slow_starter_and_keep_up,
          too_few_to_begin_with_is_said_when_the_time_is_over,
          the_last_round_lingers_until_all_are_done)
