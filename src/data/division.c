/* division.c - include/diloco/train.h: data.sampler over classes that the caller gives, as data.c
 * divides the samples of a file. A division without a partition is contiguous or whole. */
#include "data/partition.h"
#include <diloco/train.h>

#include <stdlib.h>

struct diloco_division {
    dl_partition *partition; /* owned; NULL: each client has `each` samples, one after the other */
    uint64_t each, step;     /* step: from one client's first sample to the next one's; 0: whole */
    uint64_t n_clients;
};

static int32_t class_of(const void *user, uint64_t sample)
{
    return ((const int32_t *)user)[sample];
}

/* Returns the number of classes, which are 0 and up. Without classes it is 0. */
static diloco_status count_classes(size_t *out, const int32_t *classes, uint64_t n)
{
    int32_t most = -1;
    *out = 0;
    for (uint64_t i = 0; classes && i < n; i++) {
        if (classes[i] < 0)
            return dl_fail(DILOCO_EINVAL,
                           "sample %llu has class %d: classes are whole numbers from 0",
                           (unsigned long long)i, classes[i]);
        if (classes[i] > most) most = classes[i];
    }
    *out = (size_t)((int64_t)most + 1);
    return DILOCO_OK;
}

static diloco_status divide(diloco_division *d, const diloco_config *config, const int32_t *classes,
                            uint64_t n)
{
    const bool whole = dl_sampler_gives_all(config->sampler);
    dl_partition_data all = {.n = n, .class_of = class_of, .user = classes};
    DL_TRY(count_classes(&all.n_classes, classes, n));
    d->each = whole ? n : n / d->n_clients;
    d->step = whole ? 0 : d->each;
    if (d->each == 0)
        return dl_fail(DILOCO_EINVAL,
                       "%llu samples are too few for %llu clients: give more samples, or lower "
                       "clients.total_clients",
                       (unsigned long long)n, (unsigned long long)d->n_clients);
    return dl_partition_create(&d->partition, config, &all, (size_t)d->n_clients);
}

diloco_status diloco_division_create(diloco_division **out, const diloco_config *config,
                                     const int32_t *classes, uint64_t n_samples, uint64_t n_clients)
{
    *out = NULL;
    if (n_clients == 0) return dl_fail(DILOCO_EINVAL, "a division has at least one client");
    diloco_division *d = calloc(1, sizeof *d);
    if (!d) return dl_fail(DILOCO_ENOMEM, "out of memory for a division of samples");
    d->n_clients = n_clients;
    const diloco_status status = divide(d, config, classes, n_samples);
    if (status)
        diloco_division_destroy(d);
    else
        *out = d;
    return status;
}

void diloco_division_destroy(diloco_division *d)
{
    if (!d) return;
    dl_partition_destroy(d->partition);
    free(d);
}

uint64_t diloco_division_size(const diloco_division *d, uint64_t client)
{
    if (client < 1 || client > d->n_clients) return 0;
    return d->partition ? dl_partition_size(d->partition, (size_t)client - 1) : d->each;
}

/* A listed partition can only be drawn whole, as 32-bit numbers. */
diloco_status diloco_division_list(uint64_t *out, const diloco_division *d, uint64_t client)
{
    const uint64_t n = diloco_division_size(d, client);
    if (client < 1 || client > d->n_clients)
        return dl_fail(DILOCO_EINVAL, "there is no client %llu: clients are 1 to %llu",
                       (unsigned long long)client, (unsigned long long)d->n_clients);
    const bool listed = d->partition && dl_partition_listed(d->partition);
    uint32_t *list = listed ? malloc((size_t)n * sizeof *list) : NULL;
    if (listed && !list)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %llu samples", (unsigned long long)n);
    if (listed) dl_partition_list(list, d->partition, (size_t)client - 1);
    for (uint64_t i = 0; i < n; i++)
        out[i] = listed         ? list[i]
                 : d->partition ? dl_partition_at(d->partition, (size_t)client - 1, i)
                                : (client - 1) * d->step + i;
    free(list);
    return DILOCO_OK;
}
