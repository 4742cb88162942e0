/* checksum.c - see checksum.h. A CRC is reflected, begins with all bits set and is inverted at
 * its end. A 32-bit one is computed in the low half of 64 bits, so one loop serves the three. It
 * takes eight bytes at a time (Kounavis and Berry 2005, "slicing by 8"). */
#include "hub/checksum.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { N_CRC = 3, BLOCK = 1 << 16 };

/* A kind is a CRC (polynomial, crc_bytes) or a hash of OpenSSL (hash). A new kind is one row in
 * kinds[]; CRCs come first, because a CRC's row is also its row in tables[]. */
struct dl_checksum_kind {
    const char *header, *element; /* names in a request: as a header, as an element of XML */
    uint64_t polynomial;          /* of a CRC, its bits reversed */
    size_t crc_bytes;             /* 0: no CRC */
    const EVP_MD *(*hash)(void);
};

static const dl_checksum_kind kinds[] = {
    {DL_CHECKSUM_PREFIX "crc32", "ChecksumCRC32", 0xedb88320, 4, NULL},
    {DL_CHECKSUM_PREFIX "crc32c", "ChecksumCRC32C", 0x82f63b78, 4, NULL},
    {DL_CHECKSUM_PREFIX "crc64nvme", "ChecksumCRC64NVME", 0x9a6c9329ac4bc9b5, 8, NULL},
    {DL_CHECKSUM_PREFIX "sha1", "ChecksumSHA1", 0, 0, EVP_sha1},
    {DL_CHECKSUM_PREFIX "sha256", "ChecksumSHA256", 0, 0, EVP_sha256},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static uint64_t tables[N_CRC][8][256]; /* [k][b]: of byte b with k zero bytes after it */

/* Table k is table k-1 moved on by one zero byte. The eight tables together take one step of
 * eight bytes. */
static void make_tables(void)
{
    for (size_t c = 0; c < N_CRC; c++)
        for (size_t k = 0; k < 8; k++)
            for (size_t b = 0; b < 256; b++) {
                uint64_t v = k ? tables[c][k - 1][b] : b;
                for (int bit = 0; bit < 8; bit++)
                    v = v >> 1 ^ (v & 1 ? kinds[c].polynomial : 0);
                tables[c][k][b] = v;
            }
}

const dl_checksum_kind *dl_checksum_find(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (!strcasecmp(name, kinds[i].header) || !strcasecmp(name, kinds[i].element))
            return &kinds[i];
    return NULL;
}

const char *dl_checksum_header(const dl_checksum_kind *kind)
{
    return kind->header;
}

/* A CRC begins with all its bits set: 32 ones for a 32-bit kind, in the low half. */
diloco_status dl_checksum_begin(dl_checksum *c, const dl_checksum_kind *kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *c = (dl_checksum){.kind = kind, .crc = UINT64_MAX};
    if (kind->crc_bytes) {
        pthread_once(&once, make_tables);
        c->crc >>= 64 - 8 * kind->crc_bytes;
        return DILOCO_OK;
    }
    c->md = EVP_MD_CTX_new();
    if (c->md && EVP_DigestInit_ex(c->md, kind->hash(), NULL)) return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "out of memory for a checksum");
}

/* Eight bytes at a time: byte i of the block has 7-i bytes after it, hence table 7-i. The rest
 * is taken by one byte each. */
static uint64_t crc_add(const uint64_t t[8][256], uint64_t crc, const unsigned char *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8) {
        for (size_t i = 0; i < 8; i++)
            crc ^= (uint64_t)p[i] << 8 * i;
        crc = t[7][crc & 255] ^ t[6][crc >> 8 & 255] ^ t[5][crc >> 16 & 255] ^
              t[4][crc >> 24 & 255] ^ t[3][crc >> 32 & 255] ^ t[2][crc >> 40 & 255] ^
              t[1][crc >> 48 & 255] ^ t[0][crc >> 56];
    }
    for (; len > 0; p++, len--)
        crc = crc >> 8 ^ t[0][(crc ^ *p) & 255];
    return crc;
}

void dl_checksum_add(dl_checksum *c, const void *data, size_t len)
{
    if (c->md)
        EVP_DigestUpdate(c->md, data, len);
    else
        c->crc = crc_add((const uint64_t(*)[256])tables[c->kind - kinds], c->crc, data, len);
}

/* The file is read from its start by pread, so its offset stays as it is. */
diloco_status dl_checksum_add_file(dl_checksum *c, int fd, size_t len)
{
    char block[BLOCK];
    for (size_t at = 0; at < len;) {
        const ssize_t n = pread(fd, block, len - at < BLOCK ? len - at : BLOCK, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return dl_fail(DILOCO_EIO, "a part cannot be read for its checksum");
        dl_checksum_add(c, block, (size_t)n);
        at += (size_t)n;
    }
    return DILOCO_OK;
}

/* A CRC is inverted at its end and written with its highest byte first. DL_CHECKSUM_TEXT holds
 * the base64 of 32 bytes, the longest kind. */
void dl_checksum_end(dl_checksum *c, char text[DL_CHECKSUM_TEXT])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned n = (unsigned)c->kind->crc_bytes;
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (unsigned char)(~c->crc >> 8 * (n - 1 - i));
    if (c->md) EVP_DigestFinal_ex(c->md, bytes, &n);
    EVP_EncodeBlock((unsigned char *)text, bytes, (int)n);
}

void dl_checksum_deinit(dl_checksum *c)
{
    EVP_MD_CTX_free(c->md);
    *c = (dl_checksum){0};
}
