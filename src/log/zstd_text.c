/* zstd_text.c - see zstd_text.h. */
#include "log/zstd_text.h"

#include <stdlib.h>
#include <zstd.h>

enum { LEVEL = 3 };

struct dl_zipper {
    ZSTD_CCtx *context;
    dl_buf frame;
};

static diloco_status no_memory(void)
{
    return dl_fail(DILOCO_ENOMEM, "not enough memory to compress the record");
}

diloco_status dl_zipper_create(dl_zipper **out, size_t usual)
{
    dl_zipper *z = *out = calloc(1, sizeof *z);
    if (!z) return no_memory();
    dl_buf_init(&z->frame, SIZE_MAX / 2);
    z->context = ZSTD_createCCtx();
    /* Compress once at full size, which allocates the memory that later calls use. */
    void *text = calloc(1, usual);
    dl_span frame;
    const diloco_status status = z->context && text ? dl_zip(z, &frame, text, usual) : no_memory();
    free(text);
    if (!status) return DILOCO_OK;
    dl_zipper_destroy(z);
    *out = NULL;
    return status;
}

void dl_zipper_destroy(dl_zipper *z)
{
    if (!z) return;
    ZSTD_freeCCtx(z->context);
    dl_buf_deinit(&z->frame);
    free(z);
}

/* *frame refers to the zipper's memory until the next call. */
diloco_status dl_zip(dl_zipper *z, dl_span *frame, const void *text, size_t len)
{
    const size_t most = ZSTD_compressBound(len);
    dl_buf_clear(&z->frame);
    DL_TRY(dl_buf_reserve(&z->frame, most));
    z->frame.len = ZSTD_compressCCtx(z->context, z->frame.data, most, text, len, LEVEL);
    if (ZSTD_isError(z->frame.len)) {
        z->frame.len = 0;
        return no_memory();
    }
    *frame = (dl_span){z->frame.data, z->frame.len};
    return DILOCO_OK;
}

/* The frame's own size is checked against the room before anything is allocated. A frame without a
 * size is refused. */
diloco_status dl_unzip(dl_buf *out, const void *frame, size_t len)
{
    const unsigned long long n = ZSTD_getFrameContentSize(frame, len);
    if (n == ZSTD_CONTENTSIZE_ERROR || n == ZSTD_CONTENTSIZE_UNKNOWN || n > out->max - out->len)
        return dl_fail(DILOCO_EPROTO, "it is no text of at most %zu bytes in a zstd frame",
                       out->max - out->len);
    DL_TRY(dl_buf_reserve(out, out->len + (size_t)n));
    if (ZSTD_decompress(out->data + out->len, (size_t)n, frame, len) != n)
        return dl_fail(DILOCO_EPROTO, "its zstd frame is damaged");
    out->len += (size_t)n;
    return DILOCO_OK;
}
