/* continuation.c - see continuation.h. A tensor goes on or begins anew as a whole: vectors of one
 * optimizer belong together, and those of another shape belong to another tensor. */
#include "run/continuation.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

bool dl_continue_can(const char *outer)
{
    static const char *const names[] = {"sgd",     "momentum", "nesterov",
                                        "fedadam", "fedyogi",  "fedadagrad"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(names[i], outer)) return true;
    return false;
}

bool dl_continues(const dl_st_tensor *found, const char *dtype, const size_t *shape, int n_dims)
{
    return found && !strcmp(found->dtype, dtype) && found->n_dims == n_dims &&
           memcmp(found->shape, shape, (size_t)n_dims * sizeof *shape) == 0;
}

static const dl_st_tensor *find_vector(const dl_st *st, const dl_outer *outer, int k,
                                       const char *tensor)
{
    char name[2 * DILOCO_NAME_MAX];
    snprintf(name, sizeof name, "diloco.%s.%s", outer->state_names[k], tensor);
    return dl_st_find(st, name);
}

static bool goes_on(const dl_st *st, const dl_outer *outer, const dl_manifest_tensor *t)
{
    const char *type = dl_dtype_name(dl_dtype_stored(t->dtype));
    bool fits = dl_continues(dl_st_find(st, t->name), type, t->shape, t->n_dims);
    for (int k = 0; k < outer->n_state && fits; k++)
        fits = dl_continues(find_vector(st, outer, k, t->name), type, t->shape, t->n_dims);
    return fits;
}

static void take(dl_state *state, const dl_st *st, const dl_manifest_tensor *t)
{
    const dl_outer *outer = state->outer;
    if (!goes_on(st, outer, t)) {
        dl_log(DILOCO_LOG_WARN,
               "%s has no %s of this optimizer, type and shape: its %s begins anew", t->name,
               outer->state_names[0], outer->state_names[0]);
        return;
    }
    for (int k = 0; k < outer->n_state; k++) {
        const dl_st_tensor *v = find_vector(st, outer, k, t->name);
        memcpy(state->now[t->fragment].outer[k] + t->offset, st->data + v->begin,
               v->end - v->begin);
    }
}

static bool has_tensor(const dl_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (!strcmp(m->tensors[i].name, name)) return true;
    return false;
}

static void tell_of_dropped(const dl_state *state, const dl_st *st)
{
    for (size_t i = 0; i < st->n; i++) {
        const char *name = st->tensors[i].name;
        if (strncmp(name, "diloco.", 7) != 0 && !has_tensor(state->manifest, name))
            dl_log(DILOCO_LOG_WARN, "%s is not in this model: it is left behind", name);
    }
}

static void take_all(dl_state *state, const dl_st *st)
{
    for (size_t i = 0; i < state->manifest->n_tensors && state->outer->n_state > 0; i++)
        if (state->manifest->tensors[i].region == DL_TRAINED)
            take(state, st, &state->manifest->tensors[i]);
    tell_of_dropped(state, st);
}

diloco_status dl_continue_outer(dl_state *state, const char *path)
{
    dl_map map;
    dl_st st;
    diloco_status status = dl_map_open(&map, path);
    if (!status) {
        status = dl_st_open(&st, map.data, map.len);
        if (!status) {
            take_all(state, &st);
            dl_st_close(&st);
        }
        dl_map_close(&map);
    }
    return status ? dl_fail_context(status, "trainer.init_from = \"%s\"", path) : DILOCO_OK;
}
