/* hash.c - the digest's two levels are two XXH3 streams: `leaf` takes bytes until it has
 * DL_LEAF_BYTES, then its hash goes into `tree` and it starts again. */
#define XXH_STATIC_LINKING_ONLY /* the size of a state, to have it on no heap */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

typedef struct streams {
    XXH3_state_t leaf, tree;
    size_t in_leaf; /* bytes that `leaf` has; < DL_LEAF_BYTES between calls */
} streams;

_Static_assert(sizeof(streams) <= sizeof(dl_digest_stream), "grow dl_digest_stream");
_Static_assert(_Alignof(streams) <= _Alignof(dl_digest_stream), "align dl_digest_stream");

/* The canonical form is big-endian, so a hash has the same bytes on every machine. */
static dl_hash canonical(XXH128_hash_t value)
{
    XXH128_canonical_t c;
    dl_hash hash;
    XXH128_canonicalFromHash(&c, value);
    memcpy(hash.bytes, c.digest, sizeof hash.bytes);
    return hash;
}

dl_hash dl_hash_bytes(const void *data, size_t n)
{
    return canonical(XXH3_128bits(data, n));
}

uint64_t dl_hash_seeded(const void *data, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n, seed);
}

dl_hash dl_digest_leaves(const dl_hash *leaves, size_t n_leaves)
{
    return dl_hash_bytes(leaves, n_leaves * sizeof *leaves);
}

dl_hash dl_digest_bytes(const void *data, size_t n)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_digest_add(&stream, data, n);
    return dl_digest_end(&stream);
}

/* Not in constant time: hashes are no secrets. */
bool dl_hash_equal(dl_hash a, dl_hash b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

bool dl_hash_is_zero(dl_hash a)
{
    return dl_hash_equal(a, (dl_hash){{0}});
}

void dl_hash_to_hex(char hex[DL_HASH_HEX + 1], dl_hash hash)
{
    for (size_t i = 0; i < DL_HASH_HEX; i++)
        hex[i] = "0123456789abcdef"[hash.bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    hex[DL_HASH_HEX] = 0;
}

/* Lower case only: a hash has exactly one text. */
static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

bool dl_hash_from_hex(dl_hash *hash, const char *hex, size_t len)
{
    if (len != DL_HASH_HEX) return false;
    for (size_t i = 0; i < sizeof hash->bytes; i++) {
        int high = digit_value(hex[2 * i]), low = digit_value(hex[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        hash->bytes[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static streams *open_up(dl_digest_stream *stream)
{
    return (streams *)(void *)stream->state;
}

/* Puts the leaf's hash into the upper level and begins the next leaf. */
static void end_leaf(streams *s)
{
    dl_hash hash = canonical(XXH3_128bits_digest(&s->leaf));
    XXH3_128bits_update(&s->tree, hash.bytes, sizeof hash.bytes);
    XXH3_128bits_reset(&s->leaf);
    s->in_leaf = 0;
}

/* XXH3_INITSTATE is needed because the states are on the stack and not from XXH3_createState. */
void dl_digest_begin(dl_digest_stream *stream)
{
    streams *s = open_up(stream);
    XXH3_INITSTATE(&s->leaf);
    XXH3_INITSTATE(&s->tree);
    XXH3_128bits_reset(&s->leaf);
    XXH3_128bits_reset(&s->tree);
    s->in_leaf = 0;
}

/* Pieces may have any length; the leaves are cut at 1 MiB of the whole data. */
void dl_digest_add(dl_digest_stream *stream, const void *data, size_t n)
{
    streams *s = open_up(stream);
    const unsigned char *from = data;
    while (n > 0) {
        size_t piece = dl_size_min(n, DL_LEAF_BYTES - s->in_leaf);
        XXH3_128bits_update(&s->leaf, from, piece);
        s->in_leaf += piece;
        from += piece;
        n -= piece;
        if (s->in_leaf == DL_LEAF_BYTES) end_leaf(s);
    }
}

/* The last leaf may be shorter. A digest of no bytes has no leaf at all. */
dl_hash dl_digest_end(dl_digest_stream *stream)
{
    streams *s = open_up(stream);
    if (s->in_leaf > 0) end_leaf(s);
    return canonical(XXH3_128bits_digest(&s->tree));
}
