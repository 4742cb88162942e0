/* sampler_label_quantity.c - a fixed number of classes for each client; a class's samples are
 * shuffled and cut into equal parts, one for each client that has it (Li et al. 2021,
 * arXiv:2102.02079, "#C = k").
 *
 * Client c has class c mod n_classes, so that every class has an owner as soon as there are as many
 * clients, and others by a draw of its own. */
#include "data/samplers.h"

#include <inttypes.h>
#include <stdlib.h>

static size_t n_each(const dl_partition *p)
{
    return (size_t)p->config.per_client_classes;
}

static const dl_owned *owned_by(const dl_partition *p, size_t client)
{
    return p->owned + client * n_each(p);
}

/* Draws a client's classes: the first ones of a shuffle. It begins with class
 * client mod n_classes. */
static void draw_classes(dl_owned *out, const dl_partition *p, size_t client)
{
    uint32_t all[DL_SAMPLER_MAX_CLASSES];
    dl_rng rng = dl_client_rng(p, client);
    for (size_t k = 0; k < p->n_classes; k++)
        all[k] = (uint32_t)((client + k) % p->n_classes);
    for (size_t i = 0; i < n_each(p); i++) {
        size_t other = i ? i + (size_t)dl_rng_below(&rng, p->n_classes - i) : 0;
        uint32_t k = all[other];
        all[other] = all[i];
        out[i].class = k;
    }
}

/* Where the owner-th part of a class begins, among the class's samples. Parts differ by at most one
 * sample. */
static uint64_t part_begin(const dl_partition *p, size_t k, uint64_t owner)
{
    return dl_class_size(p, k) * owner / p->owners[k];
}

static uint64_t part_size(const dl_partition *p, dl_owned o)
{
    return part_begin(p, o.class, (uint64_t)o.before + 1) - part_begin(p, o.class, o.before);
}

static uint64_t size(const dl_partition *p, size_t client)
{
    uint64_t n = 0;
    for (size_t i = 0; i < n_each(p); i++)
        n += part_size(p, owned_by(p, client)[i]);
    return n;
}

/* Draws all clients' classes first: the size of a part depends on a class's owners. */
static diloco_status plan(dl_partition *p)
{
    if (n_each(p) > p->n_classes)
        return dl_fail(DILOCO_EINVAL,
                       "data.per_client_classes_size = %zu, and there are %zu classes: take at "
                       "most that number",
                       n_each(p), p->n_classes);
    p->owners = calloc(p->n_classes, sizeof *p->owners);
    p->owned = calloc(p->n_clients * n_each(p), sizeof *p->owned);
    if (!p->owners || !p->owned)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu clients", p->n_clients);
    for (size_t c = 0; c < p->n_clients; c++) {
        dl_owned *mine = p->owned + c * n_each(p);
        draw_classes(mine, p, c);
        for (size_t i = 0; i < n_each(p); i++)
            mine[i].before = p->owners[mine[i].class]++;
    }
    for (size_t c = 0; c < p->n_clients; c++)
        if (size(p, c) == 0)
            return dl_fail(DILOCO_EINVAL,
                           "data.per_client_classes_size = %zu: client %zu of %zu would have no "
                           "sample, because too many clients share its classes: take fewer "
                           "clients or more classes",
                           n_each(p), c + 1, p->n_clients);
    return DILOCO_OK;
}

/* Sample i is looked for in the client's parts, one class after the other. */
static uint64_t at(const dl_partition *p, size_t client, uint64_t i)
{
    const dl_owned *o = owned_by(p, client);
    while (i >= part_size(p, *o))
        i -= part_size(p, *o++);
    size_t k = o->class;
    uint64_t place = dl_rng_permute(part_begin(p, k, o->before) + i, dl_class_size(p, k), p->seed,
                                    DL_STREAM(DL_STREAM_SHUFFLE, k));
    return p->by_class[p->class_begin[k] + place];
}

const dl_sampler dl_sampler_label_quantity = {
    .name = "label_quantity_noniid", .classes = true, .plan = plan, .size = size, .at = at};
