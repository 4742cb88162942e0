/* leaf_body.h - the row LEAF_ROW of leaf.h, for the instruction set of the including file. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tensor/cpu/leaf.h"

_Static_assert(sizeof(XXH3_state_t) <= sizeof(dl_leaf_hash), "the state fits");

static void begin(dl_leaf_hash *h)
{
    XXH3_128bits_reset((XXH3_state_t *)(void *)h->state);
}

static void add(dl_leaf_hash *h, const void *data, size_t n)
{
    XXH3_128bits_update((XXH3_state_t *)(void *)h->state, data, n);
}

/* The canonical form is big-endian, so the bytes are equal on every machine. */
static dl_hash end(dl_leaf_hash *h)
{
    XXH128_canonical_t canonical;
    dl_hash hash;
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits_digest((const XXH3_state_t *)(const void *)h->state));
    for (int i = 0; i < 16; i++)
        hash.bytes[i] = canonical.digest[i];
    return hash;
}

const dl_leaf_row LEAF_ROW = {begin, add, end};
