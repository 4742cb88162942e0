/* movement.c - see movement.h. The table `rows` has a column of functions for each kind of device.
 */
#include "nn/movement.h"

#include "nn/cuda/movement_columns.h"
#include "nn/enter.h"
#include "tensor/kernels.h"

/* ---- on the CPU: of the trap backend alone, since the host's own tensors need no operations */

static void form_on_cpu(dl_backend *b, float *g, const float *before, const float *after, size_t n)
{
    (void)b;
    dl_delta(g, before, after, n);
}

static void squares_on_cpu(dl_backend *b, double *squares, const float *g, size_t n)
{
    (void)b;
    for (size_t at = 0; at < n; at += DL_BLOCK)
        squares[at / DL_BLOCK] = dl_block_norm2(g + at, dl_size_min(n - at, DL_BLOCK));
}

static void adopt_on_cpu(dl_backend *b, float *local, const float *theta, float mix, size_t n)
{
    (void)b;
    dl_adopt(local, theta, mix, n);
}

static void encode_on_cpu(dl_backend *b, const dl_encoding *to, const float *x, size_t n)
{
    (void)b;
    dl_isa_call(to->kind->encode)(to->codes, to->scales, x, n);
}

/* ---- the table */

static const struct {
    void (*form)(dl_backend *b, float *g, const float *before, const float *after, size_t n);
    void (*squares)(dl_backend *b, double *squares, const float *g, size_t n);
    void (*adopt)(dl_backend *b, float *local, const float *theta, float mix, size_t n);
    void (*encode)(dl_backend *b, const dl_encoding *to, const float *x, size_t n);
} rows[DL_N_DEVICES] = {
    [DL_DEVICE_CPU] = {.form = form_on_cpu,
                       .squares = squares_on_cpu,
                       .adopt = adopt_on_cpu,
                       .encode = encode_on_cpu},
    [DL_DEVICE_CUDA] = {.form = dl_cuda_form,
                        .squares = dl_cuda_squares,
                        .adopt = dl_cuda_adopt,
                        .encode = dl_cuda_encode},
};

/* The floating-point environment is that of the exchange (PROTOCOL B1). */
static dl_fp_state enter(dl_backend *b)
{
    dl_backend_enter(b);
    return dl_fp_enter();
}

static void leave(dl_backend *b, dl_fp_state fp)
{
    dl_fp_leave(fp);
    dl_backend_leave(b);
}

void dl_movement_form(dl_backend *b, float *g, const float *before, const float *after, size_t n)
{
    const dl_fp_state fp = enter(b);
    rows[b->ops->device].form(b, g, before, after, n);
    leave(b, fp);
}

void dl_movement_squares(dl_backend *b, double *squares, const float *g, size_t n)
{
    const dl_fp_state fp = enter(b);
    rows[b->ops->device].squares(b, squares, g, n);
    leave(b, fp);
}

void dl_movement_adopt(dl_backend *b, float *local, const float *theta, float mix, size_t n)
{
    const dl_fp_state fp = enter(b);
    rows[b->ops->device].adopt(b, local, theta, mix, n);
    leave(b, fp);
}

void dl_movement_encode(dl_backend *b, const dl_encoding *to, const float *x, size_t n)
{
    DL_ASSERT(to->kind->integers);
    const dl_fp_state fp = enter(b);
    rows[b->ops->device].encode(b, to, x, n);
    leave(b, fp);
}
