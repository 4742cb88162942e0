/* args_test.c - command lines: flags, values, targets, and what is wrong with them. */
#include "cli/cli.h"
#include "cli/join_line.h"

#include "check.h"

static dl_args args;

/* "train --seed 3 x" as a command line of at most 15 words. */
static diloco_status parse(const char *line)
{
    static char text[256];
    static char *words[17];
    int n = 1;
    char *next = NULL;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &next); word && n < 16; word = strtok_r(NULL, " ", &next))
        words[n++] = word;
    words[n] = NULL;
    const dl_command *command = dl_command_find(words[1]);
    CHECK(command != NULL);
    return dl_args_parse(&args, command, n, words, 2);
}

static void check_refused(const char *part, const char *line)
{
    CHECK_STATUS(DILOCO_EINVAL, parse(line));
    CHECK_CONTAINS(part, diloco_error_text());
}

TEST(flags_take_their_value_from_the_next_argument_or_after_an_equals_sign)
{
    CHECK_OK(parse("train run.toml --seed 3 --store=a=b --set x=1 --json --set=y=2"));
    CHECK_STR("run.toml", args.target);
    CHECK_STR("3", args.flags[DL_FLAG_SEED]);
    CHECK_STR("a=b", args.flags[DL_FLAG_STORE]);
    CHECK(dl_args_has(&args, DL_FLAG_JSON));
    CHECK(!dl_args_has(&args, DL_FLAG_QUIET));
    CHECK_INT(2, args.n_sets);
    CHECK_STR("x=1", args.sets[0]);
    CHECK_STR("y=2", args.sets[1]);
}

TEST(a_flag_of_two_commands_is_the_one_of_its_command)
{
    CHECK_OK(parse("sample url --seed 9"));
    CHECK_STR("9", args.flags[DL_FLAG_SAMPLE_SEED]);
    CHECK(!dl_args_has(&args, DL_FLAG_SEED));
}

TEST(help_all_is_read_as_a_flag_of_any_command_and_another_value_of_help_is_refused)
{
    CHECK_OK(parse("train --help=all"));
    CHECK(dl_args_has(&args, DL_FLAG_HELP_ALL) && !dl_args_has(&args, DL_FLAG_HELP));
    CHECK_OK(parse("serve --help=all"));
    CHECK_OK(parse("train --help"));
    CHECK(dl_args_has(&args, DL_FLAG_HELP) && !dl_args_has(&args, DL_FLAG_HELP_ALL));
    check_refused("--help=all", "train --help=more");
}

TEST(behind_two_dashes_everything_is_a_target)
{
    CHECK_OK(parse("train -- --odd.toml"));
    CHECK_STR("--odd.toml", args.target);
}

TEST(unknown_flags_are_answered_with_the_nearest_of_their_command)
{
    check_refused("did you mean --replicas?", "train --replcas 3");
    check_refused("did you mean --json?", "status url --jsno");
    check_refused("train has no flag --zzzzzzzz; see diloco train --help", "train --zzzzzzzz");
    check_refused("status has no flag --replicas", "status url --replicas 3");
}

TEST(wrong_values_and_targets_are_refused)
{
    check_refused("--seed needs a value", "train --seed");
    check_refused("--seed \"\": the S is empty", "train --seed=");
    check_refused("--json takes no value", "train --json=1");
    check_refused("--seed is given twice: 1 and 2", "train --seed 1 --seed 2");
    check_refused("--set KEY=VALUE", "train --set x");
    check_refused("status needs a URL", "status");
    check_refused("\"a\" and \"b\"", "status a b");
    check_refused("id takes no argument", "id a");
    CHECK_OK(parse("train --seed 1 --seed 1"));
}

TEST(second_argument_of_a_command_may_be_the_value_of_a_flag)
{
    static char *words[] = {NULL, "launch", "scale", "url", "2..8", "7", NULL};
    const dl_command *scale = dl_command_find("launch scale");
    CHECK_OK(dl_args_parse(&args, scale, 5, words, 3));
    CHECK_STR("url", args.target);
    CHECK_STR("2..8", args.flags[DL_FLAG_LAUNCH_REPLICAS]);
    CHECK_STATUS(DILOCO_EINVAL, dl_args_parse(&args, scale, 6, words, 3));
    CHECK_CONTAINS("--replicas is given twice: 2..8 and 7", diloco_error_text());
}

TEST(errors_show_no_secret_of_a_join_line)
{
    static const char *const lines[] = {
        "join https://h:1/run#0123.secret extra", "join extra https://h:1/run#0123.secret",
        "train --store https://h:1/a#0123.secret --store=b", "id https://h:1/run#0123.secret"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        CHECK_STATUS(DILOCO_EINVAL, parse(lines[i]));
        CHECK_CONTAINS("https://h:1/", diloco_error_text());
        CHECK(!strchr(diloco_error_text(), '#') && !strstr(diloco_error_text(), "secret"));
    }
}

