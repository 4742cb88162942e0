/* sampler_sample_quantity.c - clients of different sizes: min_partition_size for every client,
 * and the rest by a Dirichlet draw over the clients. sample_quantity_noniid cuts one shuffle so,
 * which leaves the classes even; distribution_noniid fills such sizes by class weights.
 *
 * Plato draws the sizes again until the smallest is large enough, which with many clients never
 * ends. The sum here is exact, for the last sample of a rounding goes to the client it falls to. */
#include "base/draw.h"
#include "data/samplers.h"

#include <inttypes.h>
#include <stdlib.h>

/* Draws where each client's part of the shuffle begins. The cut is rounded and not the sizes, so
 * the sizes add up to all samples. */
static diloco_status draw_cut(dl_partition *p)
{
    uint64_t least = (uint64_t)p->config.min_partition_size;
    if (least > p->n / p->n_clients)
        return dl_fail(DILOCO_EINVAL,
                       "data.min_partition_size = %" PRIu64 " for %zu clients is more than the "
                       "%" PRIu64 " samples there are: lower it, or take fewer clients",
                       least, p->n_clients, p->n);
    double *parts = calloc(p->n_clients, sizeof *parts), sum = 0;
    p->cut = calloc(p->n_clients + 1, sizeof *p->cut);
    if (!parts || !p->cut) {
        free(parts);
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu clients", p->n_clients);
    }
    dl_rng rng = dl_client_rng(p, UINT32_MAX); /* no client's: clients are fewer */
    dl_draw_dirichlet(parts, p->n_clients, p->config.quantity_concentration, &rng);
    double rest = (double)(p->n - least * p->n_clients);
    for (size_t c = 0; c < p->n_clients; c++) {
        sum += parts[c];
        uint64_t more = sum >= 1 || c + 1 == p->n_clients ? (uint64_t)rest : (uint64_t)(sum * rest);
        p->cut[c + 1] = least * (c + 1) + more;
    }
    free(parts);
    return DILOCO_OK;
}

static uint64_t size(const dl_partition *p, size_t client)
{
    return p->cut[client + 1] - p->cut[client];
}

static uint64_t at(const dl_partition *p, size_t client, uint64_t i)
{
    return dl_rng_permute(p->cut[client] + i, p->n, p->seed, DL_STREAM(DL_STREAM_SHUFFLE, 0));
}

/* distribution_noniid: a client of this size by class weights of its own. */
static void draw(uint32_t *out, const dl_partition *p, size_t client)
{
    double weights[DL_SAMPLER_MAX_CLASSES];
    dl_rng rng = dl_client_rng(p, client);
    dl_draw_dirichlet(weights, p->n_classes, p->config.label_concentration, &rng);
    dl_draw_samples(out, size(p, client), p, weights, &rng);
}

const dl_sampler dl_sampler_sample_quantity = {
    .name = "sample_quantity_noniid", .plan = draw_cut, .size = size, .at = at};
const dl_sampler dl_sampler_distribution = {.name = "distribution_noniid",
                                            .classes = true,
                                            .overlaps = true,
                                            .plan = draw_cut,
                                            .size = size,
                                            .list = draw};
