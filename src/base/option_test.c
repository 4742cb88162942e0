/* option_test.c - the mechanism, on a small table of its own. */
#include "base/option.h"

#include "base/choice.h"

#include "check.h"

#define KINDS(X) X(KIND_WAIT, "wait") X(KIND_ABORT, "abort")
DL_CHOICE(kind_choice, KINDS)
DL_CHOICE_NAMES(kind_choice, KINDS)

typedef struct values {
    bool on;
    int64_t steps;
    double lr;
    char path[21], free_name[DL_OPTION_NAME_MAX + 1], secret[33];
    kind_choice kind;
} values;

#define AT(field) offsetof(values, field)

static const dl_option rows[] = {
    {.name = "run.on",
     .type = DL_OPTION_BOOL,
     .offset = AT(on),
     .fallback = "true",
     .unit = "",
     .flags = DL_OPTION_AGREE,
     .help = "a switch"},
    {.name = "run.steps",
     .alias = "every",
     .type = DL_OPTION_INT,
     .offset = AT(steps),
     .fallback = "500",
     .min = 1,
     .max = 1e6,
     .unit = "steps",
     .flags = DL_OPTION_AGREE,
     .help = "a count"},
    {.name = "opt.outer_learning_rate",
     .alias = "outer_lr",
     .type = DL_OPTION_REAL,
     .offset = AT(lr),
     .fallback = "0.7",
     .max = 10,
     .unit = "",
     .flags = DL_OPTION_AGREE | DL_OPTION_LIVE,
     .help = "a number"},
    {.name = "run.path",
     .type = DL_OPTION_TEXT,
     .offset = AT(path),
     .fallback = "",
     .max = 20,
     .unit = "path",
     .help = "a text"},
    {.name = "opt.kind",
     .type = DL_OPTION_CHOICE,
     .offset = AT(kind),
     .fallback = "wait",
     .unit = "",
     .choices = kind_choice_names,
     .flags = DL_OPTION_AGREE,
     .help = "a choice"},
    {.name = "opt.name",
     .type = DL_OPTION_NAME,
     .offset = AT(free_name),
     .fallback = "mean",
     .unit = "",
     .help = "a name"},
    {.name = "run.secret",
     .type = DL_OPTION_TEXT,
     .offset = AT(secret),
     .fallback = "",
     .max = 32,
     .unit = "",
     .flags = DL_OPTION_SECRET,
     .help = "hidden"},
};
enum { N = sizeof rows / sizeof rows[0] };
static const dl_option_table table = {rows, N};

static values v;
static dl_origin origins[N];

static diloco_status set(const char *name, const char *text)
{
    return dl_option_set(table, &v, origins, name, text, "--set");
}

