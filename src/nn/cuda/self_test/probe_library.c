/* probe_library.c - a product by the library of products (tensor/cuda/cuda_blas.h) against its
 * formula in float64. Without a library, or an algorithm for the shape, there is nothing to test.
 */
#include "nn/cuda/self_test/self_test_rows.h"
#include "tensor/cuda/backend_cuda.h"

enum { M = 37, COLUMNS = 72, K = 24 };
static const double ROUNDINGS = 2e-5;

/* There is no product to compare. That is no failure unless the device has failed. */
static diloco_status missing(dl_probe *p)
{
    const diloco_status status = dl_backend_sync(p->backend);
    return status ? dl_fail_context(status, "kernel %s", p->kernel) : DILOCO_OK;
}

static diloco_status product(dl_probe *p, bool a_transposed, bool b_transposed, bool adds,
                             dl_cuda_types types)
{
    const bool has_bias = !adds && types == DL_CUDA_F32;
    float *c = adds ? dl_probe_change(p, M * COLUMNS, ROUNDINGS)
                    : dl_probe_output(p, M * COLUMNS, ROUNDINGS);
    float *a = dl_probe_input(p, M * K), *b = dl_probe_input(p, K * COLUMNS);
    const float *bias = dl_probe_input(p, COLUMNS);
    dl_probe_values(p, a), dl_probe_values(p, b);
    if (types == DL_CUDA_BF16) dl_probe_values(p, c);
    const dl_cuda_multiplication x = {.c = DL_PROBE_AT(p, c),
                                      .a = DL_PROBE_AT(p, a),
                                      .b = DL_PROBE_AT(p, b),
                                      .bias = has_bias ? DL_PROBE_AT(p, bias) : NULL,
                                      .m = M,
                                      .n = COLUMNS,
                                      .k = K,
                                      .a_stride = a_transposed ? M : K,
                                      .b_stride = b_transposed ? K : COLUMNS,
                                      .a_transposed = a_transposed,
                                      .b_transposed = b_transposed,
                                      .add = adds,
                                      .types = types};
    dl_probe_copy_in(p);
    if (!dl_backend_cuda_product(p->backend, &x)) return missing(p);
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < COLUMNS; j++) {
            double sum = adds ? (double)c[i * COLUMNS + j] : has_bias ? (double)bias[j] : 0;
            for (size_t l = 0; l < K; l++)
                sum += (double)a[a_transposed ? l * M + i : i * K + l] *
                       (double)b[b_transposed ? j * K + l : l * COLUMNS + j];
            c[i * COLUMNS + j] = (float)sum;
        }
    return dl_probe_compare(p);
}

diloco_status dl_probe_library(dl_probe *p)
{
    static const dl_cuda_types types[] = {DL_CUDA_F32, DL_CUDA_BF16, DL_CUDA_BF16_TO_F32};
    for (int way = 0; way < 3 * 8; way++) {
        dl_probe_begin(p);
        p->bf16 = types[way / 8] != DL_CUDA_F32;
        DL_TRY(product(p, way & 1, way & 2, way & 4, types[way / 8]));
    }
    return DILOCO_OK;
}
