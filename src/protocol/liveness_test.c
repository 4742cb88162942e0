/* liveness_test.c - P11: silence is what this observer saw, by its own clock. */
#include "protocol/liveness.h"

#include "check.h"

static const dl_time PATIENCE = 30 * DL_SECOND;

static dl_watch fresh(void)
{
    static dl_watched rows[DL_WATCH_MAX];
    return (dl_watch){.at = rows};
}

static dl_seen beat_of(const char *replica, uint32_t generation, const char *content)
{
    dl_seen s = {.generation.number = generation,
                 .content = dl_hash_bytes(content, strlen(content))};
    snprintf(s.generation.replica, sizeof s.generation.replica, "%s", replica);
    return s;
}

static void see(dl_watch *w, dl_seen seen, int at_s)
{
    dl_watch_see(w, &seen, 1, at_s * DL_SECOND);
}

static bool silent(dl_watch *w, const char *replica, int at_s)
{
    dl_generation whose;
    return dl_watch_is_silent(w, replica, at_s * DL_SECOND, PATIENCE, &whose);
}

TEST(p11_a_heartbeat_that_stays_the_same_for_patience_is_silent)
{
    dl_watch w = fresh();
    see(&w, beat_of("a", 0, "1"), 100);
    CHECK(!silent(&w, "a", 129));
    CHECK(silent(&w, "a", 130));
}

TEST(p11_changed_heartbeat_restarts_the_patience)
{
    dl_watch w = fresh();
    see(&w, beat_of("a", 0, "1"), 100);
    see(&w, beat_of("a", 0, "2"), 125);
    CHECK(!silent(&w, "a", 154));
    see(&w, beat_of("a", 0, "2"), 154); /* the same again changes nothing */
    CHECK(silent(&w, "a", 155));
}

TEST(p11_contribution_restarts_the_patience)
{
    dl_watch w = fresh();
    dl_watch_present(&w, "a", 90 * DL_SECOND); /* never seen: nothing to restart */
    see(&w, beat_of("a", 0, "1"), 100);
    dl_watch_present(&w, "a", 125 * DL_SECOND);
    CHECK(!silent(&w, "a", 154));
    CHECK(silent(&w, "a", 155));
}

static dl_seen signed_beat(const char *replica, uint32_t generation, uint64_t beat)
{
    char content[32];
    snprintf(content, sizeof content, "%llu", (unsigned long long)beat);
    dl_seen s = beat_of(replica, generation, content);
    s.beat = beat;
    return s;
}

/* Anyone may write an old signed heartbeat again. */
TEST(p11_of_signed_heartbeats_only_a_higher_number_is_a_change)
{
    dl_watch w = fresh();
    see(&w, signed_beat("a", 0, 5), 100);
    see(&w, signed_beat("a", 0, 6), 125);
    see(&w, signed_beat("a", 0, 5), 140);
    see(&w, signed_beat("a", 0, 6), 150);
    CHECK(!silent(&w, "a", 154));
    CHECK(silent(&w, "a", 155));
    see(&w, signed_beat("a", 1, 1), 156); /* a later generation counts from 1 */
    CHECK(!silent(&w, "a", 157));
}

TEST(p11_patience_counts_from_the_first_look_at_a_heartbeat)
{
    dl_watch w = fresh();
    see(&w, beat_of("a", 0, "written an hour ago"), 3600);
    CHECK(!silent(&w, "a", 3600));
}

TEST(p11_the_absence_of_a_heartbeat_is_watched_like_one)
{
    dl_watch w = fresh();
    CHECK(!silent(&w, "a", 100));
    CHECK(!silent(&w, "a", 129));
    CHECK(silent(&w, "a", 130));
}

TEST(p11_a_first_heartbeat_ends_the_absence)
{
    dl_watch w = fresh();
    CHECK(!silent(&w, "a", 100));
    see(&w, beat_of("a", 0, "1"), 129);
    CHECK(!silent(&w, "a", 130));
}

