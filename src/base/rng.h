/* rng.h - Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy
 * as 1, 2, 3; SC 2011), keyed by (seed, stream, counter).
 *
 * A draw depends on nothing but its three numbers, so it is the same at any number of
 * replicas and threads and after any restart. Saving a position is saving a counter.
 *
 * Names and secrets must not be predictable, so they come from the operating system instead
 * (dl_random_bytes). */
#ifndef DL_BASE_RNG_H
#define DL_BASE_RNG_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* The users of the streams. A new user takes the next number; a number is never reused. The
 * low 32 bits of a stream are the user's own (a replica's or a tensor's index). */
enum {
    DL_STREAM_INIT = 1,    /* initial parameters, by tensor */
    DL_STREAM_DATA = 2,    /* order of samples, by shard */
    DL_STREAM_DROPOUT = 3, /* by operation */
    DL_STREAM_SAMPLE = 4,  /* text sampling */
    DL_STREAM_JITTER = 5,  /* back-off; never in anything that must agree */
    DL_STREAM_TEST = 6,
    DL_STREAM_AUGMENT = 7,           /* training images, by shard */
    DL_STREAM_BUCKETS = 8,           /* a combiner's shuffle */
    DL_STREAM_PARTITION = 9,         /* which samples a client has, by client */
    DL_STREAM_SHUFFLE = 10,          /* the order they are dealt in, by class */
    DL_STREAM_CLIENTS = 11,          /* the clients that an entry asks, by entry */
    DL_STREAM_SIMULATED_CLIENT = 12, /* how fast a client is, by kind of draw */
    DL_STREAM_SIMULATED_ROUND = 13,  /* which clients are present and answer, by entry */
    DL_STREAM_PAIRS = 14,            /* pairs that exchange without a log, by round */
    DL_STREAM_DROPS = 15,            /* contributions that run.drop omits, by replica */
    DL_STREAM_TUNE = 16              /* arms that diloco tune tries */
};
#define DL_STREAM(kind, index) (((uint64_t)(kind) << 32) | (uint32_t)(index))

/* The block function: key (seed), counter words (counter lo, hi, stream lo, hi). */
void dl_philox(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t counter);

typedef struct dl_rng {
    uint64_t seed, stream, counter; /* counter: blocks drawn */
    uint32_t block[4];
    unsigned left; /* words of `block` not used yet */
} dl_rng;

void dl_rng_init(dl_rng *rng, uint64_t seed, uint64_t stream, uint64_t counter);
uint32_t dl_rng_u32(dl_rng *rng);
uint64_t dl_rng_u64(dl_rng *rng);
uint64_t dl_rng_below(dl_rng *rng, uint64_t n); /* uniform in [0, n), no bias; n > 0 */
float dl_rng_f32(dl_rng *rng);                  /* uniform in [0, 1), 24 bits */
double dl_rng_f64(dl_rng *rng);                 /* uniform in [0, 1), 53 bits */

/* Element i of a normal(0, 1) sequence by Box-Muller from block i/2. Uses log and cos,
 * so its last bit may differ between math libraries: never where machines must agree. */
void dl_rng_normal(float *out, size_t n, uint64_t seed, uint64_t stream);

/* The place of i in a pseudo-random permutation of [0, n), keyed: a Feistel network
 * walked until it lands inside, so nothing is stored. i < n. */
uint64_t dl_rng_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t stream);

/* Fills `out` with n bytes from the operating system's random source. Nothing that replicas agree
 * on may follow from them. Returns DILOCO_EIO if the system has no such source. Any thread. */
DL_MUST_CHECK diloco_status dl_random_bytes(void *out, size_t n);

#endif
