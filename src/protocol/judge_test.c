/* judge_test.c - which contributions are used: SWM-22, P27. */
#include "protocol/judge.h"

#include "check.h"

#include <math.h>

enum { N = 8, D = 4 };

typedef struct court {
    dl_config config;
    dl_candidate rows[N];
    dl_candidate_table known;
    float x[N][D];
    dl_arena arena;
    dl_judge judge;
    dl_bans *bans;
} court;

/* Makes n contributions, each of D elements. */
static void open_court(court *c, size_t n, const float (*x)[D])
{
    dl_arena measure = {0};
    memset(c, 0, sizeof *c);
    dl_config_init(&c->config);
    dl_judge_layout(&c->judge, &measure, N);
    CHECK_OK(dl_arena_init(&c->arena, measure.used));
    dl_judge_layout(&c->judge, &c->arena, N);
    c->known = (dl_candidate_table){.at = c->rows, .cap = N};
    for (size_t i = 0; i < n; i++) {
        dl_generation generation = {.number = 0};
        double norm2 = 0;
        snprintf(generation.replica, sizeof generation.replica, "r%zu", i);
        memcpy(c->x[i], x[i], sizeof c->x[i]);
        for (size_t d = 0; d < D; d++)
            norm2 += (double)x[i][d] * (double)x[i][d];
        dl_candidate *k = dl_candidate_add(&c->known, &generation, 0, 100);
        const dl_contribution facts = {.stats.samples = 1,
                                       .body = dl_hash_bytes(x[i], sizeof x[i])};
        dl_candidate_accept(k, &facts, norm2);
        k->whole = true;
        c->judge.slots[i] = i;
    }
    c->judge.n = n;
}

static void option(court *c, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&c->config, name, value, "test"));
}

/* Makes entry 0 count contribution i. */
static void count(court *c, const char *repeat, size_t i)
{
    dl_entry e;
    option(c, "check.repeat", repeat);
    if (!c->bans) CHECK_OK(dl_bans_create(&c->bans, &c->config, N));
    CHECK_OK(dl_entry_init(&e, N));
    e.commit = true;
    e.members[e.n_members++] =
        (dl_member){.generation = c->rows[i].generation, .body = c->rows[i].facts.body};
    dl_bans_apply(c->bans, 0, &e);
    dl_entry_deinit(&e);
}

/* Compares the words, one a contribution, "-" for a used one. */
static void says(court *c, const char *expected)
{
    static char said[N * 12];
    double gram[N * N] = {0};
    const size_t n = c->judge.n;
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
            gram[a * n + b] = 0;
            for (size_t d = 0; d < D; d++)
                gram[a * n + b] += (double)c->x[a][d] * (double)c->x[b][d];
        }
    dl_judge_all(&c->judge, &c->config, c->bans, &c->known,
                 dl_config_checks_directions(&c->config) ? gram : NULL);
    said[0] = 0;
    for (size_t i = 0; i < n; i++) {
        strcat(said, i ? " " : "");
        strcat(said, c->rows[i].refused ? c->rows[i].refused : "-");
        CHECK(dl_candidate_counts(&c->known, &c->rows[i]) == !c->rows[i].refused);
    }
    CHECK_STR(expected, said);
    dl_bans_destroy(c->bans);
    dl_arena_deinit(&c->arena);
}

static const float honest[5][D] = {
    {1, 0.2f, 0, 0}, {1, 0, 0.2f, 0}, {1, 0, 0, 0.2f}, {1, -0.2f, 0, 0}, {1.5f, 0, 0, 0.1f}};

TEST(without_options_all_are_used)
{
    const float x[3][D] = {{1, 0, 0, 0}, {-1e6f, 0, 0, 0}, {0}};
    court c;
    open_court(&c, 3, x);
    CHECK(!dl_judge_is_on(&c.config));
    says(&c, "- - -");
}

TEST(swm22_norms_are_compared_with_their_median)
{
    const float x[4][D] = {{1, 0, 0, 0}, {0, 1.5f, 0, 0}, {0, 0, 1000, 0}, {0, 2, 0, 0}};
    court c;
    open_court(&c, 4, x); /* the median is 1.75 */
    option(&c, "check.norm", "3");
    CHECK(dl_judge_is_on(&c.config));
    says(&c, "- - norm -");
    float large[4][D];
    for (size_t i = 0; i < 4; i++)
        for (size_t d = 0; d < D; d++)
            large[i][d] = 1e9f * x[i][d];
    open_court(&c, 4, large); /* the model's size does not matter */
    option(&c, "check.norm", "3");
    says(&c, "- - norm -");
}