TEST(a_command_line_is_said_again_without_the_secret_of_a_join_line)
{
    char line[160] = "--store=https://h:1/run#", again[256];
    char *words[] = {"diloco", "train", "my run.toml", line, "--quiet"};
    memset(line + strlen(line), 'a', 64);
    strcat(line, ".secret");
    CHECK_OK(dl_args_parse(&args, dl_command_find("train"), 5, words, 2));
    CHECK_OK(dl_join_line_take(&args));
    dl_args_again(again, sizeof again, &args);
    CHECK_STR("diloco train 'my run.toml' '--store=https://h:1/run#…' --quiet", again);
    unsetenv("DILOCO_HUB_PIN");
    unsetenv("DILOCO_HUB_TOKEN");
}

TEST(asking_for_help_asks_for_nothing_else)
{
    CHECK_OK(parse("status --help"));
    CHECK(dl_args_has(&args, DL_FLAG_HELP));
    CHECK_OK(parse("status -h"));
    CHECK(dl_args_has(&args, DL_FLAG_HELP));
}

TEST(words_after_two_dashes_are_the_rest_of_a_command_that_takes_them)
{
    CHECK_OK(parse("exec folder -- sh -c --help -- x"));
    CHECK_STR("folder", args.target);
    CHECK_STR("sh", args.rest[0]);
    CHECK_STR("--help", args.rest[2]);
    CHECK_STR("x", args.rest[4]);
    CHECK(!args.rest[5]);
    CHECK_OK(parse("exec folder"));
    CHECK(!args.rest);
    CHECK_OK(parse("train -- --odd-name"));
    CHECK_STR("--odd-name", args.target);
    CHECK(!args.rest);
}

TEST(number_flags_say_their_range)
{
    uint64_t n;
    double x;
    CHECK_OK(parse("sample url --tokens 12 --temperature 0.5"));
    CHECK_OK(dl_args_u64(&n, &args, DL_FLAG_TOKENS, 200, 100));
    CHECK_INT(12, n);
    CHECK_OK(dl_args_f64(&x, &args, DL_FLAG_TEMPERATURE, 1, 10));
    CHECK_NEAR(0.5, x, 0);
    CHECK_OK(dl_args_u64(&n, &args, DL_FLAG_SAMPLE_SEED, 7, 100));
    CHECK_INT(7, n);
    CHECK_STATUS(DILOCO_EINVAL, dl_args_u64(&n, &args, DL_FLAG_TOKENS, 200, 11));
    CHECK_CONTAINS("--tokens 12 is not a whole number from 0 to 11", diloco_error_text());
    CHECK_OK(parse("sample url --tokens 1.5 --temperature -1"));
    CHECK_STATUS(DILOCO_EINVAL, dl_args_u64(&n, &args, DL_FLAG_TOKENS, 200, 100));
    CHECK_STATUS(DILOCO_EINVAL, dl_args_f64(&x, &args, DL_FLAG_TEMPERATURE, 1, 10));
}

TEST(near_names_are_found_and_far_ones_are_not)
{
    const char *const names[] = {"train", "join", "status", "verify"};
    CHECK_STR("train", dl_nearest(names, 4, "trian"));
    CHECK_STR("status", dl_nearest(names, 4, "statsu"));
    CHECK(!dl_nearest(names, 4, "quux"));
    CHECK(!dl_nearest(names, 0, "train"));
}

TEST(text_from_outside_cannot_steer_a_terminal)
{
    char out[16];
    dl_printable(out, sizeof out, "a\x1b[2Jb\xff\xc2\x9b\nc");
    CHECK_STR("a?[2Jb??\nc", out);
    dl_printable_line(out, sizeof out, "a\x1b[2Jb\xff\xc2\x9b\nc");
    CHECK_STR("a?[2Jb???c", out);
    dl_printable(out, 4, "ab\xc3\xa9");
    CHECK_STR("ab", out);
}

TEST_MAIN(flags_take_their_value_from_the_next_argument_or_after_an_equals_sign,
          a_flag_of_two_commands_is_the_one_of_its_command,
          help_all_is_read_as_a_flag_of_any_command_and_another_value_of_help_is_refused,
          behind_two_dashes_everything_is_a_target,
          unknown_flags_are_answered_with_the_nearest_of_their_command,
          wrong_values_and_targets_are_refused,
          second_argument_of_a_command_may_be_the_value_of_a_flag,
          errors_show_no_secret_of_a_join_line,
          a_command_line_is_said_again_without_the_secret_of_a_join_line,
          asking_for_help_asks_for_nothing_else,
          words_after_two_dashes_are_the_rest_of_a_command_that_takes_them,
          number_flags_say_their_range, near_names_are_found_and_far_ones_are_not,
          text_from_outside_cannot_steer_a_terminal)
