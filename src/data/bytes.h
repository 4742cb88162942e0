/* bytes.h - a file's bytes: mapped, or unpacked into memory where it is packed with gzip. */
#ifndef DL_DATA_BYTES_H
#define DL_DATA_BYTES_H

#include "base/file.h"

typedef struct dl_bytes {
    const unsigned char *data;
    size_t len;
    dl_map map;           /* of the file on disk */
    unsigned char *owned; /* the unpacked bytes, or NULL */
} dl_bytes;

/* Which of both it is, its first bytes say. DILOCO_ENOENT, DILOCO_EIO; DILOCO_EPROTO, worded with
 * the path: packed bytes that are damaged, cut short, or of more than one piece; DILOCO_ENOMEM.
 * Memory is taken only for a length that the packed bytes can have. */
DL_MUST_CHECK diloco_status dl_bytes_open(dl_bytes *out, const char *path);
void dl_bytes_close(dl_bytes *bytes); /* zeroed is fine */

#endif
