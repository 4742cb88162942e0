/* kinds_test.c - sums of "traffic" lines. */
#include "cli/display/kinds.h"

#include "check.h"

static void add(dl_kinds *kinds, const char *line)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, line, strlen(line)));
    dl_kinds_add(kinds, value);
}

TEST(lines_of_several_processes_are_summed_by_kind)
{
    dl_kinds k = {.n = 0};
    char text[DL_KINDS_TEXT];
    add(&k, "{\"sent\":{\"probe\":1000,\"log\":5},\"received\":{\"probe\":1000,\"log\":0}}");
    add(&k, "{\"sent\":{\"log\":7,\"first_model\":0,\"new\":1e99},\"received\":{\"log\":30000}}");
    CHECK_INT(1012, dl_kinds_sent(&k));
    CHECK_INT(31000, dl_kinds_received(&k));
    CHECK_INT(2, k.lines);
    CHECK_STR("log 12 B sent, 30.0 kB received; probe 1.0 kB sent, 1.0 kB received",
              dl_kinds_text(text, &k));
}

TEST(a_line_without_kinds_adds_nothing)
{
    dl_kinds k = {.n = 0};
    char text[DL_KINDS_TEXT];
    add(&k, "{\"sent\":3,\"received\":[1,2]}");
    add(&k, "[]");
    CHECK_INT(0, k.n);
    CHECK_STR("", dl_kinds_text(text, &k));
}

TEST(more_kinds_than_fit_are_passed_over)
{
    dl_kinds k = {.n = 0};
    char line[2048] = "{\"sent\":{\"k0\":1";
    for (int i = 1; i < 2 * DL_KINDS_MAX; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), ",\"k%d\":1", i);
    strcat(line, "}}");
    add(&k, line);
    CHECK_INT(DL_KINDS_MAX, k.n);
    CHECK_INT(DL_KINDS_MAX, dl_kinds_sent(&k));
}

TEST(json_has_the_names_of_the_record)
{
    dl_kinds k = {.n = 0};
    dl_buf out;
    dl_json j;
    dl_buf_init(&out, 4096);
    add(&k, "{\"sent\":{\"first_model\":3},\"received\":{\"first_model\":4}}");
    dl_json_init(&j, &out);
    dl_json_object(&j, NULL);
    dl_kinds_json(&j, &k);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_STR("{\"sent\":{\"first_model\":3},\"received\":{\"first_model\":4}}", dl_buf_str(&out));
    dl_buf_deinit(&out);
}

TEST_MAIN(lines_of_several_processes_are_summed_by_kind, a_line_without_kinds_adds_nothing,
          more_kinds_than_fit_are_passed_over, json_has_the_names_of_the_record)
