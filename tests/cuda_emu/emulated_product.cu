/* emulated_product.cu - the product of the library emulated_blas.c. It adds in float64, so that its
 * bits are not those of the kernel dl_product. */
#include "emulated_product.h"
#include "tensor/cuda/cuda_kernel.h"

DL_GPU_KERNEL(emulated_product, emulated_product_arguments)
{
    const uint64_t i = DL_GPU_INDEX % a.m, j = DL_GPU_INDEX / a.m;
    if (j >= a.n) return;
    double sum = 0;
    for (uint64_t l = 0; l < a.k; l++)
        sum +=
            (double)a.x[i * a.x_row + l * a.x_column] * (double)a.y[l * a.y_row + j * a.y_column];
    float *d = a.d + i + j * a.d_column;
    const float before = a.beta != 0.0f ? a.beta * *d : 0;
    *d = a.alpha * (float)sum + before + (a.bias ? a.bias[i] : 0);
}
