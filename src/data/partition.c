/* partition.c - the table of samplers, and the functions that they share.
 *
 * Weighted draws without repetition: a class is drawn first, in proportion to its weight times the
 * number of its samples that are left. The sample is then the next one of a permutation of the
 * class, which is the client's own. The distribution is that of drawing sample by sample with those
 * weights.
 *
 * Weights become whole numbers of about 2^29 in all, and at least 1 each. So every sum is exact
 * (about 2^61 for 2^32 samples), and no class runs dry by rounding. */
#include "data/samplers.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX (UINT64_C(1) << 32) /* numbers of samples are 32 bits */

const dl_sampler dl_sampler_contiguous = {.name = "contiguous"},
                 dl_sampler_whole = {.name = "whole", .overlaps = true},
                 dl_sampler_all_inclusive = {.name = "all_inclusive", .overlaps = true};

#define ROW(name) &dl_sampler_##name,
static const dl_sampler *const samplers[] = {DL_SAMPLERS(ROW)};
enum { N_SAMPLERS = sizeof samplers / sizeof samplers[0] };

const char *dl_sampler_name_at(size_t i)
{
    return i < N_SAMPLERS ? samplers[i]->name : NULL;
}

/* Returns NULL for an unknown name. */
static const dl_sampler *find(const char *name)
{
    for (size_t i = 0; i < N_SAMPLERS; i++)
        if (strcmp(samplers[i]->name, name) == 0) return samplers[i];
    return NULL;
}

bool dl_sampler_overlaps(const char *name)
{
    const dl_sampler *s = find(name);
    return !s || s->overlaps;
}

bool dl_sampler_gives_all(const char *name)
{
    const dl_sampler *s = find(name);
    return s && !s->size && s->overlaps;
}

/* ---- making one */

/* Sorts the samples by class in O(n). Samples of a class stay in their order. */
static diloco_status sort_by_class(dl_partition *p, const dl_partition_data *data)
{
    uint64_t *next = calloc(p->n_classes, sizeof *next);
    p->by_class = calloc(p->n, sizeof *p->by_class);
    p->class_begin = calloc(p->n_classes + 1, sizeof *p->class_begin);
    if (!next || !p->by_class || !p->class_begin) {
        free(next);
        return dl_fail(DILOCO_ENOMEM, "not enough memory to sort %" PRIu64 " samples by class",
                       p->n);
    }
    for (uint64_t i = 0; i < p->n; i++)
        p->class_begin[data->class_of(data->user, i) + 1]++;
    for (size_t k = 0; k < p->n_classes; k++)
        next[k] = p->class_begin[k + 1] += p->class_begin[k];
    for (uint64_t i = p->n; i-- > 0;)
        p->by_class[--next[data->class_of(data->user, i)]] = (uint32_t)i;
    free(next);
    return DILOCO_OK;
}

/* Checks what every sampler needs, and then lets the sampler read its options. */
static diloco_status plan(dl_partition *p, const dl_partition_data *data)
{
    const char *name = p->sampler->name;
    if (p->n > SAMPLES_MAX)
        return dl_fail(DILOCO_EREFUSED,
                       "data.sampler = \"%s\" deals at most 2^32 samples, and there are %" PRIu64
                       ": take contiguous",
                       name, p->n);
    if (p->sampler->classes && p->n_classes == 0)
        return dl_fail(DILOCO_EINVAL,
                       "data.sampler = \"%s\" goes by the classes of samples, and those of "
                       "data.datasource = \"%s\" have none: take iid or contiguous",
                       name, p->config.datasource);
    if (p->sampler->classes && p->n_classes > DL_SAMPLER_MAX_CLASSES)
        return dl_fail(DILOCO_EREFUSED,
                       "data.sampler = \"%s\" goes by at most %d classes, and there are %zu: take "
                       "iid or contiguous",
                       name, DL_SAMPLER_MAX_CLASSES, p->n_classes);
    if (p->sampler->classes) DL_TRY(sort_by_class(p, data));
    return p->sampler->plan(p);
}

diloco_status dl_partition_create(dl_partition **out, const dl_config *config,
                                  const dl_partition_data *data, size_t n_clients)
{
    *out = NULL;
    const dl_sampler *sampler = find(config->sampler);
    if (!sampler)
        return dl_fail(DILOCO_EINVAL,
                       "data.sampler: there is no \"%s\"; 'diloco options' lists "
                       "them",
                       config->sampler);
    if (!sampler->size) return DILOCO_OK;
    dl_partition *p = calloc(1, sizeof *p);
    if (!p) return dl_fail(DILOCO_ENOMEM, "out of memory for a partition");
    p->sampler = sampler;
    p->config = *config;
    p->seed = (uint64_t)config->data_seed;
    p->n = data->n;
    p->n_classes = data->n_classes;
    p->n_clients = n_clients;
    diloco_status status = plan(p, data);
    if (status)
        dl_partition_destroy(p);
    else
        *out = p;
    return status;
}

