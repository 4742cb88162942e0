/* candidates_test.c - which contributions of the open entry count: P7, P8, P10, P15. */
#include "protocol/candidates.h"

#include "base/rng.h"

#include "check.h"

enum { ROOM = 3 };

typedef struct table {
    dl_candidate rows[ROOM];
    dl_candidate_table t;
} table;

static dl_candidate_table *empty(table *t)
{
    t->t = (dl_candidate_table){.at = t->rows, .cap = ROOM};
    return &t->t;
}

static dl_generation generation_of(const char *replica, uint32_t number)
{
    dl_generation generation = {.number = number};
    snprintf(generation.replica, sizeof generation.replica, "%s", replica);
    return generation;
}

static dl_candidate *add(dl_candidate_table *t, const char *replica, uint32_t number)
{
    const dl_generation generation = generation_of(replica, number);
    return dl_candidate_add(t, &generation, 0, 100);
}

static dl_candidate *add_valid(dl_candidate_table *t, const char *replica, uint32_t generation)
{
    dl_candidate *k = add(t, replica, generation);
    dl_candidate_accept(k, &(dl_contribution){.stats.samples = 5}, 2.0);
    return k;
}

TEST(generation_is_added_once)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *first = add(t, "a", 0);
    CHECK(first == add(t, "a", 0));
    CHECK(first != add(t, "a", 1));
    CHECK_INT(2, t->n);
    CHECK_INT(1, dl_candidate_slot(t, add(t, "a", 1)));
}

TEST(a_full_table_takes_no_more_but_still_finds)
{
    table s;
    dl_candidate_table *t = empty(&s);
    add(t, "a", 0), add(t, "b", 0), add(t, "c", 0);
    CHECK(add(t, "d", 0) == NULL);
    CHECK(add(t, "b", 0) == &s.rows[1]);
}

static bool is_not_b(const void *context, const dl_candidate *known)
{
    (void)context;
    return strcmp(known->generation.replica, "b") != 0;
}

TEST(a_full_table_gives_away_the_place_of_a_row_that_is_not_to_be_kept)
{
    table s;
    dl_candidate_table *t = empty(&s);
    const dl_generation d = generation_of("d", 0), e = generation_of("e", 0);
    add(t, "a", 0), add_valid(t, "b", 0), add(t, "c", 0);
    dl_candidate *k = dl_candidate_replace(t, &d, 7, 100, is_not_b, NULL);
    CHECK(k == &s.rows[1] && k->validity == DL_UNREAD);
    CHECK_INT(7, k->entry);
    CHECK(dl_candidate_replace(t, &d, 7, 100, is_not_b, NULL) == k); /* it is in the table */
    CHECK(dl_candidate_replace(t, &e, 7, 100, is_not_b, NULL) == NULL);
    CHECK_INT(3, t->n);
}

TEST(p9_present_skipping_or_hopeless_replica_counts_as_one_answer)
{
    table s;
    dl_candidate_table *t = empty(&s);
    CHECK_INT(0, dl_candidate_n_answered(t, false));
    dl_candidate *a = add(t, "a", 0);
    CHECK_INT(0, dl_candidate_n_answered(t, false)); /* not read yet */
    dl_candidate_accept(a, &(dl_contribution){.stats.samples = 0}, 0);
    CHECK_INT(1, dl_candidate_n_answered(t, false));
    add_valid(t, "a", 1);
    CHECK_INT(1, dl_candidate_n_answered(t, false));
    dl_candidate *b = add(t, "b", 0);
    while (dl_candidate_doubt(b, "bound")) {
    }
    CHECK_INT(2, dl_candidate_n_answered(t, false));
}

