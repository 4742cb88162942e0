/* probing.c - see probing.h. One image of the model is filled once from the state, then in one
 * fragment again for each contribution. */
#include "exchange/probing.h"

#include "tensor/kernels.h"
#include "tensor/widths.h"

#include <stdlib.h>
#include <string.h>

struct dl_probing {
    dl_probing_args a;
    void **data;  /* [n_tensors] into image */
    void *image;  /* owned: all tensors, each in its type */
    float *moved; /* owned: theta - g of the largest fragment */
};

/* The values of one fragment. */
typedef struct values {
    const float *theta;
    const void *integers, *booleans; /* integers may be unaligned */
} values;

/* Returns the bytes of a tensor in the image. Places are multiples of 64 bytes, so every tensor is
 * aligned for any type and vector width. */
static size_t place_bytes(const dl_manifest_tensor *t)
{
    return dl_size_round_up(t->count * dl_dtype_size(t->dtype), 64);
}

/* Allocates one model in the trainer's types, and one fragment in float32. Nothing is allocated
 * while it measures. */
static diloco_status take_memory(dl_probing *p)
{
    const dl_manifest *m = p->a.manifest;
    size_t bytes = 0, floats = 0, at = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        bytes += place_bytes(&m->tensors[i]);
    for (int f = 0; f < m->n_fragments; f++)
        floats = dl_size_max(floats, m->fragments[f].n_trained + m->fragments[f].n_averaged);
    p->data = calloc(dl_size_max(m->n_tensors, 1), sizeof *p->data);
    p->image = malloc(dl_size_max(bytes, 1));
    p->moved = calloc(dl_size_max(floats, 1), sizeof *p->moved);
    if (!p->data || !p->image || !p->moved)
        return dl_fail(DILOCO_ENOMEM, "out of memory for check.probe: a model of %zu bytes", bytes);
    for (size_t i = 0; i < m->n_tensors; at += place_bytes(&m->tensors[i++]))
        p->data[i] = (unsigned char *)p->image + at;
    return DILOCO_OK;
}

diloco_status dl_probing_create(dl_probing **out, const dl_probing_args *args)
{
    *out = NULL;
    dl_probing *p = calloc(1, sizeof *p);
    if (!p) return dl_fail(DILOCO_ENOMEM, "out of memory for check.probe");
    p->a = *args;
    const diloco_status status = take_memory(p);
    if (status)
        dl_probing_destroy(p);
    else
        *out = p;
    return status;
}

void dl_probing_destroy(dl_probing *p)
{
    if (!p) return;
    free(p->data);
    free(p->image);
    free(p->moved);
    free(p);
}

/* Writes the tensors of one fragment into the image, each in its registered type. */
static void fill(dl_probing *p, int fragment, values v)
{
    for (size_t i = 0; i < p->a.manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &p->a.manifest->tensors[i];
        if (t->fragment != fragment) continue;
        if (t->region == DL_INTEGERS)
            memcpy(p->data[i], (const unsigned char *)v.integers + t->offset * sizeof(int64_t),
                   t->count * sizeof(int64_t));
        else if (t->region == DL_BOOLEANS)
            memcpy(p->data[i], (const unsigned char *)v.booleans + t->offset, t->count);
        else if (dl_dtype_stored(t->dtype) != t->dtype)
            dl_narrow(p->data[i], v.theta + t->offset, t->count, dl_dtype_name(t->dtype));
        else
            memcpy(p->data[i], v.theta + t->offset, t->count * sizeof(float));
    }
}

static values of_state(const dl_fragment_state *s)
{
    return (values){.theta = s->theta, .integers = s->integers, .booleans = s->booleans};
}

/* Decodes the contribution as every reader does, and moves theta by it: theta - g. Integers and
 * booleans are the member's values. */
static values of_member(dl_probing *p, const dl_fragment_state *s, int fragment,
                        const dl_contribution_data *member)
{
    const dl_codec_form *form = &p->a.forms[fragment];
    dl_codec_round_trip(form, p->moved, member->payload, member->len);
    const dl_fp_state fp = dl_fp_enter();
    dl_delta(p->moved, s->theta, p->moved, form->n);
    dl_fp_leave(fp);
    return (values){.theta = p->moved, .integers = member->integers, .booleans = member->booleans};
}

static diloco_status measure(const dl_probing *p, double *loss)
{
    return p->a.measure(p->a.user, loss, (const void *const *)p->data, p->a.manifest->n_tensors);
}

/* The other fragments keep the state's values throughout. After an error the remaining losses are
 * not set. */
diloco_status dl_probing_measure(dl_probing *p, double *loss, const dl_state *state, int fragment,
                                 const dl_contribution_data *members, size_t n)
{
    const dl_fragment_state *s = &state->now[fragment];
    for (int f = 0; f < p->a.manifest->n_fragments; f++)
        fill(p, f, of_state(&state->now[f]));
    DL_TRY(measure(p, &loss[0]));
    for (size_t i = 0; i < n; i++) {
        fill(p, fragment, of_member(p, s, fragment, &members[i]));
        DL_TRY(measure(p, &loss[1 + i]));
    }
    dl_state_put_out_all(state);
    return DILOCO_OK;
}
