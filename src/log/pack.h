/* pack.h - compressed payloads: server.diloco.compression = "zstd".
 *
 * Codecs leave bytes of uneven distribution, above all the exponents of floats. A payload is packed
 * in pieces of DL_PACK_PIECE bytes; the last one is shorter. Each begins with the number of bytes
 * that follow, in 4 bytes, little-endian. If that is the length of the piece, it is stored as it
 * is, else as one zstd frame of the shuffled piece. Shuffled by width w means: the first byte of
 * each whole group of w bytes, then the second bytes, and so forth. The remaining bytes come last.
 */
#ifndef DL_LOG_PACK_H
#define DL_LOG_PACK_H

#include "base/size.h"
#include "base/status.h"

enum { DL_PACK_PIECE = 256 << 10 };

/* The memory for packing, allocated at once. One thread at a time. */
typedef struct dl_packer dl_packer;
DL_MUST_CHECK diloco_status dl_packer_create(dl_packer **out); /* DILOCO_ENOMEM */
void dl_packer_destroy(dl_packer *packer);                     /* NULL is fine */

/* Returns the bytes that must be free before a payload of len bytes to pack it in place: 4 for each
 * piece. */
size_t dl_pack_gap(size_t len);

/* Packs the payload of len bytes at buffer + gap to buffer, in at most gap + len bytes. gap is
 * dl_pack_gap(len) or more. Returns the length. */
size_t dl_pack(dl_packer *packer, unsigned char *buffer, size_t gap, size_t len, size_t width);

/* Unpacks, also in place: `packed` may be in out's memory if it ends at or after out + len +
 * dl_pack_gap(len). The bytes are untrusted, and out gets at most len of them. Returns
 * DILOCO_EPROTO if they are no packed form of len bytes. */
DL_MUST_CHECK diloco_status dl_pack_open(dl_packer *packer, unsigned char *out, size_t len,
                                         const unsigned char *packed, size_t packed_len,
                                         size_t width);

#endif
