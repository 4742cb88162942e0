/* log_test.c - the lines that reach the sink. */
#include "base/log.h"

#include "check.h"

typedef struct seen {
    int lines;
    diloco_log_level level;
    char last[4096];
} seen;

static void remember(void *user, diloco_log_level level, const char *line)
{
    seen *s = user;
    s->lines++;
    s->level = level;
    snprintf(s->last, sizeof s->last, "%s", line);
}

TEST(without_a_sink_it_is_silent)
{
    seen s = {0};
    diloco_log_set(remember, &s, DILOCO_LOG_DEBUG);
    diloco_log_set(NULL, NULL, DILOCO_LOG_DEBUG);
    dl_log(DILOCO_LOG_ERROR, "nobody listens");
    CHECK_INT(0, s.lines);
}

TEST(a_line_reaches_the_sink_with_its_level)
{
    seen s = {0};
    diloco_log_set(remember, &s, DILOCO_LOG_INFO);
    dl_log(DILOCO_LOG_WARN, "entry %d: %s", 12, "late");
    CHECK_INT(1, s.lines);
    CHECK_INT(DILOCO_LOG_WARN, s.level);
    CHECK_STR("entry 12: late", s.last);
}

TEST(lines_above_the_level_are_left_out)
{
    seen s = {0};
    diloco_log_set(remember, &s, DILOCO_LOG_WARN);
    dl_log(DILOCO_LOG_INFO, "too much");
    dl_log(DILOCO_LOG_DEBUG, "far too much");
    CHECK_INT(0, s.lines);
    dl_log(DILOCO_LOG_ERROR, "enough");
    CHECK_INT(1, s.lines);
}

TEST(text_from_outside_cannot_begin_a_second_line)
{
    seen s = {0};
    diloco_log_set(remember, &s, DILOCO_LOG_INFO);
    dl_log(DILOCO_LOG_INFO, "replica %s", "a\nentry 1: forged\x1b[2J\x7f");
    CHECK_STR("replica a?entry 1: forged?[2J?", s.last);
}

TEST(a_long_line_is_cut)
{
    seen s = {0};
    diloco_log_set(remember, &s, DILOCO_LOG_INFO);
    dl_log(DILOCO_LOG_INFO, "%5000d", 1);
    CHECK_INT(2047, strlen(s.last));
}

TEST_MAIN(without_a_sink_it_is_silent, a_line_reaches_the_sink_with_its_level,
          lines_above_the_level_are_left_out, text_from_outside_cannot_begin_a_second_line,
          a_long_line_is_cut)