/* Anyone can upload junk under a name that no replica has. */
TEST(p9_object_without_a_contribution_header_is_no_answer)
{
    static const char *const junk[] = {"truncated", "header", "foreign"};
    static const char *const own[] = {"base", "shape", "codec", "checksum", "non-finite", "bound"};
    table s;
    dl_candidate_table *t = empty(&s);
    for (size_t i = 0; i < 3; i++) {
        dl_candidate *k = add(t, "a", 0);
        dl_candidate_restart(k, 0, 100);
        while (dl_candidate_doubt(k, junk[i])) {
        }
        CHECK_INT(0, dl_candidate_n_answered(t, false));
        CHECK_INT(1, dl_candidate_n_answered(t, true));
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        dl_candidate *k = add(t, "a", 0);
        dl_candidate_restart(k, 0, 100);
        while (dl_candidate_doubt(k, own[i])) {
        }
        CHECK_INT(1, dl_candidate_n_answered(t, false));
    }
}

TEST(p8_unread_contribution_does_not_count)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *k = add(t, "a", 0);
    CHECK(!dl_candidate_counts(t, k) && !dl_candidate_is_present(t, "a"));
    CHECK_INT(0, dl_candidate_n_counting(t));
}

TEST(valid_contribution_counts_with_its_facts)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *k = add_valid(t, "a", 0);
    CHECK(dl_candidate_counts(t, k) && dl_candidate_is_present(t, "a"));
    CHECK_INT(5, k->facts.stats.samples);
    CHECK_NEAR(2.0, k->norm2, 0);
}

TEST(p14_a_contribution_without_a_sample_does_not_count)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *k = add(t, "a", 0);
    dl_candidate_accept(k, &(dl_contribution){.stats.samples = 0}, 0);
    CHECK(!dl_candidate_counts(t, k));
}

TEST(p15_of_two_valid_generations_the_newer_one_counts)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *old = add_valid(t, "a", 1), *young = add_valid(t, "a", 4);
    CHECK(!dl_candidate_counts(t, old) && dl_candidate_counts(t, young));
    CHECK_INT(1, dl_candidate_n_counting(t));
}

TEST(p15_invalid_newer_generation_supersedes_nothing)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *old = add_valid(t, "a", 1);
    dl_candidate *young = add(t, "a", 4);
    CHECK(dl_candidate_counts(t, old));
    while (dl_candidate_doubt(young, "bound"))
        ;
    CHECK(dl_candidate_counts(t, old));
}

TEST(p7_a_contribution_is_invalid_at_its_third_refused_reading)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *k = add(t, "a", 0);
    CHECK(dl_candidate_doubt(k, "bound") && dl_candidate_doubt(k, "bound"));
    CHECK(k->validity == DL_UNREAD && !dl_candidate_is_hopeless(t, "a"));
    CHECK(!dl_candidate_doubt(k, "bound"));
    CHECK(k->validity == DL_INVALID);
}

TEST(p7_whole_read_outweighs_damaged_ones)
{
    table s;
    dl_candidate *k = add(empty(&s), "a", 0);
    CHECK(dl_candidate_doubt(k, "truncated") && dl_candidate_doubt(k, "base"));
    CHECK(!dl_candidate_doubt(k, "checksum"));
    CHECK_STR("base", k->refused);
}

TEST(p10_a_replica_is_hopeless_once_its_contribution_is_invalid)
{
    table s;
    dl_candidate_table *t = empty(&s);
    add_valid(t, "b", 0);
    dl_candidate *k = add(t, "a", 0);
    while (dl_candidate_doubt(k, "bound"))
        ;
    CHECK(dl_candidate_is_hopeless(t, "a") && !dl_candidate_is_hopeless(t, "b"));
}

TEST(p10_roster_replica_without_a_counting_contribution_is_missing)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_entry owner;
    CHECK_OK(dl_entry_init(&owner, 4));
    CHECK(dl_roster_add(&owner.roster, "a", 0) && dl_roster_add(&owner.roster, "b", 0));
    CHECK(dl_roster_add(&owner.roster, "c", 0));
    add_valid(t, "b", 3);
    add(t, "c", 0);       /* listed, not read */
    add_valid(t, "z", 0); /* not on the roster: replaces none */
    CHECK_INT(2, dl_candidate_n_missing(t, &owner.roster));
    dl_entry_deinit(&owner);
}

