/* screen_test.c - frames as bytes. */
#include "cli/display/screen.h"

#include "check.h"

static dl_screen screen;
static dl_buf frame;

static const char *draw(int columns, const char (*lines)[DL_SCREEN_LINE], int n)
{
    dl_buf_clear(&frame);
    if (n) memcpy(screen.lines, lines, (size_t)n * sizeof *lines);
    CHECK_OK(dl_screen_frame(&frame, &screen, columns, NULL, n));
    return dl_buf_str(&frame);
}

static void begin(void)
{
    screen = (dl_screen){.out = stdout};
    dl_buf_deinit(&frame);
    dl_buf_init(&frame, 1 << 16);
}

TEST(a_frame_overwrites_the_last_one_and_clears_the_rest)
{
    const char lines[2][DL_SCREEN_LINE] = {"one", "two"};
    begin();
    CHECK_STR("\x1b[?25l\rone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[?25h", draw(80, lines, 2));
    CHECK_STR("\x1b[?25l\x1b[2A\rone\x1b[K\n\x1b[J\x1b[?25h", draw(80, lines, 1));
    CHECK_STR("\x1b[?25l\x1b[1A\r\x1b[J\x1b[?25h", draw(80, NULL, 0));
    CHECK_STR("\x1b[?25l\r\x1b[J\x1b[?25h", draw(80, NULL, 0));
    dl_buf_deinit(&frame);
}

TEST(messages_stay_above_the_frame_in_the_same_write)
{
    const char lines[1][DL_SCREEN_LINE] = {"live"};
    begin();
    draw(80, lines, 1);
    dl_buf_clear(&frame);
    CHECK_OK(dl_screen_frame(&frame, &screen, 80, "stays", 1));
    CHECK_STR("\x1b[?25l\x1b[1A\rstays\x1b[K\nlive\x1b[K\n\x1b[J\x1b[?25h", dl_buf_str(&frame));
    dl_buf_deinit(&frame);
}

TEST(lines_are_cut_between_characters_one_column_before_the_edge)
{
    const char lines[1][DL_SCREEN_LINE] = {"ab\xc3\xa9\xc3\xa9xyz"};
    begin();
    CHECK_STR("\x1b[?25l\rab\xc3\xa9\x1b[K\n\x1b[J\x1b[?25h", draw(4, lines, 1));
    dl_buf_deinit(&frame);
}

TEST(a_terminal_made_narrower_has_wrapped_the_old_lines)
{
    const char lines[1][DL_SCREEN_LINE] = {"0123456789"};
    begin();
    draw(80, lines, 1);
    CHECK_CONTAINS("\x1b[2A\r0123\x1b[K", draw(5, lines, 1));
    dl_buf_deinit(&frame);
}

TEST(where_there_is_no_terminal_lines_are_only_printed)
{
    char *text = NULL;
    size_t len;
    const char lines[1][DL_SCREEN_LINE] = {"live"};
    FILE *out = open_memstream(&text, &len);
    dl_screen_open(&screen, out);
    CHECK(!screen.live);
    dl_screen_draw(&screen, lines, 1);
    dl_screen_print(&screen, "stays");
    fclose(out);
    CHECK_STR("stays\n", text);
    free(text);
}

TEST_MAIN(a_frame_overwrites_the_last_one_and_clears_the_rest,
          messages_stay_above_the_frame_in_the_same_write,
          lines_are_cut_between_characters_one_column_before_the_edge,
          a_terminal_made_narrower_has_wrapped_the_old_lines,
          where_there_is_no_terminal_lines_are_only_printed)
