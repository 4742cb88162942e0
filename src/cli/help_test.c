/* help_test.c - help is complete and fits a window. */
#include "cli/help.h"

#include "base/config.h"
#include "base/text.h"
#include "check.h"

static char *text; /* of the last call; freed by the next */

static FILE *begin(void)
{
    static size_t len;
    free(text);
    text = NULL;
    FILE *out = open_memstream(&text, &len);
    CHECK(out != NULL);
    return out;
}

static void check_width(const char *what)
{
    size_t len = strlen(text), n;
    uint32_t code;
    int column = 0;
    for (size_t at = 0; at < len; at += n) {
        n = dl_utf8_char(&code, text + at, len - at);
        CHECK(n > 0);
        column = code == '\n' ? 0 : column + 1;
        if (column > 100) CHECK_FAIL("%s: a line is wider than 100: …%.60s", what, text + at - 60);
    }
}

TEST(every_command_has_help_no_wider_than_100_columns)
{
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        FILE *out = begin();
        dl_help_command(out, c, true);
        fclose(out);
        check_width(c->name);
        CHECK_CONTAINS(c->name, text);
        CHECK_CONTAINS("--help", text);
    }
}

TEST(the_overview_names_every_command_that_is_not_hidden)
{
    FILE *out = begin();
    dl_help_program(out);
    fclose(out);
    check_width("help");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->summary) CHECK_CONTAINS(c->summary, text);
}

/* Some names begin with another's. */
static bool shows(const char *name)
{
    char line[128];
    size_t len = (size_t)snprintf(line, sizeof line, "\n  %s", name);
    const char *at = strstr(text, line);
    while (at && at[len] != ' ' && at[len] != '\n')
        at = strstr(at + 1, line);
    return at != NULL;
}

static void check_has_options(bool machine_only, bool basic_only)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        bool expected = (!machine_only || !(row->flags & DL_OPTION_AGREE)) &&
                        (basic_only ? row->example != NULL : !(row->flags & DL_OPTION_FIXED));
        if (shows(row->name) != expected)
            CHECK_FAIL("%s is %s", row->name, expected ? "not in the help" : "in the help");
        if (expected && row->alias) CHECK_CONTAINS(row->alias, text);
    }
}

TEST(help_all_shows_every_option_of_train_and_those_of_the_machine_for_join)
{
    FILE *out = begin();
    dl_help_command(out, dl_command_find("train"), true);
    fclose(out);
    check_has_options(false, false);
    CHECK_CONTAINS("one of wait, commit_partial, abort; default wait", text);
    CHECK_CONTAINS("whole number, 1 to 65536 replicas; default 1", text);
    CHECK_CONTAINS("one of diloco", text); /* from the library's tables */
    CHECK(!strstr(text, "one of ;"));

    out = begin();
    dl_help_command(out, dl_command_find("join"), true);
    fclose(out);
    check_has_options(true, false);
}

TEST(help_shows_the_basic_options_with_examples_and_names_help_all)
{
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        FILE *out = begin();
        dl_help_command(out, c, false);
        fclose(out);
        check_width(c->name);
        CHECK((strstr(text, "--help=all") != NULL) == (c->sets != DL_SETS_NONE));
        if (c->sets != DL_SETS_NONE) check_has_options(c->sets == DL_SETS_MACHINE, true);
        if (c->sets == DL_SETS_ALL) CHECK_CONTAINS("--set run.replicas=4\n", text);
    }
}

TEST(the_page_has_a_row_for_every_option)
{
    FILE *out = begin();
    dl_help_options_page(out);
    fclose(out);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        char cell[128];
        snprintf(cell, sizeof cell, "\n| `%s`", dl_config_table.rows[i].name);
        CHECK_CONTAINS(cell, text);
    }
    const char *last = strstr(text, "\n## Options with one value\n");
    CHECK(last && strstr(last, "\n| `trainer.type` | only basic |"));
    CHECK_CONTAINS("| `--set run.replicas=4` | every replica |", text);
    CHECK_CONTAINS("one of wait, commit\\_partial, abort | `wait`", text);
    CHECK_CONTAINS("Needs swarm.consensus = log (the default).", text);
    CHECK_CONTAINS("Only with trainer.init\\_from. |", text); /* by default it is not set */
    free(text);
    text = NULL;
}

TEST_MAIN(every_command_has_help_no_wider_than_100_columns,
          the_overview_names_every_command_that_is_not_hidden,
          help_all_shows_every_option_of_train_and_those_of_the_machine_for_join,
          help_shows_the_basic_options_with_examples_and_names_help_all,
          the_page_has_a_row_for_every_option)
