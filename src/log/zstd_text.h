/* zstd_text.h - texts of a store that are one zstd frame each, which says how long they are: what
 * zstdcat reads. A record's lines, which are much alike, take a tenth of their bytes so. */
#ifndef DL_LOG_ZSTD_TEXT_H
#define DL_LOG_ZSTD_TEXT_H

#include "base/buf.h"
#include "base/file.h"

/* The memory for it, for texts of `usual` bytes all of it at once. One thread at a time. */
typedef struct dl_zipper dl_zipper;
DL_MUST_CHECK diloco_status dl_zipper_create(dl_zipper **out, size_t usual); /* DILOCO_ENOMEM */
void dl_zipper_destroy(dl_zipper *zipper);                                   /* NULL is fine */

/* The frame of a text; valid until the next one. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_zip(dl_zipper *zipper, dl_span *frame, const void *text, size_t len);

/* Append the text of a frame. Bytes of an untrusted peer. DILOCO_EPROTO: it is none, or not whole,
 * or the text is longer than there is room below out->max; out is as it was. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_unzip(dl_buf *out, const void *frame, size_t len);

#endif