TEST(one_that_moves_nothing_is_rejected_where_most_move)
{
    const float x[3][D] = {{1, 0, 0, 0}, {0}, {0, 1, 0, 0}}, none[3][D] = {{0}, {0}, {1, 0, 0, 0}};
    court c;
    open_court(&c, 3, x);
    option(&c, "check.norm", "3");
    says(&c, "- zero -");
    open_court(&c, 2, none);
    option(&c, "check.norm", "3");
    says(&c, "- -");
}

TEST(swm22_an_update_far_shorter_than_most_is_rejected)
{
    const float x[5][D] = {{1, 0, 0, 0}, {0, 0.4f, 0, 0}, {0}, {0, 0.1f, 0, 0}, {0, 2, 0, 0}};
    court c;
    open_court(&c, 5, x); /* the median is .4 */
    option(&c, "check.short", "0.5");
    CHECK(dl_judge_is_on(&c.config) && dl_judge_compares(&c.config));
    says(&c, "- - zero short -");
}

/* Those that remain after one bound are measured again for the other. The median of 1 and 100 is
 * 50.5, and without the 100 it is 1. */
TEST(of_two_that_differ_in_length_one_is_used)
{
    const float x[2][D] = {{1, 0, 0, 0}, {0, 100, 0, 0}}, none[2][D] = {{0}, {1, 0, 0, 0}};
    court c;
    open_court(&c, 2, x);
    option(&c, "check.norm", "1.5");
    option(&c, "check.short", "0.5");
    says(&c, "- norm");
    open_court(&c, 2, none);
    option(&c, "check.norm", "1");
    option(&c, "check.short", "0.5");
    says(&c, "- norm");
}

TEST(swm22_an_update_that_was_counted_before_is_rejected)
{
    court c;
    open_court(&c, 5, honest);
    count(&c, "1", 3);
    CHECK(dl_judge_is_on(&c.config) && !dl_judge_compares(&c.config));
    says(&c, "- - - repeat -");
    float x[5][D]; /* it is another's: so equal bytes show nothing */
    memcpy(x, honest, sizeof x);
    memcpy(x[4], x[3], sizeof x[3]);
    open_court(&c, 5, x);
    count(&c, "1", 3);
    says(&c, "- - - repeat -");
    for (size_t d = 0; d < D; d++)
        x[4][d] = d == 1;
    open_court(&c, 5, x);
    count(&c, "2", 3);
    memcpy(c.rows[3].facts.body.bytes, c.rows[0].facts.body.bytes, sizeof(dl_hash));
    says(&c, "- - - - -"); /* nor are other bytes, however similar */
}

TEST(where_all_repeat_themselves_all_are_used)
{
    court c;
    open_court(&c, 2, honest);
    count(&c, "1", 0);
    count(&c, "1", 1);
    says(&c, "- -");
}

TEST(swm22_directions_are_compared_with_most_others)
{
    float x[7][D];
    court c;
    memcpy(x, honest, sizeof honest);
    for (size_t d = 0; d < D; d++) { /* opposite signs, one of them hidden in a longer one */
        x[5][d] = -honest[0][d];
        x[6][d] = -1.2f * honest[2][d];
    }
    open_court(&c, 7, x);
    option(&c, "check.cosine", "-0.05");
    says(&c, "- - - - - cosine cosine");
}

/* A contribution that its norm rejects is no reference of directions: with the two it would be
 * three of five. */
TEST(a_reference_is_of_those_that_are_left)
{
    const float x[5][D] = {
        {-500, 0, 0, 0}, {1, 0.2f, 0, 0}, {1, 0, 0.2f, 0}, {-501, 1, 0, 0}, {1, 0, 0, 0.2f}};
    court c;
    open_court(&c, 5, x);
    option(&c, "check.norm", "3");
    option(&c, "check.cosine", "0");
    says(&c, "norm - - norm -");
}

TEST(two_that_disagree_are_both_used)
{
    const float x[2][D] = {{1, 0, 0, 0}, {-1, 0, 0, 0}};
    court c;
    open_court(&c, 2, x);
    option(&c, "check.cosine", "0");
    says(&c, "- -");
}

TEST(at_least_one_contribution_is_used)
{
    court c;
    open_court(&c, 5, honest);
    option(&c, "check.cosine", "1");
    says(&c, "cosine cosine cosine cosine -");
}

