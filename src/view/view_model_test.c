/* view_model_test.c - a model of entries and of lines, and that hostile lines cost nothing.
 */
#include "view/view_model.h"

#include "check.h"

#include <math.h>

static void add_entry(dl_model *m, uint64_t entry, const char *const *members, size_t n)
{
    const diloco_log_entry e = {.entry = entry,
                                .commit = true,
                                .position = 10 * (entry + 1),
                                .committer = "r0.0000",
                                .members = members,
                                .n_members = n,
                                .loss = 4 - (double)entry,
                                .bytes = 100,
                                .steps = 20,
                                .samples = 40};
    CHECK_OK(dl_model_entry(m, &e, true));
}

static void add_line(dl_model *m, const char *replica, const char *line)
{
    CHECK_OK(dl_model_line(m, replica, line, strlen(line)));
}

static const char *const both[] = {"r0.0000", "r1.0002"};

TEST(a_cell_has_the_seconds_of_training_encoding_upload_and_waiting)
{
    dl_model m;
    dl_model_init(&m);
    add_entry(&m, 0, both, 2);
    add_line(&m, "r0",
             "{\"event\":\"step\",\"position\":1,\"entry\":0,\"tokens\":100,\"samples\":2,"
             "\"loss\":5,\"tokens_per_s\":50}");
    add_line(&m, "r0",
             "{\"event\":\"step\",\"position\":2,\"entry\":0,\"tokens\":100,\"samples\":2,"
             "\"loss\":4,\"tokens_per_s\":100}");
    add_line(&m, "r0",
             "{\"event\":\"contribution\",\"entry\":0,\"encode_s\":0.5,\"put_s\":0.25,"
             "\"pseudo_grad_norm\":7}");
    add_line(&m, "r0",
             "{\"event\":\"commit\",\"entry\":0,\"missing\":[\"r1\",\"r9\"],\"wait_s\":2,"
             "\"exchange_s\":1,\"bytes_sent\":9,\"peer_grad_similarity\":0.5,"
             "\"own_similarity\":0.75,\"time\":1000}");
    const dl_lane *lane = dl_model_lane(&m, "r0");
    CHECK(lane);
    CHECK_NEAR(3, lane->cells[0].train_s, 1e-6);
    CHECK_NEAR(0.5, lane->cells[0].encode_s, 1e-6);
    CHECK_NEAR(0.25, lane->cells[0].put_s, 1e-6);
    CHECK_NEAR(2, lane->cells[0].wait_s, 1e-6);
    CHECK_NEAR(7, lane->cells[0].norm, 1e-6);
    CHECK_NEAR(0.75, lane->cells[0].cosine, 1e-6);
    CHECK_NEAR(1000, lane->cells[0].end, 0);
    CHECK_NEAR(9, lane->sent, 0);
    CHECK_NEAR(1000, m.marks[0].time, 0);
    CHECK_NEAR(0.5, m.marks[0].similarity, 0);
    CHECK_INT(DL_PART_MEMBER | DL_PART_MISSING, dl_model_lane(&m, "r1")->cells[0].parts);
    CHECK_INT(2, dl_model_lane(&m, "r1")->cells[0].generation);
    CHECK(!dl_model_lane(&m, "r9")); /* the record alone makes no lane of a name */
    CHECK_NEAR(200, m.tokens, 0);
    dl_model_deinit(&m);
}

TEST(steps_are_kept_in_bins_that_widen)
{
    dl_model m;
    char line[160];
    double sum = 0;
    uint64_t n = 0;
    dl_model_init(&m);
    add_entry(&m, 0, both, 2);
    for (int i = 0; i < 5000; i++) {
        snprintf(line, sizeof line,
                 "{\"event\":\"step\",\"position\":%d,\"entry\":0,\"tokens\":1,\"loss\":2}", i);
        add_line(&m, "r0", line);
    }
    CHECK_INT(4, m.step_width);
    CHECK_INT(1250, m.n_steps);
    for (size_t i = 0; i < m.n_steps; i++)
        sum += m.steps[i].sum, n += m.steps[i].n;
    CHECK_INT(5000, n);
    CHECK_NEAR(10000, sum, 1e-9);
    dl_model_deinit(&m);
}

