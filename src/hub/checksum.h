/* checksum.h - the checksums that S3 requests carry, by header ("x-amz-checksum-crc32"), by
 * trailer or in the XML that completes an upload ("ChecksumCRC32"). A value is the base64 of the
 * checksum's bytes, the highest first. CRC32, CRC32C, CRC64NVME, SHA1 and SHA256 are known. */
#ifndef DL_HUB_CHECKSUM_H
#define DL_HUB_CHECKSUM_H

#include "base/status.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DL_CHECKSUM_PREFIX "x-amz-checksum-"

enum { DL_CHECKSUM_TEXT = 48 };

typedef struct dl_checksum_kind dl_checksum_kind;

/* One checksum in progress, owned by its request. Zeroed means that none is computed. */
typedef struct dl_checksum {
    const dl_checksum_kind *kind; /* NULL: no checksum is computed */
    uint64_t crc;                 /* state of a CRC, before the final inversion */
    EVP_MD_CTX *md;               /* state of a hash, owned; NULL for a CRC */
} dl_checksum;

/* The kind that a header or an XML element names, in any case of letters; NULL: not known. */
const dl_checksum_kind *dl_checksum_find(const char *name);
const char *dl_checksum_header(const dl_checksum_kind *kind);

/* DILOCO_ENOMEM; dl_checksum_deinit may be called all the same. */
DL_MUST_CHECK diloco_status dl_checksum_begin(dl_checksum *checksum, const dl_checksum_kind *kind);
void dl_checksum_add(dl_checksum *checksum, const void *data, size_t len);
/* Add the first `len` bytes of a file. DILOCO_EIO: it cannot be read, or it is shorter. */
DL_MUST_CHECK diloco_status dl_checksum_add_file(dl_checksum *checksum, int fd, size_t len);
/* The value of what was added; nothing can be added after it. */
void dl_checksum_end(dl_checksum *checksum, char text[DL_CHECKSUM_TEXT]);
void dl_checksum_deinit(dl_checksum *checksum); /* a zeroed one is fine */

#endif
