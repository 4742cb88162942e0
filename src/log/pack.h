/* pack.h - a payload smaller on the wire: server.diloco.compression = "zstd".
 *
 * Codecs leave bytes whose values are far from even: the exponents of floats above all. A payload
 * is packed in pieces of DL_PACK_PIECE bytes, the last one shorter: 4 bytes that say how many
 * follow, little-endian, and those: the piece as it is, where they are as many as it has, else one
 * zstd frame of the shuffled piece. Shuffled by width w: the first bytes of all its whole groups of
 * w bytes, then the second ones, … and what is left at the end. */
#ifndef DL_LOG_PACK_H
#define DL_LOG_PACK_H

#include "base/size.h"
#include "base/status.h"

enum { DL_PACK_PIECE = 256 << 10 };

/* The memory for it, all of it taken at once. One thread at a time. */
typedef struct dl_packer dl_packer;
DL_MUST_CHECK diloco_status dl_packer_create(dl_packer **out); /* DILOCO_ENOMEM */
void dl_packer_destroy(dl_packer *packer);                     /* NULL is fine */

/* Bytes before a payload of len bytes that packing it in place needs: 4 for each piece. */
size_t dl_pack_gap(size_t len);

/* The payload of len bytes at buffer + gap becomes its packed form at buffer, of at most gap + len
 * bytes; gap is dl_pack_gap(len) or more. Returns the length. */
size_t dl_pack(dl_packer *packer, unsigned char *buffer, size_t gap, size_t len, size_t width);

/* The reverse, also in place: `packed` may are in out's memory if it ends at or behind
 * out + len + dl_pack_gap(len). Bytes of an untrusted peer; out gets len of them at most.
 * DILOCO_EPROTO: they are no packed form of len bytes. */
DL_MUST_CHECK diloco_status dl_pack_open(dl_packer *packer, unsigned char *out, size_t len,
                                         const unsigned char *packed, size_t packed_len,
                                         size_t width);

#endif
