/* config_test.c - the table of all options against the rules that option.h has for rows. */
#include "base/config.h"

#include "check.h"

static dl_hash digest_of(const dl_config *config)
{
    dl_hash digest;
    CHECK_OK(dl_options_digest(&digest, dl_config_table, config));
    return digest;
}

TEST(defaults_parse_and_are_known_as_such)
{
    static dl_config config;
    dl_config_init(&config); /* a default that does not parse aborts */
    CHECK_STR("diloco", config.preset);
    CHECK_NEAR(0.7, config.outer_lr, 0);
    CHECK_NEAR(0.9, config.outer_mu, 0);
    CHECK_INT(500, config.local_steps);
    CHECK(config.preserve_optimizer_state);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        CHECK_STR("default", dl_config_origin(&config, dl_config_table.rows[i].name));
        CHECK(!dl_config_given(&config, dl_config_table.rows[i].name));
    }
}

TEST(names_and_aliases_are_unique_and_fields_within_the_struct)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        CHECK(dl_option_find(dl_config_table, row->name) == row);
        if (row->alias) CHECK(dl_option_find(dl_config_table, row->alias) == row);
        CHECK(row->offset < offsetof(dl_config, origins));
        CHECK(row->help && *row->help && row->unit);
        if (row->type == DL_OPTION_TEXT) CHECK(row->max > 0 && row->max <= DL_PATH_MAX);
        CHECK(!(row->flags & DL_OPTION_SECRET && row->flags & DL_OPTION_AGREE));
        for (size_t k = 0; k < i; k++)
            CHECK(dl_config_table.rows[k].offset != row->offset);
    }
}

TEST(about_twenty_options_are_basic_and_each_takes_its_example_which_is_not_its_default)
{
    static dl_config config;
    size_t n = 0;
    dl_config_init(&config);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!row->example) continue;
        CHECK_OK(dl_config_set(&config, row->name, row->example, "--set"));
        CHECK(!dl_option_reads(row, &config, row->fallback));
        n++;
    }
    CHECK(n >= 18 && n <= 25);
}

TEST(torchfts_aliases_work)
{
    static dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "outer_lr", "0.5", "--set"));
    CHECK_OK(dl_config_set(&config, "outer_momentum", "0.8", "--set"));
    CHECK_OK(dl_config_set(&config, "sync_every", "30", "--set"));
    CHECK_OK(dl_config_set(&config, "lr", "1e-3", "--set"));
    CHECK(config.outer_lr == 0.5 && config.outer_mu == 0.8);
    CHECK(config.local_steps == 30 && config.lr == 1e-3);
    CHECK_STR("--set", dl_config_origin(&config, "server.diloco.outer_learning_rate"));
    CHECK(dl_config_given(&config, "trainer.local_steps_per_round"));
    CHECK(dl_config_given(&config, "sync_every"));
}

TEST(wrong_values_are_refused_and_unknown_names_have_no_origin)
{
    static dl_config config;
    dl_config_init(&config);
    CHECK_STATUS(DILOCO_EINVAL, dl_config_set(&config, "outer_lr", "-1", "--set"));
    CHECK_STATUS(DILOCO_EINVAL, dl_config_set(&config, "trainer.local_steps", "1", "--set"));
    CHECK_STATUS(DILOCO_EINVAL, dl_config_set(&config, "run.on_missing", "hope", "--set"));
    CHECK_CONTAINS("commit_partial", diloco_error_text());
    CHECK_STR("", dl_config_origin(&config, "no.such"));
}

TEST(the_digest_changes_exactly_with_options_that_must_agree)
{
    static dl_config config;
    dl_config_init(&config);
    dl_hash before = digest_of(&config);
    CHECK_OK(dl_config_set(&config, "run.threads", "7", "--set"));
    CHECK_OK(dl_config_set(&config, "run.store", "/elsewhere", "--set"));
    CHECK_OK(dl_config_set(&config, "data.train_path", "/elsewhere", "--set"));
    CHECK(dl_hash_equal(before, digest_of(&config)));
    CHECK_OK(dl_config_set(&config, "outer_lr", "0.70000001", "--set"));
    CHECK(!dl_hash_equal(before, digest_of(&config)));
    CHECK_OK(dl_config_set(&config, "outer_lr", "0.7", "run.toml:1:1")); /* its origin is no part */
    CHECK(dl_hash_equal(before, digest_of(&config)));
}

