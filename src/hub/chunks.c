/* chunks.c - a state machine over lines and data; the states are those of dl_chunks_state. */
#include "hub/chunks.h"

#include <stdlib.h>
#include <string.h>

static diloco_status bad(const char *what)
{
    return dl_fail(DILOCO_EPROTO, "the body is not aws-chunked: %s", what);
}

/* Take a whole line without its end, and enter the state that follows from it. Extensions after
 * ';' are skipped. At most 15 hex digits are read, so a length cannot overflow 64 bits. */
static diloco_status on_line(dl_chunks *c)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    size_t len = strspn(c->line, hex);
    switch (c->state) {
    case DL_CHUNKS_SIZE:
        if (len == 0 || len > 15 || (c->line[len] && c->line[len] != ';'))
            return bad("a chunk has no length");
        c->left = strtoull(c->line, NULL, 16);
        c->state = c->left ? DL_CHUNKS_DATA : DL_CHUNKS_TRAILER;
        return DILOCO_OK;
    case DL_CHUNKS_DATA_END:
        if (c->line[0]) return bad("a chunk is longer than its length");
        c->state = DL_CHUNKS_SIZE;
        return DILOCO_OK;
    case DL_CHUNKS_TRAILER:
        if (!c->line[0]) {
            c->state = DL_CHUNKS_OVER;
        } else {
            if (c->trailer[0]) return bad("it has more than one trailer");
            memcpy(c->trailer, c->line, sizeof c->trailer);
        }
        return DILOCO_OK;
    case DL_CHUNKS_DATA:
    case DL_CHUNKS_OVER:
        break;
    }
    return bad("something follows its end");
}

/* Collect a line, byte by byte. A line longer than DL_CHUNKS_LINE is refused, so no client makes
 * the hub keep more. A zero byte is refused because lines are compared as C strings. */
static diloco_status on_byte(dl_chunks *c, char byte)
{
    if (byte == '\0' || c->state == DL_CHUNKS_OVER) return bad("something follows its end");
    if (byte != '\n') {
        if (c->line_len + 1 == sizeof c->line) return bad("a line is too long");
        c->line[c->line_len++] = byte;
        return DILOCO_OK;
    }
    if (c->line_len == 0 || c->line[c->line_len - 1] != '\r')
        return bad("a line does not end in CR LF");
    c->line[c->line_len - 1] = '\0';
    c->line_len = 0;
    return on_line(c);
}

/* Data is handed on in pieces as large as they arrive. Only lines are read byte by byte. */
diloco_status dl_chunks_add(dl_chunks *c, const char *data, size_t len, dl_chunks_fn take,
                            void *context)
{
    while (len > 0) {
        size_t n = 1;
        if (c->state == DL_CHUNKS_DATA) {
            n = c->left < len ? (size_t)c->left : len;
            DL_TRY(take(context, data, n));
            c->left -= n;
            if (c->left == 0) c->state = DL_CHUNKS_DATA_END;
        } else {
            DL_TRY(on_byte(c, *data));
        }
        data += n;
        len -= n;
    }
    return DILOCO_OK;
}

diloco_status dl_chunks_end(const dl_chunks *c)
{
    return c->state == DL_CHUNKS_OVER ? DILOCO_OK : bad("it ended early");
}