TEST(of_equal_bytes_the_first_is_used)
{
    float x[5][D];
    court c;
    memcpy(x, honest, sizeof x);
    memcpy(x[3], x[1], sizeof x[3]);
    open_court(&c, 5, x);
    option(&c, "check.copy", "1");
    CHECK(!dl_config_checks_directions(&c.config));
    says(&c, "- - - copy -");
}

TEST(a_copy_that_was_scaled_is_found_by_its_direction)
{
    float x[5][D];
    court c;
    memcpy(x, honest, sizeof x);
    for (size_t d = 0; d < D; d++)
        x[4][d] = 0.9f * x[1][d];
    open_court(&c, 5, x);
    option(&c, "check.copy", "0.999");
    says(&c, "- - - - copy");
}

/* Compares the words of the contributions after the probe; three contributions. */
static void probe_says(const char *most, const double *probed, const char *expected)
{
    court c;
    char said[64] = "";
    open_court(&c, 3, honest);
    option(&c, "check.probe", most);
    dl_judge_all(&c.judge, &c.config, NULL, &c.known, NULL);
    dl_judge_probed(&c.judge, &c.config, &c.known, probed);
    for (size_t i = 0; i < 3; i++)
        strcat(strcat(said, i ? " " : ""), c.rows[i].refused ? c.rows[i].refused : "-");
    CHECK_STR(expected, said);
    dl_arena_deinit(&c.arena);
}

TEST(p27_contribution_that_raises_the_loss_too_far_is_rejected)
{
    const double nan = (double)NAN;
    probe_says("1.5", (double[]){2, 1.9, 3, 3.1}, "- - probe");
    probe_says("1.5", (double[]){2, 1.9, nan, (double)INFINITY}, "- probe probe");
    probe_says("1.5", (double[]){-2, -3, -1.1, -0.9}, "- - probe"); /* -1 is 1.5 times as much */
    probe_says("1", (double[]){2, 9, 8, nan}, "probe - probe");     /* the best stays */
    probe_says("1", (double[]){2, nan, nan, nan}, "- - -");         /* it measures nothing */
    probe_says("1", (double[]){nan, 9, 8, 7}, "- - -");
}

TEST(p27_a_probe_is_its_committers_word_where_the_run_probes)
{
    dl_config c;
    dl_config_init(&c);
    CHECK(dl_judge_agrees(&c, "norm", "norm"));
    CHECK(!dl_judge_agrees(&c, NULL, "norm"));
    CHECK(!dl_judge_agrees(&c, NULL, "probe"));
    CHECK_OK(dl_config_set(&c, "check.probe", "2", "test"));
    CHECK(dl_judge_is_on(&c));
    CHECK(dl_judge_agrees(&c, NULL, "probe"));
    CHECK(!dl_judge_agrees(&c, "norm", "probe"));
    CHECK(!dl_bans_is_strike("probe"));
}

TEST(fault_that_another_may_have_caused_is_no_strike)
{
    CHECK(dl_contribution_is_damage("truncated") && dl_contribution_is_damage("checksum"));
    CHECK(!dl_bans_is_strike("copy") && !dl_bans_is_strike("base") &&
          !dl_bans_is_strike("signature"));
    CHECK(dl_contribution_is_damage("header") && !dl_contribution_is_damage("non-finite"));
    CHECK(dl_bans_is_strike("norm") && dl_bans_is_strike("non-finite"));
    CHECK(dl_bans_is_strike("short") && dl_bans_is_strike("repeat"));
}

TEST_MAIN(p27_contribution_that_raises_the_loss_too_far_is_rejected,
          p27_a_probe_is_its_committers_word_where_the_run_probes, without_options_all_are_used,
          swm22_norms_are_compared_with_their_median,
          one_that_moves_nothing_is_rejected_where_most_move,
          swm22_an_update_far_shorter_than_most_is_rejected,
          of_two_that_differ_in_length_one_is_used,
          swm22_an_update_that_was_counted_before_is_rejected,
          where_all_repeat_themselves_all_are_used, swm22_directions_are_compared_with_most_others,
          a_reference_is_of_those_that_are_left, two_that_disagree_are_both_used,
          at_least_one_contribution_is_used, of_equal_bytes_the_first_is_used,
          a_copy_that_was_scaled_is_found_by_its_direction,
          fault_that_another_may_have_caused_is_no_strike)
