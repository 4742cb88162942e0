/* topk_indices.h - the indices of a topk record: their code of Elias and Fano (topk.c has the
 * layout), written, read in order and skipped through. Inline, because decoders call them for each
 * value.
 */
#ifndef DL_CODEC_TOPK_INDICES_H
#define DL_CODEC_TOPK_INDICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How a chunk's indices are coded. */
typedef struct coding {
    size_t k;
    size_t low;   /* bits of each index */
    size_t unary; /* bits of the unary part; 0: none */
} coding;

static inline size_t low_bytes(const coding *c)
{
    return (c->low * c->k + 7) / 8;
}

/* The unary part's bits from `at` on, which is a multiple of 64. If it is empty, which happens only
 * for k up to 3, there are no upper bits: ones. */
static inline uint64_t unary_at(const coding *c, const unsigned char *record, size_t at)
{
    uint64_t bits = 0;
    if (!c->unary) return UINT64_MAX;
    const unsigned char *p = record + low_bytes(c) + at / 8;
    if (c->unary - at > 64 - 8) {
        memcpy(&bits, p, sizeof bits);
        return bits;
    }
    for (size_t i = 0; i < (c->unary - at + 7) / 8; i++)
        bits |= (uint64_t)p[i] << 8 * i;
    return bits;
}

/* The low bits of index i. A value follows the last one, so the bytes that are read exist. */
static inline size_t low_at(const coding *c, const unsigned char *record, size_t i)
{
    if (!c->low) return 0;
    const unsigned char *p = record + i * c->low / 8;
    size_t bits = p[0] | (size_t)p[1] << 8;
    if (c->low > 9) bits |= (size_t)p[2] << 16;
    return bits >> i * c->low % 8 & (((size_t)1 << c->low) - 1);
}

/* Going through a record's indices. */
typedef struct places {
    const coding *coding;
    const unsigned char *record;
    size_t i;      /* which index is next */
    size_t at;     /* bits of the unary part before `bits` */
    uint64_t bits; /* ones that are still to come */
} places;

static inline places places_of(const coding *c, const unsigned char *record)
{
    return (places){.coding = c, .record = record, .bits = unary_at(c, record, 0)};
}

static inline bool next_bits(places *p)
{
    p->at += 64;
    if (p->at >= p->coding->unary) return false;
    p->bits = unary_at(p->coding, p->record, p->at);
    return true;
}

/* False: no index is left. */
static inline bool next_index(places *p, size_t *index)
{
    if (p->i == p->coding->k) return false;
    while (!p->bits)
        if (!next_bits(p)) return false;
    size_t above = p->at + (size_t)__builtin_ctzll(p->bits) - p->i;
    *index = above << p->coding->low | low_at(p->coding, p->record, p->i++);
    p->bits &= p->bits - 1;
    return true;
}

/* In each byte: how many ones x has up to that byte's end. */
static inline uint64_t ones_up_to_bytes(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555;
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
    return ((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101;
}

static inline size_t ones_in(uint64_t x)
{
    return ones_up_to_bytes(x) >> 56;
}

/* The place of x's one number n, from 0: in the first byte up to whose end there are more. Counts
 * are at most 64, so no byte borrows from the next. */
static inline size_t place_of_one(uint64_t x, size_t n)
{
    const uint64_t each = 0x0101010101010101, tops = each << 7;
    const uint64_t up_to = ones_up_to_bytes(x);
    const uint64_t passed = (((n * each) | tops) - up_to) & tops;
    const size_t byte = (passed >> 7) * each >> 56;
    n -= up_to << 8 >> 8 * byte & 255;
    x >>= 8 * byte;
    while (n--)
        x &= x - 1;
    return 8 * byte + (size_t)__builtin_ctzll(x);
}

/* Go to the first index whose upper bits are those of `index` or more: after that many zeros. */
static inline void skip_to(places *p, size_t index)
{
    size_t zeros = index >> p->coding->low, left = zeros;
    if (!zeros) return;
    for (;;) {
        const size_t here = ones_in(~p->bits);
        if (left <= here) break;
        left -= here;
        if (next_bits(p)) continue;
        p->i = p->coding->k; /* fewer zeros are left */
        return;
    }
    const size_t end = place_of_one(~p->bits, left - 1) + 1;
    p->i = p->at + end - zeros;
    p->bits = end < 64 ? p->bits >> end << end : 0;
}

/* Of k indices, ascending. */
static inline void put_indices(unsigned char *record, const uint16_t *indices, const coding *c)
{
    unsigned char *unary = record + low_bytes(c);
    uint64_t held = 0;
    size_t n_held = 0;
    memset(unary, 0, (c->unary + 7) / 8);
    for (size_t i = 0; i < c->k; i++) {
        const size_t place = (indices[i] >> c->low) + i;
        if (c->unary) unary[place / 8] = (unsigned char)(unary[place / 8] | 1u << place % 8);
        held |= (indices[i] & (((uint64_t)1 << c->low) - 1)) << n_held;
        for (n_held += c->low; n_held >= 8; n_held -= 8, held >>= 8)
            *record++ = (unsigned char)held;
    }
    if (n_held) *record = (unsigned char)held;
}

#endif
