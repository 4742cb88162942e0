/* device_speed.c - see device_speed.h. A size is timed from an idle device to an idle device, so
 * the time includes the starts of its kernels. The inputs are random: on zeros, products are
 * faster. */
#include "nn/cuda/device_speed.h"

#include "base/clock.h"
#include "nn/cuda/start.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A size whose LAUNCHES take ENOUGH seconds is the last one. The fastest of TURNS counts. The
 * largest copy is beyond the caches of today's cards. */
enum { LAUNCHES = 4, TURNS = 3, FIRST_SIDE = 32, LAST_SIDE = 2048 };
static const double ENOUGH = 0.01;
static const size_t FIRST_BYTES = 1 << 20, LAST_BYTES = 256 << 20;

typedef struct work {
    dl_backend *backend;
    void *a, *b, *c;
    size_t size;         /* of a side, or of a copy in bytes */
    dl_cuda_types types; /* of a product */
} work;

static void product(const work *w)
{
    const dl_cuda_product_arguments a = {.a = w->a,
                                         .b = w->b,
                                         .c = w->c,
                                         .m = w->size,
                                         .n = w->size,
                                         .k = w->size,
                                         .a_row = w->size,
                                         .a_column = 1,
                                         .b_row = w->size,
                                         .b_column = 1};
    dl_cuda_product_on(w->backend, &a, w->types);
}

static void copy(const work *w)
{
    dl_backend_copy_within(w->backend, w->b, w->a, w->size);
}

/* Writes the seconds of one `operation`. */
static diloco_status time_of(double *seconds, const work *w, void (*operation)(const work *))
{
    *seconds = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        DL_TRY(dl_backend_sync(w->backend));
        const dl_time begin = dl_clock_now();
        for (int i = 0; i < LAUNCHES; i++)
            operation(w);
        DL_TRY(dl_backend_sync(w->backend));
        *seconds = fmin(*seconds, dl_seconds(dl_clock_now() - begin) / LAUNCHES);
    }
    return DILOCO_OK;
}

/* bf16 is the upper half of an f32, and fills half of the array. */
static void fill(const work *w, float *host, size_t n)
{
    const size_t bytes = n * (w->types == DL_CUDA_BF16 ? sizeof(uint16_t) : sizeof *host);
    uint32_t x = 1, bits;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        const float value = (float)(x >> 8) * 0x1p-23f - 1;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t half = (uint16_t)(bits >> 16);
        if (w->types == DL_CUDA_BF16)
            memcpy((unsigned char *)host + i * sizeof half, &half, sizeof half);
        else
            host[i] = value;
    }
    dl_backend_copy_in(w->backend, w->a, host, bytes);
    dl_backend_copy_in(w->backend, w->b, host, bytes);
}

static void release(work *w)
{
    dl_backend_release(w->backend, w->a);
    dl_backend_release(w->backend, w->b);
    dl_backend_release(w->backend, w->c);
    w->a = w->b = w->c = NULL;
}

static diloco_status time_product(double *seconds, work *w)
{
    const size_t n = w->size * w->size;
    float *host = malloc(n * sizeof *host);
    if (!host) return dl_fail(DILOCO_ENOMEM, "out of memory to measure a device");
    diloco_status status = dl_backend_alloc(w->backend, &w->a, n * sizeof *host);
    if (!status) status = dl_backend_alloc(w->backend, &w->b, n * sizeof *host);
    if (!status) status = dl_backend_alloc(w->backend, &w->c, n * sizeof *host);
    if (!status) {
        fill(w, host, n);
        status = time_of(seconds, w, product);
    }
    release(w);
    free(host);
    return status;
}

static diloco_status time_copy(double *seconds, work *w)
{
    diloco_status status = dl_backend_alloc(w->backend, &w->a, w->size);
    if (!status) status = dl_backend_alloc(w->backend, &w->b, w->size);
    if (!status) status = time_of(seconds, w, copy);
    release(w);
    return status;
}

static diloco_status measure_products(double *flops, dl_backend *backend, dl_cuda_types types)
{
    double seconds = 0;
    work w = {.backend = backend, .types = types};
    for (w.size = FIRST_SIDE;; w.size *= 2) {
        DL_TRY(time_product(&seconds, &w));
        if (seconds * LAUNCHES >= ENOUGH || w.size >= LAST_SIDE) break;
    }
    const double side = (double)w.size;
    *flops = 2 * side * side * side / seconds;
    return DILOCO_OK;
}

diloco_status dl_cuda_measure(dl_device_speed *out, dl_backend *backend)
{
    double seconds = 0;
    work w = {.backend = backend};
    *out = (dl_device_speed){0};
    DL_TRY(measure_products(&out->product_flops, backend, DL_CUDA_F32));
    DL_TRY(measure_products(&out->bf16_product_flops, backend, DL_CUDA_BF16));
    for (w.size = FIRST_BYTES;; w.size *= 4) {
        DL_TRY(time_copy(&seconds, &w));
        if (seconds * LAUNCHES >= ENOUGH || w.size >= LAST_BYTES) break;
    }
    out->copy_bytes = 2 * (double)w.size / seconds;
    return DILOCO_OK;
}