TEST(p9_an_ended_generation_is_silent_at_once)
{
    dl_watch w = fresh();
    dl_seen s = beat_of("a", 0, "1");
    s.ended = true;
    see(&w, s, 100);
    CHECK(silent(&w, "a", 100));
}

TEST(p15_newest_generation_has_to_write_heartbeats)
{
    dl_watch w = fresh();
    dl_generation whose;
    see(&w, beat_of("a", 0, "1"), 0);
    see(&w, beat_of("a", 2, "1"), 100);
    see(&w, beat_of("a", 1, "1"), 100);
    CHECK(!silent(&w, "a", 129));
    see(&w, beat_of("a", 1, "2"), 129); /* heartbeats of an earlier generation do not count */
    CHECK(dl_watch_is_silent(&w, "a", 130 * DL_SECOND, PATIENCE, &whose));
    CHECK_INT(2, whose.number);
}

TEST(p11_other_replicas_heartbeats_say_nothing_of_this_one)
{
    dl_watch w = fresh();
    see(&w, beat_of("a", 0, "1"), 100);
    see(&w, beat_of("b", 0, "1"), 129);
    CHECK(silent(&w, "a", 130) && !silent(&w, "b", 130));
}

/* One look at the heartbeats of n replicas that no other look has. */
static void see_others(dl_watch *w, char first, int n, int at_s)
{
    static dl_seen seen[DL_WATCH_MAX];
    char name[DL_REPLICA_MAX + 1];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%c%d", first, i);
        seen[i] = beat_of(name, 0, "1");
    }
    dl_watch_see(w, seen, (size_t)n, at_s * DL_SECOND);
}

TEST(full_table_watches_a_new_replica_in_place_of_one_seen_long_ago)
{
    dl_watch w = fresh();
    see(&w, beat_of("member", 0, "1"), 0);
    CHECK(!silent(&w, "member", 0));
    see_others(&w, 'a', DL_WATCH_MAX, 1); /* the last one has no place */
    CHECK(!silent(&w, "member", 1));
    CHECK(!silent(&w, "late", 1)); /* absent: it takes a place of this look's */
    see_others(&w, 'b', DL_WATCH_MAX, 20);
    CHECK(!silent(&w, "member", 29) && !silent(&w, "late", 30));
    CHECK(silent(&w, "member", 30) && silent(&w, "late", 31));
}

TEST(replica_that_appears_in_a_full_table_is_not_silent)
{
    dl_watch w = fresh();
    CHECK(!silent(&w, "late", 0));
    see_others(&w, 'a', DL_WATCH_MAX, 1);
    CHECK(!silent(&w, "late", 1));
    see(&w, beat_of("late", 3, "1"), 29);
    CHECK(!silent(&w, "late", 58));
    CHECK(silent(&w, "late", 59));
}

TEST(full_table_of_roster_members_leaves_a_further_replica_unwatched)
{
    dl_watch w = fresh();
    char name[DL_REPLICA_MAX + 1];
    for (int i = 0; i < DL_WATCH_MAX; i++) {
        snprintf(name, sizeof name, "r%d", i);
        CHECK(!silent(&w, name, 0));
    }
    CHECK(!silent(&w, "late", 0) && !silent(&w, "late", 1000));
    CHECK(silent(&w, "r7", 1000));
}

TEST_MAIN(p11_a_heartbeat_that_stays_the_same_for_patience_is_silent,
          p11_changed_heartbeat_restarts_the_patience, p11_contribution_restarts_the_patience,
          p11_patience_counts_from_the_first_look_at_a_heartbeat,
          p11_of_signed_heartbeats_only_a_higher_number_is_a_change,
          p11_the_absence_of_a_heartbeat_is_watched_like_one,
          p11_a_first_heartbeat_ends_the_absence, p9_an_ended_generation_is_silent_at_once,
          p15_newest_generation_has_to_write_heartbeats,
          p11_other_replicas_heartbeats_say_nothing_of_this_one,
          full_table_watches_a_new_replica_in_place_of_one_seen_long_ago,
          replica_that_appears_in_a_full_table_is_not_silent,
          full_table_of_roster_members_leaves_a_further_replica_unwatched)
