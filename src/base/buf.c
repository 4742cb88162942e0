/* buf.c - doubling growth, cut at the maximum.
 *
 * Invariant: data, when not NULL, has cap + 1 bytes; the last one is room for the zero
 * byte of dl_buf_str and of vsnprintf, and is never content. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 64 };

void dl_buf_init(dl_buf *buf, size_t max)
{
    DL_ASSERT(max > 0 && max < SIZE_MAX);
    *buf = (dl_buf){.max = max};
}

void dl_buf_deinit(dl_buf *buf)
{
    free(buf->data);
    *buf = (dl_buf){0};
}

/* The maximum is checked before memory is taken, so outside data cannot make a buffer grow beyond
 * it. After an error the buffer is unchanged. */
diloco_status dl_buf_reserve(dl_buf *buf, size_t n)
{
    DL_ASSERT(buf->max > 0);
    if (buf->data && n <= buf->cap) return DILOCO_OK;
    if (n > buf->max)
        return dl_fail(DILOCO_EPROTO, "%zu bytes are more than the allowed %zu", n, buf->max);

    size_t twice = buf->cap > buf->max / 2 ? buf->max : buf->cap * 2;
    size_t cap = dl_size_min(dl_size_max(dl_size_max(n, twice), SMALLEST), buf->max);
    void *data = realloc(buf->data, cap + 1);
    if (!data) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu bytes", cap);
    buf->data = data;
    buf->cap = cap;
    return DILOCO_OK;
}

/* The sum is checked, so an absurd n fails at the maximum and not by overflow. */
diloco_status dl_buf_add(dl_buf *buf, const void *data, size_t n)
{
    size_t len;
    if (!dl_size_add(&len, buf->len, n)) len = SIZE_MAX;
    DL_TRY(dl_buf_reserve(buf, len));
    if (n) memcpy(buf->data + buf->len, data, n);
    buf->len = len;
    return DILOCO_OK;
}

/* Formats into the room that is left, and once more after growing if that was too small. */
diloco_status dl_buf_addf(dl_buf *buf, const char *format, ...)
{
    DL_TRY(dl_buf_reserve(buf, buf->len));
    for (;;) {
        size_t room = buf->cap - buf->len;
        va_list args;
        va_start(args, format);
        int n = vsnprintf((char *)buf->data + buf->len, room + 1, format, args);
        va_end(args);
        DL_ASSERT(n >= 0);
        if ((size_t)n <= room) {
            buf->len += (size_t)n;
            return DILOCO_OK;
        }
        DL_TRY(dl_buf_reserve(buf, buf->len + (size_t)n));
    }
}

/* The zero byte is outside cap, so it never counts as content and never needs a larger maximum. */
const char *dl_buf_str(dl_buf *buf)
{
    if (dl_buf_reserve(buf, buf->len)) return NULL;
    buf->data[buf->len] = 0;
    return (const char *)buf->data;
}
