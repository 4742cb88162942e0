/* ranks.c - see ranks.h. */
#include "train/ranks.h"

#include "nn/cuda/add_cuda.h"
#include "nn/device.h"
#include "tensor/group.h"

#include <stdlib.h>
#include <string.h>

/* PIECE bounds the memory of sums: 32 MiB on each card. */
enum { PIECE = 8 << 20, MOST_PARTS = 16 };
_Static_assert((int)MOST_PARTS <= (int)DL_GROUP_MARKS, "each part has a mark");

struct dl_ranks {
    size_t n, n_parameters;
    int64_t micro_batches; /* of a step */
    size_t n_parts;        /* 0: gradients are added after the backward pass */
    dl_gradient_part parts[DL_GROUP_MARKS];
    dl_group *group;                                           /* owned */
    dl_backend *backends[DL_MAX_CARDS];                        /* [n] owned, but the first */
    dl_model *models[DL_MAX_CARDS];                            /* likewise */
    float *parameters[DL_MAX_CARDS], *gradients[DL_MAX_CARDS]; /* [n] of the models */
    dl_inner *inners[DL_MAX_CARDS];  /* [n] owned, the first is NULL; NULL: not divided */
    size_t bounds[DL_MAX_CARDS + 1]; /* elements that each rank's optimizer updates */
};

/* A buffer's values follow from the samples that its device has seen, so the ranks would differ. */
static diloco_status check_tensors(const dl_setup *s)
{
    for (size_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].role == DILOCO_BUFFER)
            return dl_fail(DILOCO_EREFUSED,
                           "trainer.device = \"%s\" names several cards, and the model %s has the "
                           "buffer %s: name one card",
                           s->config.device, s->config.model, s->tensors[i].name);
    return DILOCO_OK;
}

/* A replica's saved state names the first card alone, with its library of products. So that the
 * name is right, all cards must have it. Each opens the library by itself, and without memory for
 * it has the program's own products, which have other bits. */
static diloco_status check_card(const dl_ranks *r, size_t i, const dl_setup *s)
{
    const char *first = dl_backend_card(r->backends[0]), *card = dl_backend_card(r->backends[i]);
    if (strcmp(first, card) == 0) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "trainer.device = \"%s\" names cards that differ: the first is %s, and number %zu"
        " of the list is %s. Name cards of one kind; if one is without cuBLASLt, free"
        " memory on it",
        s->config.device, first, i + 1, card);
}

static diloco_status open_rank(dl_ranks *r, size_t i, const dl_setup *s)
{
    DL_TRY(dl_device_open(&r->backends[i], s->config.device, i));
    DL_TRY(check_card(r, i, s));
    return dl_model_create(&r->models[i], &s->config, s->sample, s->max_rows, r->backends[i],
                           s->pool);
}

/* A part ends a sequence of kernels (tensor/cuda/cuda_launches.h), so there are few. */
static diloco_status find_parts(dl_ranks *r, const dl_setup *s)
{
    const size_t least = (size_t)s->config.gradient_bucket_bytes / sizeof(float);
    r->micro_batches = s->config.accumulation;
    if (s->config.gradient_bucket_bytes == 0) return DILOCO_OK;
    r->n_parts = dl_model_parts(s->model, r->parts, MOST_PARTS, least);
    return r->n_parts ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for a model's gradients");
}

static diloco_status open_all(dl_ranks *r, const dl_setup *s, size_t n)
{
    r->backends[0] = s->backend;
    r->models[0] = s->model;
    r->n_parameters = dl_model_n_parameters(s->model);
    r->n = n;
    DL_TRY(check_tensors(s));
    for (size_t i = 1; i < n; i++)
        DL_TRY(open_rank(r, i, s));
    for (size_t i = 0; i < n; i++) {
        r->parameters[i] = dl_model_parameters(r->models[i]);
        r->gradients[i] = dl_model_gradients(r->models[i]);
    }
    const dl_group_options options = {.add = dl_cuda_add_beside,
                                      .piece = dl_size_min(PIECE, r->n_parameters)};
    DL_TRY(dl_group_create(&r->group, r->backends, n, &options));
    return find_parts(r, s);
}

diloco_status dl_ranks_open(dl_ranks **out, const dl_setup *s)
{
    dl_device_list list;
    *out = NULL;
    DL_TRY(dl_device_of_name(&list, s->config.device));
    if (list.n == 1) return DILOCO_OK;
    dl_ranks *r = calloc(1, sizeof *r);
    if (!r) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu devices", list.n);
    const diloco_status status = open_all(r, s, list.n);
    if (status)
        dl_ranks_close(r);
    else
        *out = r;
    return status;
}

/* The group ends first: after a failure its collectives may still be on the devices. */
void dl_ranks_close(dl_ranks *r)
{
    if (!r) return;
    dl_group_destroy(r->group);
    for (size_t i = 1; i < r->n; i++) {
        dl_inner_destroy(r->inners[i]);
        dl_model_destroy(r->models[i]);
        dl_backend_destroy(r->backends[i]);
    }
    free(r);
}

