/* capture_on_device.c - the trainer's half of an exchange where its arithmetic is on a device: see
 * device_moves.h, and capture.c for the same on the host.
 *
 * Invariant: theta of a fragment is on the device if `theta_on_device` has the digest of its newest
 * state. Otherwise it is copied there before it is used, so it need not be known when the state has
 * changed. */
#include "exchange/exec_parts.h"

/* Only f32 tensors have functions on a device. Rounds of overlap change the start of training on
 * the host, and gradients are no movements (presets/refusals.c refuses the options). */
diloco_status dl_exec_prepare_device(dl_exec *x)
{
    const dl_manifest *m = &x->a.run->manifest;
    size_t largest = 0, payload = 0;
    if (!x->a.moves) return DILOCO_OK;
    DL_ASSERT(!x->capture.start && !x->a.gradients);
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].dtype != DILOCO_F32)
            return dl_fail(DILOCO_EREFUSED,
                           "trainer.device_exchange = true is for tensors of f32, and %s is %s: "
                           "leave it false",
                           m->tensors[i].name, dl_dtype_name(m->tensors[i].dtype));
    for (int f = 0; f < m->n_fragments; f++) {
        largest = dl_size_max(largest, x->forms[f].n);
        payload = dl_size_max(payload, x->capture.encodes ? x->forms[f].bound : 0);
    }
    return x->a.moves->prepare(x->a.moves->user, x->capture.f32_at[m->n_fragments], largest,
                               payload);
}

bool dl_exec_encodes_on_device(const dl_exec *x)
{
    const bool saves_values = x->mode->keeps_in_flight && !x->capture.shares_next;
    return x->a.moves && dl_codec_has_integers(x->forms[0].codec) && !saves_values &&
           x->a.run->config.error_feedback == 0;
}

static void put_theta(dl_exec *x, uint32_t fragment)
{
    dl_hash *held = &x->capture.theta_on_device[fragment];
    const dl_fragment_state *now = &x->state.now[fragment];
    if (dl_hash_equal(*held, now->digest)) return;
    x->a.moves->put(x->a.moves->user, x->capture.f32_at[fragment], now->theta,
                    x->forms[fragment].n);
    *held = now->digest;
}

static dl_device_part part_of(const dl_exec *x, uint32_t fragment, size_t i)
{
    const dl_local_tensor *t = &x->capture.local[i];
    return (dl_device_part){.tensor = x->capture.tensor_of[i],
                            .theta = x->capture.f32_at[fragment] + t->begin,
                            .begin = t->begin,
                            .n = t->count};
}

/* The sum of squares of a block is above the square of the bound if an element is above it: sums of
 * squares in float64 do not decrease. */
static bool is_usable(const double *squares, size_t n)
{
    const double most = (double)DL_ELEMENT_BOUND * (double)DL_ELEMENT_BOUND;
    bool usable = true;
    for (size_t at = 0; at < n; at += DL_BLOCK)
        usable &= squares[at / DL_BLOCK] <= most; /* false of a NaN */
    return usable;
}

/* A movement that may not be usable is copied to the host, where capture.c names the element. */
diloco_status dl_exec_form_on_device(dl_exec *x, uint32_t fragment, dl_capture *c)
{
    const dl_device_moves *moves = x->a.moves;
    const dl_codec_form *form = &x->forms[fragment];
    dl_device_movement to = {.n = form->n, .squares = x->capture.norm2};
    c->encoded = x->capture.encodes;
    put_theta(x, fragment);
    for (size_t i = x->capture.first[fragment]; i < x->capture.first[fragment + 1]; i++) {
        const dl_device_part part = part_of(x, fragment, i);
        moves->form(moves->user, &part);
    }
    if (c->encoded) {
        to.payload = c->payload;
        to.payload_len = form->bound;
        moves->encode(moves->user, form);
        DL_TRY(moves->collect(moves->user, &to));
        c->encoded = is_usable(to.squares, to.n);
        to.payload = NULL;
    }
    if (c->encoded) return DILOCO_OK;
    to.values = c->g;
    return moves->collect(moves->user, &to);
}

void dl_exec_adopt_on_device(dl_exec *x, uint32_t fragment, float mix)
{
    const dl_device_moves *moves = x->a.moves;
    if (dl_mirrors_check(x->a.mirrors)) return; /* the caller of dl_mirrors_check gets the error */
    put_theta(x, fragment);
    for (size_t i = x->capture.first[fragment]; i < x->capture.first[fragment + 1]; i++) {
        const dl_device_part part = part_of(x, fragment, i);
        moves->adopt(moves->user, &part, mix);
    }
    dl_mirrors_settle(x->a.mirrors, (int)fragment);
}
