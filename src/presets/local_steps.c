/* local_steps.c - see local_steps.h. Every worker computes the same number for a client from its
 * shard alone, so none has to be agreed on. */
#include "presets/local_steps.h"

#include "base/run_kind.h"
#include "protocol/logical_clients.h"

#include <inttypes.h>

/* Micro-batches of one pass; the last one may be short. */
static uint64_t batches_of(const dl_config *c, uint64_t samples)
{
    const uint64_t B = (uint64_t)c->batch_size;
    return samples / B + (samples % B > 0);
}

/* Return the steps that fit into trainer.epochs passes; UINT64_MAX: there is no bound. A product
 * that overflows is no bound either. */
static uint64_t bound(const dl_config *c, uint64_t samples)
{
    uint64_t all;
    if (c->epochs == 0 || __builtin_mul_overflow(batches_of(c, samples), (uint64_t)c->epochs, &all))
        return UINT64_MAX;
    return all / (uint64_t)c->accumulation;
}

uint64_t dl_local_steps_epoch(const dl_config *c, uint64_t samples)
{
    const uint64_t steps = batches_of(c, samples) / (uint64_t)c->accumulation;
    return steps ? steps : 1;
}

uint64_t dl_local_steps(const dl_config *c, uint64_t samples)
{
    if (samples == 0) return 0;
    if (c->local_steps > 0) return (uint64_t)c->local_steps;
    const uint64_t steps = bound(c, samples);
    return steps ? steps : 1; /* fewer micro-batches than a step has: it takes one all the same */
}

uint64_t dl_local_steps_run(const dl_config *c, uint64_t samples)
{
    return (uint64_t)c->rounds * dl_local_steps(c, samples);
}

/* Check every client, since one with little data may be bounded where others are not. The error
 * names the first of them by its number, from 1. */
diloco_status dl_local_steps_check(const dl_config *c, const dl_data *data)
{
    if (!dl_run_kind_of(c)->has_epochs || c->epochs == 0 || c->local_steps == 0) return DILOCO_OK;
    for (size_t i = 0; i < dl_clients_shards(c); i++) {
        const uint64_t samples = dl_data_samples(data, i), steps = bound(c, samples);
        if (samples == 0 || steps >= (uint64_t)c->local_steps) continue;
        return dl_fail(DILOCO_EREFUSED,
                       "trainer.epochs = %" PRId64 " passes over the %" PRIu64
                       " samples of client %zu are %" PRIu64
                       " optimizer steps, and trainer.local_steps_per_round = %" PRId64
                       ": raise trainer.epochs, which is only an upper bound, or lower the steps",
                       c->epochs, samples, i + 1, steps, c->local_steps);
    }
    return DILOCO_OK;
}
