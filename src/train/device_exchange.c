/* device_exchange.c - see device_exchange.h. */
#include "train/device_exchange.h"

#include "nn/gradient.h"
#include "nn/movement.h"

/* Memory is released first, since a join may be tried again. After an error the rest is kept until
 * deinit. */
static diloco_status prepare(void *user, const dl_device_room *room)
{
    dl_device_exchange *e = user;
    dl_device_exchange_deinit(e);
    DL_TRY(dl_backend_alloc(e->backend, &e->theta, room->theta * sizeof(float)));
    DL_TRY(dl_backend_alloc(e->backend, &e->movements, room->movements * sizeof(float)));
    DL_TRY(dl_backend_alloc(e->backend, &e->payload, room->payload));
    return dl_backend_alloc(e->backend, &e->squares,
                            dl_gradient_blocks(room->largest) * sizeof(double));
}

static void put(void *user, size_t at, const float *values, size_t n)
{
    const dl_device_exchange *e = user;
    dl_backend_copy_in(e->backend, (float *)e->theta + at, values, n * sizeof *values);
}

static void form(void *user, const dl_device_part *part)
{
    const dl_device_exchange *e = user;
    dl_movement_form(e->backend, (float *)e->movements + part->begin,
                     (const float *)e->theta + part->theta, e->tensors[part->tensor].data, part->n);
}

static void adopt(void *user, const dl_device_part *part, float mix)
{
    const dl_device_exchange *e = user;
    dl_movement_adopt(e->backend, e->tensors[part->tensor].data,
                      (const float *)e->theta + part->theta, mix, part->n);
}

static void encode(void *user, const dl_codec_form *form, size_t begin)
{
    const dl_device_exchange *e = user;
    for (size_t i = 0; i < form->n_tensors; i++) {
        const dl_codec_tensor *t = &form->tensors[i];
        const dl_blocks_place at = dl_blocks_place_of(form, t);
        const dl_encoding to = {.kind = form->codec->blocks,
                                .codes = (unsigned char *)e->payload + at.codes,
                                .scales = (unsigned char *)e->payload + at.scales};
        dl_movement_encode(e->backend, &to, (const float *)e->movements + begin + t->begin,
                           t->count);
    }
}

static diloco_status collect(void *user, const dl_device_movement *to)
{
    const dl_device_exchange *e = user;
    const float *movement = (const float *)e->movements + to->begin;
    if (to->squares) {
        dl_movement_squares(e->backend, e->squares, movement, to->n);
        dl_backend_copy_out(e->backend, to->squares, e->squares,
                            dl_gradient_blocks(to->n) * sizeof *to->squares);
    }
    if (to->values)
        dl_backend_copy_out(e->backend, to->values, movement, to->n * sizeof *to->values);
    if (to->payload) dl_backend_copy_out(e->backend, to->payload, e->payload, to->payload_len);
    return dl_backend_sync(e->backend);
}

dl_device_moves dl_device_exchange_moves(dl_device_exchange *e)
{
    return (dl_device_moves){.user = e,
                             .prepare = prepare,
                             .put = put,
                             .form = form,
                             .adopt = adopt,
                             .encode = encode,
                             .collect = collect};
}

void dl_device_exchange_deinit(dl_device_exchange *e)
{
    if (e->theta) dl_backend_release(e->backend, e->theta);
    if (e->movements) dl_backend_release(e->backend, e->movements);
    if (e->squares) dl_backend_release(e->backend, e->squares);
    if (e->payload) dl_backend_release(e->backend, e->payload);
    *e = (dl_device_exchange){.backend = e->backend, .tensors = e->tensors};
}
