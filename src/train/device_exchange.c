/* device_exchange.c - see device_exchange.h. */
#include "train/device_exchange.h"

#include "nn/gradient.h"
#include "nn/movement.h"

/* Memory is released first, since a join may be tried again. After an error the rest is kept until
 * deinit. */
static diloco_status prepare(void *user, size_t n, size_t largest)
{
    dl_device_exchange *e = user;
    dl_device_exchange_deinit(e);
    DL_TRY(dl_backend_alloc(e->backend, &e->theta, n * sizeof(float)));
    DL_TRY(dl_backend_alloc(e->backend, &e->movement, largest * sizeof(float)));
    return dl_backend_alloc(e->backend, &e->squares, dl_gradient_blocks(largest) * sizeof(double));
}

static void put(void *user, size_t at, const float *values, size_t n)
{
    const dl_device_exchange *e = user;
    dl_backend_copy_in(e->backend, (float *)e->theta + at, values, n * sizeof *values);
}

static void form(void *user, const dl_device_part *part)
{
    const dl_device_exchange *e = user;
    dl_movement_form(e->backend, (float *)e->movement + part->begin,
                     (const float *)e->theta + part->theta, e->tensors[part->tensor].data, part->n);
}

static void adopt(void *user, const dl_device_part *part, float mix)
{
    const dl_device_exchange *e = user;
    dl_movement_adopt(e->backend, e->tensors[part->tensor].data,
                      (const float *)e->theta + part->theta, mix, part->n);
}

static diloco_status collect(void *user, float *movement, double *squares, size_t n)
{
    const dl_device_exchange *e = user;
    dl_movement_squares(e->backend, e->squares, e->movement, n);
    dl_backend_copy_out(e->backend, movement, e->movement, n * sizeof *movement);
    dl_backend_copy_out(e->backend, squares, e->squares, dl_gradient_blocks(n) * sizeof *squares);
    return dl_backend_sync(e->backend);
}

dl_device_moves dl_device_exchange_moves(dl_device_exchange *e)
{
    return (dl_device_moves){.user = e,
                             .prepare = prepare,
                             .put = put,
                             .form = form,
                             .adopt = adopt,
                             .collect = collect};
}

void dl_device_exchange_deinit(dl_device_exchange *e)
{
    if (e->theta) dl_backend_release(e->backend, e->theta);
    if (e->movement) dl_backend_release(e->backend, e->movement);
    if (e->squares) dl_backend_release(e->backend, e->squares);
    *e = (dl_device_exchange){.backend = e->backend, .tensors = e->tensors};
}