/* A candidate of a random generation of one of four replicas, in a random state. */
static void add_any(dl_candidate_table *t, dl_rng *rng)
{
    const char name[2] = {(char)('a' + dl_rng_below(rng, 4)), 0};
    dl_candidate *k = add(t, name, (uint32_t)dl_rng_below(rng, 3));
    const dl_contribution facts = {.stats.samples = dl_rng_below(rng, 2)};
    if (dl_rng_below(rng, 4)) dl_candidate_accept(k, &facts, 1);
    if (!dl_rng_below(rng, 4)) k->refused = "norm";
    if (!dl_rng_below(rng, 8)) k->validity = DL_INVALID;
}

static bool has_newer_valid(const dl_candidate_table *t, const dl_candidate *k)
{
    bool has = false;
    for (size_t i = 0; i < t->n; i++)
        has |= t->at[i].validity == DL_VALID &&
               !strcmp(t->at[i].generation.replica, k->generation.replica) &&
               t->at[i].generation.number > k->generation.number;
    return has;
}

TEST(p10_missing_are_those_that_neither_count_nor_skip)
{
    dl_rng rng;
    dl_rng_init(&rng, 1, 0, 0);
    dl_entry owner;
    CHECK_OK(dl_entry_init(&owner, 4));
    CHECK(dl_roster_add(&owner.roster, "a", 0) && dl_roster_add(&owner.roster, "b", 0));
    CHECK(dl_roster_add(&owner.roster, "c", 0));
    for (int i = 0; i < 2000; i++) {
        dl_candidate rows[10];
        dl_candidate_table t = {.at = rows, .cap = 10};
        size_t missing = 0;
        for (size_t n = dl_rng_below(&rng, 10); n > 0; n--)
            add_any(&t, &rng);
        for (size_t r = 0; r < owner.roster.n; r++) {
            bool answers = false;
            for (const dl_candidate *k = rows; k < rows + t.n; k++)
                answers |= !strcmp(k->generation.replica, owner.roster.names[r]) &&
                           k->validity == DL_VALID && !has_newer_valid(&t, k) &&
                           (!k->facts.stats.samples || !k->refused);
            missing += !answers;
        }
        CHECK_INT(missing, dl_candidate_n_missing(&t, &owner.roster));
    }
    dl_entry_deinit(&owner);
}

static dl_rng keeping;

static bool keeps_three_in_four(const void *context, const dl_candidate *known)
{
    (void)context, (void)known;
    return dl_rng_below(&keeping, 4) > 0;
}

static void replace_any(dl_candidate_table *t, dl_rng *rng)
{
    const char name[2] = {(char)('a' + dl_rng_below(rng, 4)), 0};
    const dl_generation generation = generation_of(name, (uint32_t)dl_rng_below(rng, 3));
    dl_candidate *k = dl_candidate_replace(t, &generation, 0, 100, keeps_three_in_four, NULL);
    if (k && dl_rng_below(rng, 2)) dl_candidate_restart(k, 1, 90);
    if (k) dl_candidate_accept(k, &(dl_contribution){.stats.samples = 1}, 1);
}

TEST(p15_none_counts_beside_a_newer_valid_one_of_its_replica)
{
    dl_rng rng;
    dl_rng_init(&rng, 2, 0, 0);
    dl_rng_init(&keeping, 3, 0, 0);
    size_t superseded = 0;
    for (int i = 0; i < 2000; i++) {
        dl_candidate rows[6];
        dl_candidate_table t = {.at = rows, .cap = 6};
        for (size_t n = dl_rng_below(&rng, 6); n > 0; n--)
            add_any(&t, &rng);
        for (size_t n = dl_rng_below(&rng, 6); n > 0; n--)
            replace_any(&t, &rng);
        for (const dl_candidate *k = rows; k < rows + t.n; k++) {
            const bool alone = k->validity == DL_VALID && k->facts.stats.samples && !k->refused;
            CHECK(dl_candidate_counts(&t, k) == (alone && !has_newer_valid(&t, k)));
            superseded += alone && has_newer_valid(&t, k);
        }
    }
    CHECK(superseded > 100);
}

