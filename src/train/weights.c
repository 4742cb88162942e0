/* weights.c - copies tensors by name, and only if type and shape agree. Nothing is cut, padded or
 * converted, since a model of another shape would train without an error and be wrong. */
#include "train/weights.h"

#include "base/log.h"
#include "state/continuation.h"
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

/* Returns true if the file's tensor, which may be NULL, has the type and shape of the model's. */
static bool fits(const diloco_tensor *t, const dl_st_tensor *found)
{
    return dl_continues(found, dl_dtype_name(t->dtype), t->shape, t->n_dims);
}

static void copy_in(const dl_setup *s, const diloco_tensor *t, const dl_st *st,
                    const dl_st_tensor *from)
{
    dl_backend_copy_in(s->backend, t->data, st->data + from->begin, from->end - from->begin);
}

/* Loads a tensor of the model, and reports both types and shapes if they differ. */
static diloco_status load_one(const dl_setup *s, const diloco_tensor *t, const dl_st *st)
{
    shape_text here, there;
    const char *type = dl_dtype_name(t->dtype);
    const dl_st_tensor *found = dl_st_find(st, t->name);
    if (!found)
        return dl_fail(DILOCO_EINVAL, "there is no tensor %s, which the model has as %s %s",
                       t->name, type, shape_of(here, t->shape, t->n_dims));
    if (!fits(t, found))
        return dl_fail(DILOCO_EINVAL, "tensor %s is %s %s, and %s %s in the model", t->name,
                       found->dtype, shape_of(there, found->shape, found->n_dims), type,
                       shape_of(here, t->shape, t->n_dims));
    copy_in(s, t, st, found);
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

/* A component of its name shows it, as in PEFT: "….q_proj.lora_A.default.weight". */
static bool is_of_adapter(const char *name)
{
    static const char *const words[] = {".lora_A.", ".lora_B.", ".lora_embedding_A",
                                        ".lora_embedding_B", ".lora_magnitude_vector"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(name, words[i])) return true;
    return false;
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
        if (k == n_tensors && is_of_adapter(name))
            return dl_fail(
                DILOCO_EINVAL,
                "tensor %s is of an adapter, and there are no adapter models here: merge "
                "it into its model first (PEFT: merge_and_unload)",
                name);
        if (k == n_tensors && strncmp(name, "diloco.", 7) != 0)
            return dl_fail(DILOCO_EINVAL, "tensor %s is not one of the model's", name);
    }
    return DILOCO_OK;
}

static diloco_status read_file(const dl_setup *s, const char *path, dl_st_fn read)
{
    return dl_init_from(path, read, (void *)(uintptr_t)s);
}

/* The function of dl_init_from() that requires exactly the model's tensors. */
static diloco_status read_model(void *context, const dl_st *st)
{
    const dl_setup *s = context;
    diloco_status status = dl_weights_load(s, st);
    if (!status) status = check_no_more(s, st);
    if (status != DILOCO_EINVAL) return status;
    return dl_fail_context(status, "parameters.model.* does not describe the file's model");
}

diloco_status dl_weights_init(const dl_setup *s, const char *path)
{
    return read_file(s, path, read_model);
}

/* Loads the tensors that fit, and logs the others. */
static diloco_status read_what_fits(void *context, const dl_st *st)
{
    const dl_setup *s = context;
    size_t n_tensors, n_taken = 0;
    dl_tensor_list others = {0};
    const diloco_tensor *tensors = dl_model_tensors(s->model, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        const dl_st_tensor *found = dl_st_find(st, tensors[i].name);
        const bool taken = fits(&tensors[i], found);
        n_taken += taken;
        if (taken)
            copy_in(s, &tensors[i], st, found);
        else
            dl_tensor_list_add(&others, tensors[i].name);
    }
    dl_tensor_list_warn(&others,
                        "missing or of another type or shape, so they keep their initial values");
    if (n_taken > 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "no tensor of the file is one of the model's");
}

diloco_status dl_weights_continue(const dl_setup *s, const char *path)
{
    return read_file(s, path, read_what_fits);
}
