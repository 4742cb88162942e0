/* product_cuda.c - a matrix product of an operation: by the library of products, or else by a
 * kernel of ours. */
#include "nn/cuda/start.h"

static const char *const kernels[] = {[DL_CUDA_F32] = "dl_product",
                                      [DL_CUDA_BF16] = "dl_product_bf16",
                                      [DL_CUDA_BF16_TO_F32] = "dl_product_bf16_to_f32"};

/* Returns false if the backend has no library for it, or a factor has no side whose elements are
 * adjacent. The stride of a single row may be less than its length, which the library refuses. A
 * bias is f32, which the library does not add to bf16. */
static bool by_library(dl_backend *backend, const dl_cuda_product_arguments *a, dl_cuda_types types)
{
    if (types != DL_CUDA_F32 && a->bias) return false;
    const bool a_plain = a->a_column == 1, b_plain = a->b_column == 1;
    if ((!a_plain && a->a_row != 1) || (!b_plain && a->b_row != 1)) return false;
    return dl_backend_cuda_product(
        backend,
        &(dl_cuda_multiplication){
            .c = a->c,
            .a = a->a,
            .b = a->b,
            .bias = a->bias,
            .m = a->m,
            .n = a->n,
            .k = a->k,
            .a_stride = dl_size_max(a_plain ? a->a_row : a->a_column, a_plain ? a->k : a->m),
            .b_stride = dl_size_max(b_plain ? a->b_row : a->b_column, b_plain ? a->n : a->k),
            .a_transposed = !a_plain,
            .b_transposed = !b_plain,
            .add = a->add != 0,
            .types = types});
}

void dl_cuda_product_on(dl_backend *backend, const dl_cuda_product_arguments *a,
                        dl_cuda_types types)
{
    if (by_library(backend, a, types)) return;
    dl_backend_cuda_launch(
        backend, &(dl_cuda_launch){kernels[types], dl_cuda_product_threads(a), a, sizeof *a});
}