static void check_text(const char *expected, const char *name)
{
    dl_buf buf;
    dl_buf_init(&buf, 1000);
    CHECK_OK(dl_option_text(&buf, dl_option_find(table, name), &v));
    CHECK_STR(expected, dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

static void begin(void)
{
    memset(&v, 0xAA, sizeof v);
    dl_options_defaults(table, &v, origins);
}

TEST(defaults_fill_every_field)
{
    begin();
    CHECK(v.on && v.steps == 500 && v.lr == 0.7);
    CHECK_STR("", v.path);
    CHECK(v.kind == KIND_WAIT);
    CHECK_STR("mean", v.free_name);
    for (int i = 0; i < N; i++)
        CHECK_STR("default", origins[i].text);
}

TEST(values_are_set_by_name_and_alias_and_know_their_origin)
{
    begin();
    CHECK_OK(dl_option_set(table, &v, origins, "every", "1_000", "run.toml:3:1"));
    CHECK_OK(set("outer_lr", "4e-4"));
    CHECK_OK(set("run.on", "false"));
    CHECK_OK(set("run.path", "/a b/\xC3\xA9"));
    CHECK_OK(set("opt.kind", "abort"));
    CHECK_OK(set("opt.name", "topk:0.01"));
    CHECK(!v.on && v.steps == 1000 && v.lr == 4e-4);
    CHECK_STR("run.toml:3:1", origins[1].text);
    CHECK_STR("--set", origins[2].text);
    check_text("false", "run.on");
    check_text("1000", "every");
    check_text("0.0004", "outer_lr");
    check_text("/a b/\xC3\xA9", "run.path");
    check_text("abort", "opt.kind");
}

TEST(numbers_are_as_in_toml)
{
    begin();
    CHECK_OK(set("every", "+7"));
    CHECK_INT(7, v.steps);
    CHECK_OK(set("every", "7it")); /* Plato's steps */
    CHECK_INT(7, v.steps);
    CHECK_OK(set("outer_lr", "1_0.0"));
    CHECK_NEAR(10, v.lr, 0);
    CHECK_OK(set("outer_lr", ".25"));
    CHECK_NEAR(.25, v.lr, 0);
    CHECK_OK(set("outer_lr", "10"));
    CHECK_STATUS(DILOCO_EINVAL, set("outer_lr", "."));
    CHECK_STATUS(DILOCO_EINVAL, set("outer_lr", ".e1"));
    CHECK_STATUS(DILOCO_EINVAL, set("outer_lr", "-.5"));
    const char *bad[] = {
        "",    " 1",      "1_",
        "_1",  "1__0",    "0x10",
        "1.0", "1e3",     "it",
        "7ep", "7itit",   "7 it",
        "+-1", "one",     "-5",
        "0",   "1000001", "11111111111111111111111111111111111111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(DILOCO_EINVAL, set("every", bad[i]));
    CHECK_STATUS(DILOCO_EINVAL, set("outer_lr", "nan"));
    CHECK_STATUS(DILOCO_EINVAL, set("outer_lr", "inf"));
    CHECK_STATUS(DILOCO_EINVAL, set("outer_lr", "10.0000001"));
    CHECK(v.steps == 7 && v.lr == 10);
}

TEST(a_value_is_compared_with_a_text_as_it_would_be_read)
{
    begin();
    const dl_option *steps = dl_option_find(table, "run.steps"),
                    *lr = dl_option_find(table, "opt.outer_learning_rate"),
                    *on = dl_option_find(table, "run.on"),
                    *path = dl_option_find(table, "run.path");
    CHECK_OK(set("run.steps", "1_000"));
    CHECK_OK(set("opt.outer_learning_rate", "0.50"));
    CHECK_OK(set("run.on", "true"));
    CHECK_OK(set("run.path", "a b"));
    CHECK(dl_option_reads(steps, &v, "1000") && !dl_option_reads(steps, &v, "1001"));
    CHECK(dl_option_reads(lr, &v, "5e-1") && !dl_option_reads(lr, &v, "0.5000001"));
    CHECK(dl_option_reads(on, &v, "true") && !dl_option_reads(on, &v, "false"));
    CHECK(dl_option_reads(path, &v, "a b") && !dl_option_reads(path, &v, "a"));
    CHECK(!dl_option_reads(steps, &v, "many"));
}

/* Setting `name` to `text` fails, and the error has these three parts. */
static void check_refused(const char *name, const char *text, const char *expected)
{
    CHECK_STATUS(DILOCO_EINVAL, set(name, text));
    CHECK_CONTAINS("--set: ", diloco_error_text());
    CHECK_CONTAINS(name, diloco_error_text());
    CHECK_CONTAINS(expected, diloco_error_text());
}

TEST(a_refusal_names_valid_values_and_changes_nothing)
{
    begin();
    values before = v;
    check_refused("run.on", "yes", "\"yes\" is not true or false");
    check_refused("run.steps", "0", "a whole number from 1 to 1000000 steps");
    check_refused("opt.outer_learning_rate", "11", "a number from 0 to 10");
    check_refused("run.path", "123456789012345678901", "at most 20 bytes");
    check_refused("run.path", "a\nb", "control characters");
    check_refused("run.path", "\xC2\x85", "control characters");
    check_refused("run.path", "\xFF", "UTF-8");
    check_refused("opt.kind", "wai", "one of wait|abort");
    check_refused("opt.kind", "", "one of");
    check_refused("opt.kind", "wait|abort", "one of");
    check_refused("opt.name", "", "1 to 31");
    check_refused("opt.name", "two words", "1 to 31");
    check_refused("opt.name", "12345678901234567890123456789012", "1 to 31");
    CHECK(v.on == before.on && v.steps == before.steps && v.lr == before.lr);
    CHECK_STR(before.path, v.path);
    CHECK(before.kind == v.kind);
    CHECK_STR(before.free_name, v.free_name);
    for (int i = 0; i < N; i++)
        CHECK_STR("default", origins[i].text);
}

TEST(an_unknown_name_is_answered_with_the_nearest)
{
    begin();
    check_refused("run.stepz", "1", "did you mean run.steps?");
    CHECK_STATUS(DILOCO_EINVAL, set("completely.different", "1"));
    CHECK_CONTAINS("no option completely.different; diloco options lists all", diloco_error_text());
    CHECK(!strstr(diloco_error_text(), "did you mean"));
}

TEST(nearest_looks_at_names_aliases_and_last_components)
{
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "opt.outer_lerning_rate"));
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "outer_learning_rate"));
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "server.outer_learning_rat"));
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "outer_lt"));
    CHECK_STR("run.steps", dl_option_nearest(table, "evry"));
    CHECK_STR("run.path", dl_option_nearest(table, "run_path"));
    CHECK_STR("run.path", dl_option_nearest(table, "run.ptah")); /* neighbours swapped */
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "trainer.outer_lr"));
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "opt.outer_learn")); /* cut */
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "outer"));
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "opt.rate")); /* its words */
    CHECK_STR("opt.outer_learning_rate", dl_option_nearest(table, "run.learning_rate"));
    CHECK(!dl_option_nearest(table, "opt.earning_rat_rate"));     /* which it has not */
    CHECK_STR("run.steps", dl_option_nearest(table, "run.stip")); /* two of four letters */
    CHECK(!dl_option_nearest(table, "stip"));
    CHECK(!dl_option_nearest(table, "ou"));
    CHECK(!dl_option_nearest(table, "xyz"));
    CHECK(!dl_option_nearest(table, ""));
    char long_name[300];
    memset(long_name, 'a', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    CHECK(!dl_option_nearest(table, long_name));
}

