/* capture_on_device.c - the trainer's half of an exchange where its arithmetic is on a device: see
 * device_moves.h, and capture.c for the same on the host.
 *
 * Invariant: theta of a fragment is on the device if `theta_on_device` has the digest of its newest
 * state. Otherwise it is copied there before it is used, so it need not be known when the state has
 * changed. */
#include "exchange/exec_parts.h"

/* A save has the values of captures in flight (PROTOCOL P16). Where the host gets them only then,
 * each capture has a place of its own on the device until the next one of its slot. */
static bool keeps_movements(const dl_exec *x)
{
    return x->capture.encodes && x->capture.keeps_in_flight;
}

/* Returns the place of a capture's first element in the movements. */
static size_t begin_of(const dl_exec *x, const dl_capture *c)
{
    return keeps_movements(x) ? (size_t)(c - x->capture.at) * x->capture.largest : 0;
}

/* Only f32 tensors have functions on a device. Rounds of overlap change the start of training on
 * the host, and gradients are no movements. presets/refusals.c refuses the options, but run.json
 * may have others. */
diloco_status dl_exec_prepare_device(dl_exec *x)
{
    const dl_manifest *m = &x->a.run->manifest;
    dl_device_room room = {0};
    if (!x->a.moves) return DILOCO_OK;
    if (x->capture.start || x->a.gradients)
        return dl_fail(DILOCO_EREFUSED,
                       "trainer.device_exchange = true is not for this run: its rounds overlap "
                       "(server.diloco.overlap), or it sends gradients: leave it false");
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].dtype != DILOCO_F32)
            return dl_fail(DILOCO_EREFUSED,
                           "trainer.device_exchange = true is for tensors of f32, and %s is %s: "
                           "leave it false",
                           m->tensors[i].name, dl_dtype_name(m->tensors[i].dtype));
    for (int f = 0; f < m->n_fragments; f++) {
        room.largest = dl_size_max(room.largest, x->forms[f].n);
        room.payload = dl_size_max(room.payload, x->capture.encodes ? x->forms[f].bound : 0);
    }
    room.theta = x->capture.f32_at[m->n_fragments];
    room.movements = room.largest * (keeps_movements(x) ? x->capture.n : 1);
    return x->a.moves->prepare(x->a.moves->user, &room);
}

bool dl_exec_encodes_on_device(const dl_exec *x)
{
    return x->a.moves && dl_codec_has_integers(x->forms[0].codec) &&
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

static dl_device_part part_of(const dl_exec *x, uint32_t fragment, size_t i, size_t begin)
{
    const dl_local_tensor *t = &x->capture.local[i];
    return (dl_device_part){.tensor = x->capture.tensor_of[i],
                            .theta = x->capture.f32_at[fragment] + t->begin,
                            .begin = begin + t->begin,
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

static bool *is_away(dl_exec *x, const dl_capture *c)
{
    return &x->capture.away[c - x->capture.at];
}

/* A movement that may not be usable is copied to the host, where capture.c names the element. */
diloco_status dl_exec_form_on_device(dl_exec *x, uint32_t fragment, dl_capture *c)
{
    const dl_device_moves *moves = x->a.moves;
    const dl_codec_form *form = &x->forms[fragment];
    const size_t begin = begin_of(x, c);
    dl_device_movement to = {.begin = begin, .n = form->n, .squares = x->capture.norm2};
    c->encoded = x->capture.encodes;
    *is_away(x, c) = false;
    put_theta(x, fragment);
    for (size_t i = x->capture.first[fragment]; i < x->capture.first[fragment + 1]; i++) {
        const dl_device_part part = part_of(x, fragment, i, begin);
        moves->form(moves->user, &part);
    }
    if (c->encoded) {
        to.payload = c->payload;
        to.payload_len = form->bound;
        moves->encode(moves->user, form, begin);
        DL_TRY(moves->collect(moves->user, &to));
        c->encoded = *is_away(x, c) = is_usable(to.squares, to.n);
        to.payload = NULL;
    }
    if (c->encoded) return DILOCO_OK;
    to.values = c->g;
    return moves->collect(moves->user, &to);
}

diloco_status dl_exec_fetch_values(dl_exec *x, dl_capture *c)
{
    if (!*is_away(x, c)) return DILOCO_OK;
    const dl_device_movement to = {
        .begin = begin_of(x, c), .n = x->forms[c->fragment].n, .values = c->g};
    DL_TRY(x->a.moves->collect(x->a.moves->user, &to));
    *is_away(x, c) = false;
    return DILOCO_OK;
}

void dl_exec_adopt_on_device(dl_exec *x, uint32_t fragment, float mix)
{
    const dl_device_moves *moves = x->a.moves;
    if (dl_mirrors_check(x->a.mirrors)) return; /* the caller of dl_mirrors_check gets the error */
    put_theta(x, fragment);
    for (size_t i = x->capture.first[fragment]; i < x->capture.first[fragment + 1]; i++) {
        const dl_device_part part = part_of(x, fragment, i, 0);
        moves->adopt(moves->user, &part, mix);
    }
    dl_mirrors_settle(x->a.mirrors, (int)fragment);
}
