/* lines.c - see lines.h. A newline directly after a piece of LINE_BYTES gives an empty line. */
#include "launch/lines.h"

#include <string.h>

/* 64 KiB: more than programs print in a line, and little memory. */
enum { LINE_BYTES = 1 << 16 };

void dl_lines_init(dl_lines *lines, dl_job_line_fn fn, void *user)
{
    *lines = (dl_lines){.fn = fn, .user = user};
    dl_buf_init(&lines->line, LINE_BYTES);
}

static diloco_status give(dl_lines *l)
{
    DL_TRY(l->fn(l->user, (const char *)l->line.data, l->line.len));
    dl_buf_clear(&l->line);
    return DILOCO_OK;
}

/* Each turn takes bytes up to a newline, or up to the longest piece. */
diloco_status dl_lines_add(dl_lines *l, const char *bytes, size_t n)
{
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        const size_t len = dl_size_min(end ? (size_t)(end - bytes) : n, LINE_BYTES - l->line.len);
        const bool whole = end == bytes + len;
        DL_TRY(dl_buf_add(&l->line, bytes, len));
        if (whole || l->line.len == LINE_BYTES) DL_TRY(give(l));
        bytes += len + whole;
        n -= len + whole;
    }
    return DILOCO_OK;
}

diloco_status dl_lines_end(dl_lines *l, diloco_status status)
{
    if (!status && l->line.len) status = give(l);
    dl_buf_deinit(&l->line);
    return status;
}
