/* emulated_product.h - the argument of the kernel emulated_product, and how tests look at the
 * library that starts it (emulated_blas.c). */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_PRODUCT_H
#define DL_TESTS_CUDA_EMU_EMULATED_PRODUCT_H

#include <stdint.h>

/* D(i, j) = alpha sum of X(i, l) Y(l, j) + beta D(i, j) + bias[i], for i < m, j < n, l < k. */
typedef struct emulated_product_arguments {
    void *d;
    const void *x, *y;
    const float *bias; /* NULL: none */
    uint64_t m, n, k;
    uint64_t x_row, x_column, y_row, y_column, d_column; /* elements from one to the next */
    float alpha, beta;
    int narrow_factors, narrow_result; /* bf16, else f32 */
} emulated_product_arguments;

#ifdef __cplusplus
extern "C" {
#endif
/* Products started by the library since the process began, and objects that are not destroyed. */
uint64_t emulated_blas_products(void);
uint64_t emulated_blas_objects(void);
/* The function whose call failed, or NULL. A second call returns NULL. */
const char *emulated_blas_failed(void);
#ifdef __cplusplus
}
#endif

#endif