/* A value at an edge of what the row allows, other than the default where it can be. */
static const char *unusual(char text[64], const dl_option *row)
{
    snprintf(text, 64, "%s", row->fallback);
    if (row->type == DL_OPTION_BOOL) snprintf(text, 64, "true");
    if (row->type == DL_OPTION_INT) snprintf(text, 64, "%.0f", row->max);
    if (row->type == DL_OPTION_REAL)
        snprintf(text, 64, "%.17g", row->min + (row->max - row->min) / 3);
    if (row->type == DL_OPTION_TEXT) snprintf(text, 64, "/a b/\"\xC3\xA9\"");
    for (size_t i = 0; row->choices && row->choices[i]; i++)
        snprintf(text, 64, "%s", row->choices[i]);
    return text;
}

TEST(canonical_text_reads_back_to_the_same_bits_for_every_row)
{
    static dl_config a, b;
    dl_config_init(&a);
    dl_config_init(&b);
    dl_buf text;
    dl_buf_init(&text, 4096);
    for (int changed = 0; changed < 2; changed++)
        for (size_t i = 0; i < dl_config_table.n; i++) {
            const dl_option *row = &dl_config_table.rows[i];
            char value[64];
            if (changed) CHECK_OK(dl_config_set(&a, row->name, unusual(value, row), "x"));
            dl_buf_clear(&text);
            CHECK_OK(dl_option_text(&text, row, &a));
            CHECK_OK(dl_config_set(&b, row->name, dl_buf_str(&text), "x"));
        }
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        const char *x = (const char *)&a + row->offset, *y = (const char *)&b + row->offset;
        if (row->type == DL_OPTION_BOOL) CHECK_BYTES(x, y, sizeof(bool));
        if (row->type == DL_OPTION_INT) CHECK_BYTES(x, y, sizeof(int64_t));
        if (row->type == DL_OPTION_REAL) CHECK_BYTES(x, y, sizeof(double));
        if (row->type == DL_OPTION_CHOICE) CHECK_BYTES(x, y, sizeof(int));
        if (row->type == DL_OPTION_TEXT || row->type == DL_OPTION_NAME) CHECK_STR(x, y);
    }
    CHECK(dl_hash_equal(digest_of(&a), digest_of(&b)));
    dl_buf_deinit(&text);
}

/* The digests of 0.2.0. A run records them in its log, so a replica of another build joins only
 * while they are equal. A new option that must agree, or another name, value or default, changes
 * them. */
TEST(digests_of_defaults_and_of_a_value_at_an_edge_of_every_row_are_those_of_the_log)
{
    static dl_config config;
    char hex[33], value[64];
    dl_config_init(&config);
    dl_hash_to_hex(hex, digest_of(&config));
    CHECK_STR("633544ee29dbb43e2854dbeea797c7f4", hex);
    for (size_t i = 0; i < dl_config_table.n; i++)
        CHECK_OK(dl_config_set(&config, dl_config_table.rows[i].name,
                               unusual(value, &dl_config_table.rows[i]), "x"));
    dl_hash_to_hex(hex, digest_of(&config));
    CHECK_STR("30325fa50ba31bb0a1d4dd9a2b878d2d", hex);
}

TEST_MAIN(defaults_parse_and_are_known_as_such,
          names_and_aliases_are_unique_and_fields_within_the_struct,
          about_twenty_options_are_basic_and_each_takes_its_example_which_is_not_its_default,
          torchfts_aliases_work, wrong_values_are_refused_and_unknown_names_have_no_origin,
          the_digest_changes_exactly_with_options_that_must_agree,
          canonical_text_reads_back_to_the_same_bits_for_every_row,
          digests_of_defaults_and_of_a_value_at_an_edge_of_every_row_are_those_of_the_log)
