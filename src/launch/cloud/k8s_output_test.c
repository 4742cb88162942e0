/* k8s_output_test.c - the end of a replica's output that is kept. */
#include "launch/cloud/k8s_output.h"

#include "check.h"

#include <string.h>

static void add(dl_k8s_tail *tail, const char *line)
{
    CHECK_OK(dl_k8s_tail_add(tail, line, strlen(line)));
}

static void check_end(dl_k8s_tail *tail, const char *want)
{
    const dl_span end = dl_k8s_tail_end(tail);
    CHECK_INT((long long)strlen(want), (long long)end.len);
    if (end.len) CHECK_BYTES(want, end.data, end.len);
}

TEST(short_output_is_kept_whole)
{
    dl_k8s_tail tail;
    dl_k8s_tail_init(&tail, 8);
    check_end(&tail, "");
    add(&tail, "abc");
    add(&tail, "def");
    check_end(&tail, "abc\ndef\n");
    dl_k8s_tail_deinit(&tail);
}

TEST(long_output_keeps_its_last_whole_lines)
{
    dl_k8s_tail tail;
    char line[8];
    dl_k8s_tail_init(&tail, 10);
    for (int i = 0; i < 100; i++) {
        snprintf(line, sizeof line, "n%02d", i);
        add(&tail, line);
        CHECK(tail.text.len <= 2 * tail.most + 4);
    }
    check_end(&tail, "n98\nn99\n");
    dl_k8s_tail_deinit(&tail);
}

TEST(line_of_more_bytes_than_are_kept_leaves_only_later_lines)
{
    dl_k8s_tail tail;
    dl_k8s_tail_init(&tail, 4);
    add(&tail, "first");
    add(&tail, "0123456789");
    check_end(&tail, "");
    add(&tail, "z");
    check_end(&tail, "z\n");
    dl_k8s_tail_deinit(&tail);
}

TEST_MAIN(short_output_is_kept_whole, long_output_keeps_its_last_whole_lines,
          line_of_more_bytes_than_are_kept_leaves_only_later_lines)
