/* condition_test.c - conditions on options, and those of the program's own table. */
#include "base/condition.h"

#include "base/config.h"
#include "check.h"

static dl_config config;

static bool holds(const char *text)
{
    const dl_condition c = dl_condition_read(dl_config_table, text);
    return dl_condition_holds(&c, &config);
}

static void set(const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&config, name, value, "test"));
}

TEST(a_condition_holds_for_each_type_by_value_and_by_being_set)
{
    dl_config_init(&config);
    CHECK(!holds("run.peers") && !holds("run.peers = true") && holds("run.peers = false"));
    set("run.peers", "true");
    CHECK(holds("run.peers") && holds("run.peers = true"));
    CHECK(holds("run.on_missing = abort|wait") && !holds("run.on_missing != wait"));
    set("run.on_missing", "abort");
    CHECK(holds("run.on_missing = abort|wait") && holds("run.on_missing != wait|commit_partial"));
    CHECK(!holds("run.on_missing = commit_partial"));
    CHECK(holds("server.diloco.fragments = 1") && !holds("server.diloco.fragments != 1"));
    CHECK(holds("trainer.optimizer = adamw|muon") && !holds("trainer.optimizer = muon|adam"));
    CHECK(!holds("trainer.init_from"));
    set("trainer.init_from", "some");
    CHECK(holds("trainer.init_from"));
    CHECK(holds("server.diloco.outer_learning_rate = 0.70"));
}

static void check_words(const char *expected, const char *text)
{
    dl_buf out;
    const dl_condition c = dl_condition_read(dl_config_table, text);
    dl_buf_init(&out, 1000);
    CHECK_OK(dl_condition_text(&out, &c));
    CHECK_STR(expected, dl_buf_str(&out));
    dl_buf_deinit(&out);
}

TEST(a_condition_is_worded_with_all_of_its_values)
{
    check_words("run.peers", "run.peers");
    check_words("run.on_missing = abort", "run.on_missing = abort");
    check_words("trainer.optimizer = adamw or muon", "trainer.optimizer = adamw|muon");
    check_words("data.sampler = a, b or c", "data.sampler = a|b|c");
    check_words("server.diloco.fragments other than 1", "server.diloco.fragments != 1");
}

/* A condition of a row parses, is about another option, and can be met: each value that it names is
 * one that the option takes. */
static void check_row(const dl_option *row, const char *text)
{
    char value[64];
    const dl_condition c = dl_condition_read(dl_config_table, text);
    CHECK(c.row != row);
    for (const char *at = c.values; *at; at += *at == '|') {
        const size_t len = strcspn(at, "|");
        snprintf(value, sizeof value, "%.*s", (int)len, at);
        set(c.row->name, value);
        CHECK(dl_condition_holds(&c, &config) == (c.kind == DL_IS_ONE_OF));
        at += len;
    }
}

TEST(conditions_of_the_table_parse_and_can_be_met)
{
    size_t n = 0;
    dl_config_init(&config);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->applies_when) check_row(row, row->applies_when);
        if (row->needs) check_row(row, row->needs);
        n += row->applies_when || row->needs;
    }
    CHECK(n >= 80);
}

TEST_MAIN(a_condition_holds_for_each_type_by_value_and_by_being_set,
          a_condition_is_worded_with_all_of_its_values,
          conditions_of_the_table_parse_and_can_be_met)
