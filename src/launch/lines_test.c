/* lines_test.c - the same lines, however the bytes are cut. */
#include "launch/lines.h"

#include "check.h"

#include <string.h>

static char seen[256];

static diloco_status keep(void *user, const char *line, size_t len)
{
    (void)user;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "<%.*s>", (int)len, line);
    return DILOCO_OK;
}

TEST(lines_are_the_same_in_pieces_of_any_size)
{
    static const char text[] = "one\n\nthree\nlast";
    for (size_t piece = 1; piece <= sizeof text; piece++) {
        dl_lines lines;
        diloco_status status = DILOCO_OK;
        seen[0] = '\0';
        dl_lines_init(&lines, keep, NULL);
        for (size_t at = 0; !status && at < strlen(text); at += piece)
            status = dl_lines_add(&lines, text + at, dl_size_min(piece, strlen(text) - at));
        CHECK_OK(dl_lines_end(&lines, status));
        CHECK_STR("<one><><three><last>", seen);
    }
}

static size_t longest, all;

static diloco_status measure(void *user, const char *line, size_t len)
{
    (void)user, (void)line;
    longest = dl_size_max(longest, len);
    all += len;
    return DILOCO_OK;
}

TEST(a_line_without_an_end_comes_in_pieces)
{
    dl_lines lines;
    static char bytes[100000];
    memset(bytes, 'x', sizeof bytes);
    dl_lines_init(&lines, measure, NULL);
    diloco_status status = DILOCO_OK;
    for (int i = 0; !status && i < 3; i++)
        status = dl_lines_add(&lines, bytes, sizeof bytes);
    CHECK_OK(dl_lines_end(&lines, status));
    CHECK_INT(65536, longest);
    CHECK_INT(300000, all);
}

static diloco_status refuse(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
    return dl_fail(DILOCO_EIO, "the reader has closed the output");
}

TEST(an_error_of_the_reader_ends_it)
{
    dl_lines lines;
    dl_lines_init(&lines, refuse, NULL);
    const diloco_status status = dl_lines_add(&lines, "a\nb\n", 4);
    CHECK_STATUS(DILOCO_EIO, dl_lines_end(&lines, status));
}

TEST_MAIN(lines_are_the_same_in_pieces_of_any_size, a_line_without_an_end_comes_in_pieces,
          an_error_of_the_reader_ends_it)
