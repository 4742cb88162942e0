/* rng.c - Philox4x32-10, what is drawn from it, and random bytes of the operating system.
 *
 * Constants and the number of rounds are those of Random123 (D. E. Shaw Research); the
 * test holds the block function to its known-answer vectors. */
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

/* Ten rounds of multiply, exchange and key; the counter is the position, so there is no state. */
void dl_philox(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

void dl_rng_init(dl_rng *rng, uint64_t seed, uint64_t stream, uint64_t counter)
{
    *rng = (dl_rng){.seed = seed, .stream = stream, .counter = counter};
}

/* One block has four words, which are used one after the other. */
uint32_t dl_rng_u32(dl_rng *rng)
{
    if (rng->left == 0) {
        dl_philox(rng->block, rng->seed, rng->stream, rng->counter++);
        rng->left = 4;
    }
    return rng->block[4 - rng->left--];
}

uint64_t dl_rng_u64(dl_rng *rng)
{
    uint64_t low = dl_rng_u32(rng);
    return low | (uint64_t)dl_rng_u32(rng) << 32;
}

/* Draws below 2^64 mod n are thrown away, so that each remainder is equally frequent. */
uint64_t dl_rng_below(dl_rng *rng, uint64_t n)
{
    DL_ASSERT(n > 0);
    uint64_t excess = (0 - n) % n, x;
    do
        x = dl_rng_u64(rng);
    while (x < excess);
    return x % n;
}

/* 24 bits fit a float exactly, so every value is a multiple of 2^-24. */
float dl_rng_f32(dl_rng *rng)
{
    return (float)(dl_rng_u32(rng) >> 8) * 0x1p-24f;
}

/* 53 bits fit a double exactly. */
double dl_rng_f64(dl_rng *rng)
{
    return (double)(dl_rng_u64(rng) >> 11) * 0x1p-53;
}

/* Element i depends on i alone, so any part of the sequence may be computed by itself. */
void dl_rng_normal(float *out, size_t n, uint64_t seed, uint64_t stream)
{
    for (size_t i = 0; i < n; i += 2) {
        uint32_t w[4];
        dl_philox(w, seed, stream, i / 2);
        uint64_t a = (uint64_t)w[1] << 32 | w[0], b = (uint64_t)w[3] << 32 | w[2];
        double radius = sqrt(-2 * log((double)((a >> 11) + 1) * 0x1p-53)); /* of (0, 1] */
        double angle = 6.283185307179586477 * ((double)(b >> 11) * 0x1p-53);
        out[i] = (float)(radius * cos(angle));
        if (i + 1 < n) out[i + 1] = (float)(radius * sin(angle));
    }
}

enum { FEISTEL_ROUNDS = 8 }; /* 4 suffice for large halves (Luby, Rackoff 1988); small n mix less */

/* One permutation of [0, 2^(2 half)). The round function's counter holds the round above the half's
 * at most 32 bits. A Feistel network is a permutation for any round function, so no two numbers
 * meet. */
static uint64_t feistel(uint64_t x, unsigned half, uint64_t seed, uint64_t stream)
{
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t w[4];
        dl_philox(w, seed, stream, round << 32 | right);
        uint64_t mixed = left ^ (w[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

/* The network permutes the numbers below a power of four that is at least n. A result outside [0,
 * n) is permuted again, which ends because the permutation has cycles (cycle walking). */
uint64_t dl_rng_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t stream)
{
    DL_ASSERT(i < n);
    unsigned half = 0;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    do
        i = feistel(i, half, seed, stream);
    while (i >= n);
    return i;
}

/* A signal interrupts a read before the first byte, and shortens one of more than 256 bytes. */
diloco_status dl_random_bytes(void *out, size_t n)
{
    for (size_t have = 0; have < n;) {
        const ssize_t got = getrandom((unsigned char *)out + have, n - have, 0);
        if (got >= 0)
            have += (size_t)got;
        else if (errno != EINTR)
            return dl_fail(DILOCO_EIO, "no random bytes from the operating system: %s",
                           strerror(errno));
    }
    return DILOCO_OK;
}
