/* zstd_text.h - texts in a store that are one zstd frame each, which zstdcat reads. The frame has
 * the length of its text. A record's lines are similar, so this reduces them to a tenth. */
#ifndef DL_LOG_ZSTD_TEXT_H
#define DL_LOG_ZSTD_TEXT_H

#include "base/buf.h"
#include "base/file.h"

/* The memory for it, allocated at once for texts of `usual` bytes. One thread at a time. */
typedef struct dl_zipper dl_zipper;
DL_MUST_CHECK diloco_status dl_zipper_create(dl_zipper **out, size_t usual); /* DILOCO_ENOMEM */
void dl_zipper_destroy(dl_zipper *zipper);                                   /* NULL is fine */

/* Returns the frame of a text, valid until the next call, or DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_zip(dl_zipper *zipper, dl_span *frame, const void *text, size_t len);

/* Appends the text of a frame, whose bytes are untrusted. Returns DILOCO_EPROTO if it is no frame,
 * is not whole, or its text is longer than the space below out->max; out is unchanged then. Returns
 * DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_unzip(dl_buf *out, const void *frame, size_t len);

#endif