TEST(cells_are_merged_in_pairs_where_there_are_too_many)
{
    dl_model m;
    dl_model_init(&m);
    m.n_cells = DL_MODEL_CELLS - 4; /* as if others had filled them */
    for (uint64_t e = 0; e < 8; e++)
        add_entry(&m, e, both, 2);
    CHECK_INT(1, m.shift);
    const dl_lane *lane = dl_model_lane(&m, "r1");
    CHECK_INT(4, lane->n);
    CHECK_INT(DL_PART_MEMBER, dl_lane_sum(lane, m.shift, 2, 4).parts);
    dl_model_deinit(&m);
}

TEST(an_evaluation_belongs_to_the_entry_before_it)
{
    dl_model m;
    dl_model_init(&m);
    add_entry(&m, 0, both, 2);
    add_entry(&m, 1, both, 2);
    add_line(&m, "r0", "{\"event\":\"eval\",\"entry\":2,\"step\":20,\"loss\":3.5}");
    CHECK(isnan(m.marks[0].eval_loss));
    CHECK_NEAR(3.5, m.marks[1].eval_loss, 0);
    dl_model_deinit(&m);
}

TEST(a_process_without_a_last_line_has_died_when_the_next_one_joins)
{
    static const char *const kinds[] = {"join", "end", "join", "death", "join"};
    dl_model m;
    dl_model_init(&m);
    add_entry(&m, 0, both, 2);
    add_line(&m, "r0", "{\"event\":\"run\",\"life\":\"r0.0000\",\"entry\":0}");
    add_line(&m, "r0", "{\"event\":\"traffic\"}"); /* stopped, and resumed */
    add_line(&m, "r0", "{\"event\":\"run\",\"life\":\"r0.0001\",\"entry\":0}");
    add_line(&m, "r0", "{\"event\":\"run\",\"life\":\"r0.0002\",\"entry\":1}");
    CHECK_INT(5, m.n_happenings);
    for (size_t i = 0; i < 5; i++)
        CHECK_STR(kinds[i], m.happenings[i].kind);
    CHECK_STR("r0", m.happenings[3].replica);
    add_line(&m, "r0", "{\"event\":\"end\",\"entry\":1}");
    add_line(&m, "r0", "{\"event\":\"traffic\"}"); /* of the same process */
    CHECK_INT(6, m.n_happenings);
    /* Nothing of its first process reached the store. */
    add_line(&m, "r1", "{\"event\":\"run\",\"life\":\"r1.0001\",\"entry\":1}");
    CHECK_INT(8, m.n_happenings);
    CHECK_STR("death", m.happenings[6].kind);
    dl_model_deinit(&m);
}

TEST(hostile_lines_add_nothing)
{
    static const char *const lines[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"event\":7}",
        "{\"event\":\"commit\"}",
        "{\"event\":\"commit\",\"entry\":16777215}",
        "{\"event\":\"commit\",\"entry\":-1}",
        "{\"event\":\"step\",\"entry\":16777215,\"position\":5,\"loss\":1}",
        "{\"event\":\"step\",\"entry\":0,\"position\":18446744073709551615,\"loss\":1}",
        "{\"event\":\"commit\",\"entry\":0,\"time\":1e300,\"wait_s\":\"x\",\"missing\":7}"};
    dl_model m;
    dl_model_init(&m);
    add_entry(&m, 0, both, 2);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        add_line(&m, "r0", lines[i]);
    CHECK_INT(1, m.n_marks);
    CHECK_INT(2, m.n_lanes);
    CHECK_INT(0, m.n_steps);
    CHECK(isnan(m.marks[0].time));
    CHECK_NEAR(0, dl_model_lane(&m, "r0")->cells[0].end, 0);
    dl_model_deinit(&m);
}

TEST_MAIN(a_cell_has_the_seconds_of_training_encoding_upload_and_waiting,
          steps_are_kept_in_bins_that_widen, cells_are_merged_in_pairs_where_there_are_too_many,
          an_evaluation_belongs_to_the_entry_before_it,
          a_process_without_a_last_line_has_died_when_the_next_one_joins, hostile_lines_add_nothing)
