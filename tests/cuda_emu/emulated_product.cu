/* emulated_product.cu - the product of the library emulated_blas.c. It adds in float64, so that its
 * bits are not those of the kernel dl_product. */
#include "emulated_product.h"
#include "nn/cuda/element.cuh"
#include "tensor/cuda/cuda_kernel.h"

static double at(const void *array, uint64_t i, int narrow)
{
    return narrow ? (double)get(((const bf16 *)array)[i]) : (double)((const float *)array)[i];
}

DL_GPU_KERNEL(emulated_product, emulated_product_arguments)
{
    const uint64_t i = DL_GPU_INDEX % a.m, j = DL_GPU_INDEX / a.m;
    if (j >= a.n) return;
    double sum = 0;
    for (uint64_t l = 0; l < a.k; l++)
        sum += at(a.x, i * a.x_row + l * a.x_column, a.narrow_factors) *
               at(a.y, l * a.y_row + j * a.y_column, a.narrow_factors);
    const uint64_t place = i + j * a.d_column;
    const float before = a.beta != 0.0f ? a.beta * (float)at(a.d, place, a.narrow_result) : 0;
    const float d = a.alpha * (float)sum + before + (a.bias ? a.bias[i] : 0);
    if (a.narrow_result)
        put((bf16 *)a.d + place, d);
    else
        put((float *)a.d + place, d);
}
