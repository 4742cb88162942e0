/* sampler_iid.c - one shuffle of everything, dealt out like cards. */
#include "data/samplers.h"

/* A partition may be larger than the data, since another shuffle follows. */
static diloco_status plan(dl_partition *p)
{
    return dl_check_size(p, UINT64_MAX);
}

/* Card i of a client is card c + i C of the shuffle; after its end comes another shuffle. */
static uint64_t at(const dl_partition *p, size_t client, uint64_t i)
{
    uint64_t card = client + i * p->n_clients;
    return dl_rng_permute(card % p->n, p->n, p->seed, DL_STREAM(DL_STREAM_SHUFFLE, card / p->n));
}

const dl_sampler dl_sampler_iid = {.name = "iid", .plan = plan, .size = dl_equal_size, .at = at};