void dl_partition_destroy(dl_partition *p)
{
    if (!p) return;
    free(p->by_class);
    free(p->class_begin);
    free(p->cut);
    free(p->owned);
    free(p->owners);
    free(p->silo_has);
    free(p->drawn);
    free(p);
}

/* ---- asking it */

uint64_t dl_partition_size(const dl_partition *p, size_t client)
{
    DL_ASSERT(client < p->n_clients);
    return p->sampler->size(p, client);
}

uint64_t dl_partition_at(const dl_partition *p, size_t client, uint64_t i)
{
    DL_ASSERT(p->sampler->at && client < p->n_clients);
    return p->sampler->at(p, client, i);
}

bool dl_partition_listed(const dl_partition *p)
{
    return p->sampler->list != NULL;
}

void dl_partition_list(uint32_t *out, const dl_partition *p, size_t client)
{
    DL_ASSERT(p->sampler->list && client < p->n_clients);
    p->sampler->list(out, p, client);
}

/* ---- shared by the samplers */

uint64_t dl_class_size(const dl_partition *p, size_t k)
{
    return p->class_begin[k + 1] - p->class_begin[k];
}

uint64_t dl_equal_size(const dl_partition *p, size_t client)
{
    (void)client;
    uint64_t size = (uint64_t)p->config.partition_size;
    return size ? size : p->n / p->n_clients;
}

diloco_status dl_check_size(const dl_partition *p, uint64_t most)
{
    uint64_t size = dl_equal_size(p, 0);
    if (size == 0)
        return dl_fail(DILOCO_EINVAL,
                       "data.train_path: %" PRIu64 " samples for %zu clients are less than one "
                       "each: set data.partition_size, or take fewer clients",
                       p->n, p->n_clients);
    if (size <= most) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "data.partition_size = %" PRIu64 ": with data.sampler = \"%s\" a client draws "
                   "from %" PRIu64 " samples, none twice: take at most that number",
                   size, p->sampler->name, most);
}

dl_rng dl_client_rng(const dl_partition *p, size_t client)
{
    dl_rng rng;
    dl_rng_init(&rng, p->seed, DL_STREAM(DL_STREAM_PARTITION, client), 0);
    return rng;
}

/* A class during a draw: its weight, and its samples that are left and that were drawn. */
typedef struct urn {
    uint64_t weight, left, taken;
} urn;

/* Fills the urns. Returns the sum of weight times samples left. */
static uint64_t fill_urns(urn *urns, const dl_partition *p, const double *weights)
{
    double sum = 0;
    uint64_t total = 0;
    for (size_t k = 0; k < p->n_classes; k++)
        if (weights[k] > 0) sum += weights[k];
    for (size_t k = 0; k < p->n_classes; k++) {
        urns[k] = (urn){.left = dl_class_size(p, k)};
        if (weights[k] >= 0) urns[k].weight = 1 + (uint64_t)(weights[k] / sum * 0x1p29);
        total += urns[k].weight * urns[k].left;
    }
    return total;
}

void dl_draw_samples(uint32_t *out, uint64_t n, const dl_partition *p, const double *weights,
                     dl_rng *rng)
{
    urn urns[DL_SAMPLER_MAX_CLASSES];
    uint64_t total = fill_urns(urns, p, weights), key = dl_rng_u64(rng);
    for (uint64_t i = 0; i < n; i++) {
        DL_ASSERT(total > 0);
        uint64_t u = dl_rng_below(rng, total);
        size_t k = 0;
        for (; u >= urns[k].weight * urns[k].left; k++)
            u -= urns[k].weight * urns[k].left;
        uint64_t place = dl_rng_permute(urns[k].taken++, dl_class_size(p, k), key,
                                        DL_STREAM(DL_STREAM_SHUFFLE, k));
        out[i] = p->by_class[p->class_begin[k] + place];
        urns[k].left--;
        total -= urns[k].weight;
    }
}

bool dl_next_number(const char **text, uint64_t *number, char *after, bool *wrong)
{
    const char *at = *text + strspn(*text, " ");
    char *end;
    *after = 0;
    if (*at == ',' || *at == ';') *after = *at++;
    at += strspn(at, " ");
    if (!*at) {
        *wrong |= *after != 0;
        return false;
    }
    *number = strtoull(at, &end, 10);
    if (end == at || *at == '-' || *at == '+' || *number > UINT32_MAX) {
        *wrong = true;
        return false;
    }
    *text = end;
    return true;
}
