/* ranks.c - see ranks.h. */
#include "train/ranks.h"

#include "nn/device.h"
#include "tensor/group.h"

#include <stdlib.h>

struct dl_ranks {
    size_t n, n_parameters;
    dl_group *group;                                           /* owned */
    dl_backend *backends[DL_MAX_CARDS];                        /* [n] owned, but the first */
    dl_model *models[DL_MAX_CARDS];                            /* likewise */
    float *parameters[DL_MAX_CARDS], *gradients[DL_MAX_CARDS]; /* [n] of the models */
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

static diloco_status open_rank(dl_ranks *r, size_t i, const dl_setup *s)
{
    DL_TRY(dl_device_open(&r->backends[i], s->config.device, i));
    return dl_model_create(&r->models[i], &s->config, s->sample, s->max_rows, r->backends[i],
                           s->pool);
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
    return dl_group_create(&r->group, r->backends, n);
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
        dl_model_destroy(r->models[i]);
        dl_backend_destroy(r->backends[i]);
    }
    free(r);
}

size_t dl_ranks_count(const dl_ranks *r)
{
    return r ? r->n : 1;
}

dl_backend *dl_ranks_backend(const dl_ranks *r, size_t rank)
{
    return r->backends[rank];
}

dl_model *dl_ranks_model(const dl_ranks *r, size_t rank)
{
    return r->models[rank];
}

void dl_ranks_spread(const dl_ranks *r)
{
    dl_group_broadcast(r->group, r->parameters, r->n_parameters);
}

void dl_ranks_sum(const dl_ranks *r)
{
    dl_group_sum(r->group, r->gradients, r->n_parameters);
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
