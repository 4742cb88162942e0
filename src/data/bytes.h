/* bytes.h - a file's bytes: mapped, or unpacked into memory where it is packed with gzip. */
#ifndef DL_DATA_BYTES_H
#define DL_DATA_BYTES_H

#include "base/file.h"

/* A file's bytes; read-only, valid until dl_bytes_close. */
typedef struct dl_bytes {
    const unsigned char *data;
    size_t len;
    dl_map map;           /* of the file on disk */
    unsigned char *owned; /* the unpacked bytes, or NULL */
} dl_bytes;

/* Opens a file; its first bytes show whether it is packed. Memory is taken only for a length that
 * the packed bytes can have. Returns DILOCO_ENOENT, DILOCO_EIO and DILOCO_ENOMEM. Returns
 * DILOCO_EPROTO, with the path in its text, if packed bytes are damaged, cut short, or have more
 * than one member. */
DL_MUST_CHECK diloco_status dl_bytes_open(dl_bytes *out, const char *path);
void dl_bytes_close(dl_bytes *bytes); /* zeroed is fine */

#endif
