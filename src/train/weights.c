/* weights.c - by name, and only where type and shape agree: nothing is cut, padded or converted. */
#include "train/weights.h"

#include "tensor/manifest.h"

#include <stdio.h>
#include <string.h>

typedef char shape_text[128];

static const char *shape_of(shape_text out, const size_t *shape, int n_dims)
{
    int used = snprintf(out, sizeof(shape_text), "[");
    for (int d = 0; d < n_dims; d++)
        used += snprintf(out + used, sizeof(shape_text) - (size_t)used, "%s%zu", d ? ", " : "",
                         shape[d]);
    snprintf(out + used, sizeof(shape_text) - (size_t)used, "]");
    return out;
}

static bool same_shape(const diloco_tensor *t, const dl_st_tensor *found)
{
    return t->n_dims == found->n_dims &&
           memcmp(t->shape, found->shape, (size_t)t->n_dims * sizeof *t->shape) == 0;
}

static diloco_status load_one(const dl_setup *s, const diloco_tensor *t, const dl_st *st)
{
    shape_text here, there;
    const char *type = dl_dtype_name(t->dtype);
    const dl_st_tensor *found = dl_st_find(st, t->name);
    if (!found)
        return dl_fail(DILOCO_EINVAL, "there is no tensor %s, which the model has as %s %s",
                       t->name, type, shape_of(here, t->shape, t->n_dims));
    if (strcmp(found->dtype, type) != 0 || !same_shape(t, found))
        return dl_fail(DILOCO_EINVAL, "tensor %s is %s %s, and %s %s in the model", t->name,
                       found->dtype, shape_of(there, found->shape, found->n_dims), type,
                       shape_of(here, t->shape, t->n_dims));
    dl_backend_copy_in(s->backend, t->data, st->data + found->begin, found->end - found->begin);
    return DILOCO_OK;
}

diloco_status dl_weights_load(const dl_setup *s, const dl_st *st)
{
    size_t n_tensors;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++)
        DL_TRY(load_one(s, &tensors[i], st));
    return DILOCO_OK;
}

/* A tensor that would go unused is a sign of another model: an untied head, another layer. */
static diloco_status check_no_more(const dl_setup *s, const dl_st *st)
{
    size_t n_tensors;
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    for (size_t i = 0; i < st->n; i++) {
        const char *name = st->tensors[i].name;
        size_t k = 0;
        while (k < n_tensors && strcmp(tensors[k].name, name) != 0)
            k++;
        if (k == n_tensors && strncmp(name, "diloco.", 7) != 0)
            return dl_fail(DILOCO_EINVAL, "tensor %s is not one of the model's", name);
    }
    return DILOCO_OK;
}

static diloco_status init_from(const dl_setup *s, const dl_map *map)
{
    dl_st st;
    DL_TRY(dl_st_open(&st, map->data, map->len));
    diloco_status status = dl_weights_load(s, &st);
    if (!status) status = check_no_more(s, &st);
    if (status == DILOCO_EINVAL)
        status = dl_fail_context(status, "parameters.model.* does not describe the file's model");
    dl_st_close(&st);
    return status;
}

diloco_status dl_weights_init(const dl_setup *s, const char *path)
{
    dl_map map;
    diloco_status status = dl_map_open(&map, path);
    if (!status) {
        status = init_from(s, &map);
        dl_map_close(&map);
    }
    return status ? dl_fail_context(status, "trainer.init_from = \"%s\"", path) : DILOCO_OK;
}