/* ---- the divided optimizer */

static dl_inner_model inner_model(const dl_ranks *r, size_t i, const dl_setup *s)
{
    dl_inner_model model = {.hidden = dl_model_hidden(r->models[i]),
                            .parameters = r->parameters[i],
                            .gradients = r->gradients[i],
                            .backend = r->backends[i],
                            .pool = s->pool,
                            .range = &r->bounds[i]};
    model.tensors = dl_model_tensors(r->models[i], &model.n_tensors);
    return model;
}

diloco_status dl_ranks_divide(dl_ranks *r, dl_inner **first, const dl_setup *s)
{
    const dl_inner_model whole = inner_model(r, 0, s);
    diloco_status status = DILOCO_OK;
    *first = NULL;
    dl_inner_bounds(r->bounds, r->n, &s->config, &whole);
    for (size_t i = 0; !status && i < r->n; i++) {
        const dl_inner_model model = inner_model(r, i, s);
        status = dl_inner_create(i ? &r->inners[i] : first, &s->config, &model);
    }
    if (!status) return DILOCO_OK;
    dl_inner_destroy(*first);
    *first = NULL;
    return status;
}

dl_inner *dl_ranks_inner(const dl_ranks *r, size_t rank)
{
    return r->inners[rank];
}

/* Rank 0 has the whole gradient, so the norm has the bits of an optimizer that is not divided. */
void dl_ranks_update(const dl_ranks *r, dl_inner *first, double lr)
{
    float *verdicts[DL_MAX_CARDS];
    size_t bytes = 0;
    dl_inner_judge(first);
    for (size_t i = 0; i < r->n; i++)
        verdicts[i] = dl_inner_verdict(i ? r->inners[i] : first, &bytes);
    dl_group_broadcast(r->group, verdicts, bytes / sizeof(float));
    dl_group_scatter(r->group, r->gradients, r->bounds);
    for (size_t i = 0; i < r->n; i++)
        dl_inner_update(i ? r->inners[i] : first, lr);
    dl_group_gather(r->group, r->parameters, r->bounds);
}

size_t dl_ranks_count(const dl_ranks *r)
{
    return r ? r->n : 1;
}

dl_backend *dl_ranks_backend(const dl_ranks *r, size_t rank)
{
    return r->backends[rank];
}

void dl_ranks_spread(const dl_ranks *r)
{
    dl_group_broadcast(r->group, r->parameters, r->n_parameters);
}

typedef struct watcher {
    const dl_ranks *ranks;
    size_t rank;
} watcher;

static void mark(void *context, size_t part)
{
    const watcher *w = context;
    dl_group_mark(w->ranks->group, w->rank, part);
}

/* A gradient's parts are complete in the last micro-batch of its rank. */
diloco_status dl_ranks_train(const dl_ranks *r, int64_t i, const void *inputs,
                             const int32_t *targets, size_t rows, float scale)
{
    const int64_t n = (int64_t)r->n;
    watcher w = {r, (size_t)(i % n)};
    const dl_gradient_watch watch = {
        .parts = r->parts, .n = r->n_parts, .done = mark, .context = &w};
    const bool last = i + n >= r->micro_batches;
    return dl_model_train_watched(r->models[w.rank], inputs, targets, rows, scale, i >= n,
                                  r->n_parts && last ? &watch : NULL);
}

/* The host has queued all passes by now, and the devices have hardly begun. So each part is added
 * as soon as all devices have computed it. */
void dl_ranks_sum(const dl_ranks *r)
{
    if (r->n_parts == 0) {
        dl_group_sum(r->group, r->gradients, r->n_parameters);
        return;
    }
    for (size_t k = 0; k < r->n_parts; k++) {
        const dl_gradient_part *part = &r->parts[k];
        float *arrays[DL_MAX_CARDS];
        for (size_t i = 0; i < r->n; i++)
            arrays[i] = r->gradients[i] + part->begin;
        dl_group_sum_part(r->group, arrays, part->end - part->begin, k);
    }
    dl_group_join(r->group);
}

diloco_status dl_ranks_make_room(const dl_ranks *r, size_t rank, size_t rows)
{
    return dl_group_make_room(r->group, rank, dl_model_batch_bytes(r->models[rank], rows));
}

diloco_status dl_ranks_wait(const dl_ranks *r)
{
    return dl_group_wait(r->group);
}

diloco_status dl_ranks_add_loss(const dl_ranks *r, dl_model_loss *loss)
{
    for (size_t i = 1; i < r->n; i++) {
        dl_model_loss more;
        DL_TRY(dl_model_take_loss(r->models[i], &more));
        loss->sum += more.sum;
        loss->n_targets += more.n_targets;
        loss->n_correct += more.n_correct;
    }
    return DILOCO_OK;
}
