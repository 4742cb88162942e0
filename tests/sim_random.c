/* sim_random.c - random bytes that a simulated replica asks the operating system for. They follow
 * from the seed, so that a seed plays the same run each time. */
#include "sim.h"

#include <string.h>
#include <sys/random.h>

static dl_rng rng;

void sim_seed_random(uint64_t seed)
{
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 1002), 0);
}

/* In place of the C library's. */
ssize_t getrandom(void *out, size_t len, unsigned flags)
{
    (void)flags;
    for (size_t i = 0; i < len; i++)
        ((unsigned char *)out)[i] = (unsigned char)dl_rng_u32(&rng);
    return (ssize_t)len;
}
