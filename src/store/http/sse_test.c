/* sse_test.c - events, however they are cut into pieces. */
#include "store/http/sse.h"

#include "check.h"

static char seen[4096]; /* "<event>|<data> …" */

static void note(void *context, const char *event, const char *data)
{
    size_t used = strlen(seen);
    CHECK(context == seen);
    snprintf(seen + used, sizeof seen - used, "%s|%s ", event, data);
}

/* In pieces of `piece` bytes. */
static const char *read_all(const char *text, size_t piece)
{
    static dl_sse sse;
    size_t len = strlen(text);
    memset(&sse, 0, sizeof sse);
    seen[0] = '\0';
    for (size_t at = 0; at < len; at += piece)
        dl_sse_add(&sse, text + at, len - at < piece ? len - at : piece, note, seen);
    return seen;
}

TEST(events_come_whole_from_any_pieces)
{
    static const char text[] = "event: open\ndata: run/\n\n: still here\n\ndata: c/1/r0.0\r\n\r\n"
                               "id: 7\nretry: 3\ndata:bare\n\nevent: lost\ndata:\n\n";
    for (size_t piece = 1; piece < sizeof text; piece++)
        CHECK_STR("open|run/ |c/1/r0.0 |bare lost| ", read_all(text, piece));
}

TEST(lines_that_are_no_event_are_skipped)
{
    CHECK_STR("", read_all("data: not ended\n", 3));
    CHECK_STR("", read_all("event: without data\n\n", 3));
    CHECK_STR("|x ", read_all("database: y\nevents: z\n\ndata: x\n\n", 3));
    CHECK_STR("|second ", read_all("data: first\ndata: second\n\n", 3)); /* ours have one line */
    CHECK_STR("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|x ",
              read_all("event: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\ndata: x\n\n", 3));
}

TEST(a_line_that_is_too_long_loses_its_event_alone)
{
    char text[3 * DL_SSE_LINE] = "data: first\n\ndata: ";
    size_t len = strlen(text);
    memset(text + len, 'x', 2 * DL_SSE_LINE);
    strcpy(text + len + 2 * DL_SSE_LINE - 100, "\n\ndata: last\n\n");
    CHECK_STR("|first |last ", read_all(text, 100));
}

TEST_MAIN(events_come_whole_from_any_pieces, lines_that_are_no_event_are_skipped,
          a_line_that_is_too_long_loses_its_event_alone)