/* Finds names of one bucket. */
static void make_colliding(char names[][12], size_t n)
{
    uint64_t bucket = 0;
    for (size_t i = 0, found = 0; found < n; i++) {
        snprintf(names[found], sizeof names[found], "r%zu", i);
        const uint64_t at =
            dl_hash_seeded(names[found], strlen(names[found]), 0) % DL_CANDIDATE_BUCKETS;
        if (found == 0) bucket = at;
        found += at == bucket;
    }
}

static bool is_not_the_second(const void *second, const dl_candidate *known)
{
    return known != second;
}

TEST(replicas_of_one_bucket_are_told_apart)
{
    char names[4][12];
    dl_candidate rows[5];
    dl_candidate_table t = {.at = rows, .cap = 5};
    make_colliding(names, 4);
    for (int i = 0; i < 3; i++)
        add_valid(&t, names[i], 0);
    add(&t, names[1], 1);
    add(&t, names[0], 1);
    dl_candidate *second = add(&t, names[1], 0);
    CHECK(second == &rows[1] && dl_candidate_is_present(&t, names[1]));
    const dl_generation fourth = generation_of(names[3], 0);
    CHECK(dl_candidate_replace(&t, &fourth, 0, 9, is_not_the_second, second) == second);
    CHECK(!dl_candidate_is_present(&t, names[1])); /* its later one is unread */
    for (int i = 0; i < 4; i++)
        CHECK((dl_candidate_next(&t, names[i], NULL) != NULL) && (i == 1 || add(&t, names[i], 0)));
    CHECK(dl_candidate_is_present(&t, names[0]) && dl_candidate_is_present(&t, names[2]));
    dl_candidate_clear(&t);
    for (int i = 0; i < 4; i++)
        CHECK(dl_candidate_next(&t, names[i], NULL) == NULL);
}

TEST(the_slots_of_an_entry_are_in_the_order_of_its_members)
{
    table s;
    size_t slots[2];
    dl_candidate_table *t = empty(&s);
    dl_member members[] = {{.generation = generation_of("a", 0)},
                           {.generation = generation_of("c", 2)}};
    const dl_entry entry = {.members = members, .n_members = 2};
    add(t, "c", 2), add(t, "b", 0), add(t, "a", 0);
    dl_candidate_slots(slots, t, &entry);
    CHECK(slots[0] == 2 && slots[1] == 0);
}

TEST(p10_a_forged_contribution_makes_its_replica_no_hopeless_one)
{
    table s;
    dl_candidate_table *t = empty(&s);
    dl_candidate *k = add(t, "a", 0);
    while (dl_candidate_doubt(k, "header")) {
    }
    k->forged = true;
    CHECK(!dl_candidate_is_hopeless(t, "a"));
    CHECK_INT(0, dl_candidate_n_answered(t, false));
}

TEST_MAIN(
    generation_is_added_once, a_full_table_gives_away_the_place_of_a_row_that_is_not_to_be_kept,
    p10_a_forged_contribution_makes_its_replica_no_hopeless_one,
    p9_present_skipping_or_hopeless_replica_counts_as_one_answer,
    p9_object_without_a_contribution_header_is_no_answer,
    a_full_table_takes_no_more_but_still_finds, p8_unread_contribution_does_not_count,
    valid_contribution_counts_with_its_facts, p14_a_contribution_without_a_sample_does_not_count,
    p15_of_two_valid_generations_the_newer_one_counts,
    p15_invalid_newer_generation_supersedes_nothing,
    p7_a_contribution_is_invalid_at_its_third_refused_reading, p7_whole_read_outweighs_damaged_ones,
    p10_a_replica_is_hopeless_once_its_contribution_is_invalid,
    p10_roster_replica_without_a_counting_contribution_is_missing,
    p10_missing_are_those_that_neither_count_nor_skip,
    p15_none_counts_beside_a_newer_valid_one_of_its_replica, replicas_of_one_bucket_are_told_apart,
    the_slots_of_an_entry_are_in_the_order_of_its_members)
