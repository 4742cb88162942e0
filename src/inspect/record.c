/* record.c - diloco_record_walk: the parts rec/<generation>/<k>.jsonl.zst in the order of their
 * names, which is that of their lines. */
#include "inspect/reader.h"

#include "base/log.h"
#include "log/zstd_text.h"

#include <string.h>

/* Bytes of one part, and of all the names of a run's parts. */
enum { PART_MAX = 64 << 20, KEYS_MAX = 256 << 20 };

/* Keep the name of a part with its zero byte. The parts are read after the listing, as `found`
 * must not use the handle. */
static diloco_status found_part(void *context, const char *key, size_t len)
{
    dl_generation generation;
    uint64_t part;
    (void)len;
    if (!dl_key_parse_record(&generation, &part, key)) return DILOCO_OK;
    return dl_buf_add(context, key, strlen(key) + 1);
}

/* Give each line to the caller's function. The last one may lack its newline. */
static diloco_status walk_lines(const dl_buf *part, diloco_record_line_fn fn, void *user)
{
    const char *at = (const char *)part->data, *end = at + part->len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (stop > at) DL_TRY(fn(user, at, (size_t)(stop - at)));
        at = newline ? newline + 1 : end;
    }
    return DILOCO_OK;
}

/* A damaged part is reported, and the others are still read. */
static diloco_status walk_parts(dl_store *store, const dl_buf *keys, dl_buf *frame, dl_buf *part,
                                diloco_record_line_fn fn, void *user)
{
    const char *at = (const char *)keys->data, *end = at + keys->len;
    for (; at < end; at += strlen(at) + 1) {
        dl_buf_clear(frame);
        dl_buf_clear(part);
        diloco_status status = dl_store_get(store, frame, at, dl_reader_limit());
        if (!status) status = dl_unzip(part, frame->data, frame->len);
        if (status == DILOCO_EPROTO)
            dl_log(DILOCO_LOG_WARN, "%s: %s", at, diloco_error_text());
        else if (status)
            return status;
        else
            DL_TRY(walk_lines(part, fn, user));
    }
    return DILOCO_OK;
}

/* The names are listed before any part is read. The bounds are for a hostile store. */
diloco_status diloco_record_walk(const char *url, diloco_record_line_fn fn, void *user)
{
    dl_reader r;
    dl_buf keys, frame, part;
    DL_TRY(dl_reader_open(&r, url));
    dl_buf_init(&keys, KEYS_MAX);
    dl_buf_init(&frame, PART_MAX);
    dl_buf_init(&part, PART_MAX);
    diloco_status status =
        dl_store_list(r.store, "rec/", NULL, found_part, &keys, dl_reader_limit());
    if (!status && !keys.len) status = dl_fail(DILOCO_ENOENT, "%s: the run has no record yet", url);
    if (!status) status = walk_parts(r.store, &keys, &frame, &part, fn, user);
    dl_buf_deinit(&keys);
    dl_buf_deinit(&frame);
    dl_buf_deinit(&part);
    dl_reader_close(&r);
    return status;
}
