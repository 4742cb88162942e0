/* pack.c - see pack.h. Packing and unpacking go piece by piece through one scratch piece. A packed
 * piece is at most 4 bytes longer than in memory. So the packed form, written from the front, never
 * reaches the pieces that are still to be read. A packed form at the end of the memory is read
 * before the pieces reach it. */
#include "log/pack.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { LEVEL = 1, LENGTH = 4 };

struct dl_packer {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    unsigned char shuffled[DL_PACK_PIECE];
    unsigned char frame[DL_PACK_PIECE];
};

/* One packer serves one thread at a time: it has the scratch pieces. */
diloco_status dl_packer_create(dl_packer **out)
{
    *out = NULL;
    dl_packer *p = calloc(1, sizeof *p);
    if (p) p->compress = ZSTD_createCCtx();
    if (p) p->decompress = ZSTD_createDCtx();
    /* Compress once at full size, which allocates the memory that later calls use. */
    if (!p || !p->compress || !p->decompress ||
        ZSTD_isError(ZSTD_compressCCtx(p->compress, p->frame, sizeof p->frame, p->shuffled,
                                       sizeof p->shuffled, LEVEL))) {
        dl_packer_destroy(p);
        return dl_fail(DILOCO_ENOMEM, "not enough memory to compress contributions");
    }
    *out = p;
    return DILOCO_OK;
}

void dl_packer_destroy(dl_packer *packer)
{
    if (!packer) return;
    ZSTD_freeCCtx(packer->compress);
    ZSTD_freeDCtx(packer->decompress);
    free(packer);
}

/* Returns the bytes by which the packed form can exceed the payload: a length for each piece. */
size_t dl_pack_gap(size_t len)
{
    return (len + DL_PACK_PIECE - 1) / DL_PACK_PIECE * LENGTH;
}

/* ---- one piece */

/* Puts the first bytes of all elements first, then the second ones, and so on. Exponents are then
 * adjacent, which compresses better. A rest shorter than an element is copied as it is. */
static void shuffle(unsigned char *out, const unsigned char *in, size_t n, size_t width)
{
    const size_t groups = n / width;
    for (size_t b = 0; b < width; b++)
        for (size_t i = 0; i < groups; i++)
            *out++ = in[i * width + b];
    memcpy(out, in + groups * width, n % width);
}

static void unshuffle(unsigned char *out, const unsigned char *in, size_t n, size_t width)
{
    const size_t groups = n / width;
    for (size_t b = 0; b < width; b++)
        for (size_t i = 0; i < groups; i++)
            out[i * width + b] = *in++;
    memcpy(out + groups * width, in, n % width);
}

static void put_length(unsigned char *out, size_t length)
{
    for (int i = 0; i < LENGTH; i++)
        out[i] = (unsigned char)(length >> 8 * i);
}

static size_t get_length(const unsigned char *in)
{
    size_t length = 0;
    for (int i = 0; i < LENGTH; i++)
        length |= (size_t)in[i] << 8 * i;
    return length;
}

/* Pack n bytes to out, which may precede them in the same memory. */
static size_t pack_piece(dl_packer *p, unsigned char *out, const unsigned char *in, size_t n,
                         size_t width)
{
    shuffle(p->shuffled, in, n, width);
    /* the frame must be shorter than the piece, else it is of no use */
    size_t length = ZSTD_compressCCtx(p->compress, p->frame, n - 1, p->shuffled, n, LEVEL);
    if (ZSTD_isError(length)) {
        memmove(out + LENGTH, in, n);
        length = n;
    } else {
        memcpy(out + LENGTH, p->frame, length);
    }
    put_length(out, length);
    return LENGTH + length;
}

/* The payload begins `gap` bytes after the buffer's start, and its packed form grows from the
 * start. It never overtakes what is still to be packed. */
size_t dl_pack(dl_packer *packer, unsigned char *buffer, size_t gap, size_t len, size_t width)
{
    unsigned char *out = buffer;
    for (size_t at = 0; at < len; at += DL_PACK_PIECE)
        out +=
            pack_piece(packer, out, buffer + gap + at, dl_size_min(DL_PACK_PIECE, len - at), width);
    return (size_t)(out - buffer);
}

/* Unpacks n bytes to out from a piece's `length` bytes, which may be in the same memory. A piece of
 * its full length is stored uncompressed. zstd gets the exact size that it may write, so a hostile
 * frame cannot write more. */
static diloco_status open_piece(dl_packer *p, unsigned char *out, size_t n, const unsigned char *in,
                                size_t length, size_t width)
{
    if (length == n) {
        memmove(out, in, n);
        return DILOCO_OK;
    }
    const size_t got = ZSTD_decompressDCtx(p->decompress, p->shuffled, n, in, length);
    if (ZSTD_isError(got))
        return dl_fail(DILOCO_EPROTO, "a compressed piece: %s", ZSTD_getErrorName(got));
    if (got != n)
        return dl_fail(DILOCO_EPROTO, "a compressed piece holds %zu bytes, not %zu", got, n);
    unshuffle(out, p->shuffled, n, width);
    return DILOCO_OK;
}

/* Every length is checked against the piece and the rest of the input before it is used. Returns
 * DILOCO_EPROTO unless exactly `len` bytes result and the input is used up. */
diloco_status dl_pack_open(dl_packer *packer, unsigned char *out, size_t len,
                           const unsigned char *packed, size_t packed_len, size_t width)
{
    const unsigned char *end = packed + packed_len;
    for (size_t at = 0; at < len; at += DL_PACK_PIECE) {
        const size_t n = dl_size_min(DL_PACK_PIECE, len - at);
        const size_t left = (size_t)(end - packed);
        const size_t length = left < LENGTH ? 0 : get_length(packed);
        if (length == 0 || length > n || length > left - LENGTH)
            return dl_fail(DILOCO_EPROTO, "the compressed piece at byte %zu has no possible length",
                           at);
        DL_TRY(open_piece(packer, out + at, n, packed + LENGTH, length, width));
        packed += LENGTH + length;
    }
    if (packed != end)
        return dl_fail(DILOCO_EPROTO, "%zu bytes after the last compressed piece",
                       (size_t)(end - packed));
    return DILOCO_OK;
}