TEST(a_secret_is_never_shown)
{
    begin();
    check_text("", "run.secret");
    CHECK_OK(set("run.secret", "swordfish"));
    check_text("***", "run.secret");
    CHECK_STR("swordfish", v.secret);
    CHECK_STATUS(DILOCO_EINVAL, set("run.secret", "swordfish swordfish swordfish swordfish"));
    CHECK(!strstr(diloco_error_text(), "swordfish"));
}

TEST(the_digest_is_the_hash_of_the_agreed_lines_in_order_of_names)
{
    static const char lines[] = "opt.kind=wait\nopt.outer_learning_rate=0.7\nrun.on=true\n"
                                "run.steps=500\n";
    dl_hash digest, expected = dl_hash_bytes(lines, sizeof lines - 1);
    begin();
    CHECK_OK(dl_options_digest(&digest, table, &v));
    CHECK(dl_hash_equal(expected, digest));
    CHECK_OK(set("run.path", "elsewhere")); /* not agreed */
    CHECK_OK(dl_options_digest(&digest, table, &v));
    CHECK(dl_hash_equal(expected, digest));
    CHECK_OK(set("every", "501"));
    CHECK_OK(dl_options_digest(&digest, table, &v));
    CHECK(!dl_hash_equal(expected, digest));
}

TEST_MAIN(defaults_fill_every_field, values_are_set_by_name_and_alias_and_know_their_origin,
          numbers_are_as_in_toml, a_refusal_names_valid_values_and_changes_nothing,
          a_value_is_compared_with_a_text_as_it_would_be_read,
          an_unknown_name_is_answered_with_the_nearest,
          nearest_looks_at_names_aliases_and_last_components, a_secret_is_never_shown,
          the_digest_is_the_hash_of_the_agreed_lines_in_order_of_names)
