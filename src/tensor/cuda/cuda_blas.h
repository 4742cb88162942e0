/* cuda_blas.h - matrix products by cuBLASLt, found by dlopen.
 *
 * Nothing links to it. Where the library is missing, or has no algorithm for a product, the caller
 * uses a kernel of its own. The algorithm of a shape is chosen once. It adds split sums in a fixed
 * order, so a product gives the same bits each time. */
#ifndef DL_TENSOR_CUDA_BLAS_H
#define DL_TENSOR_CUDA_BLAS_H

#include "tensor/cuda/cuda_api.h"
#include <stdbool.h>

/* Element types of A and B, and of C. */
typedef enum dl_cuda_types { DL_CUDA_F32, DL_CUDA_BF16, DL_CUDA_BF16_TO_F32 } dl_cuda_types;

/* C[m][n] = A B + bias, or added to C; row after row. The pointers are to float, whatever `types`,
 * a dl_cuda_types, says of the elements. Sums are f32. A is [m][k], or [k][m] if it is
 * transposed, and its rows are a_stride elements apart; B is [k][n] or [n][k]. The flags are 0
 * or 1. A product of bf16 has no bias. The struct has no padding, so equal products have equal
 * bytes. */
typedef struct dl_cuda_multiplication {
    float *c;
    const float *a, *b, *bias; /* bias f32[n]; NULL: none */
    uint64_t m, n, k, a_stride, b_stride;
    uint32_t a_transposed, b_transposed, add, types;
} dl_cuda_multiplication;

typedef struct dl_cuda_blas dl_cuda_blas;

/* dl_cuda_blas_open loads the first of `libraries` that there is; the array ends with NULL. `cuda`
 * is borrowed until close, and its context is current. Returns NULL if no library can be used. */
dl_cuda_blas *dl_cuda_blas_open(const dl_cuda *cuda, const char *const *libraries);
void dl_cuda_blas_close(dl_cuda_blas *blas); /* NULL is fine */

/* Returns the library's version, or 0 if blas is NULL. */
uint64_t dl_cuda_blas_version(const dl_cuda_blas *blas);

/* dl_cuda_blas_plan chooses the algorithm for a product's shape and the alignment of its arrays.
 * Returns its number, DL_CUDA_BLAS_NONE if the library has no algorithm, or DL_CUDA_BLAS_FAILED.
 * After a failure our kernel would give other bits than the library in other runs. */
enum { DL_CUDA_BLAS_NONE = -1, DL_CUDA_BLAS_FAILED = -2 };
int dl_cuda_blas_plan(dl_cuda_blas *blas, const dl_cuda_multiplication *product);

/* The function of the library that returned an error last, and its cublasStatus_t. */
typedef struct dl_cuda_blas_failure {
    const char *function;
    int status;
} dl_cuda_blas_failure;
dl_cuda_blas_failure dl_cuda_blas_failed(const dl_cuda_blas *blas);

/* dl_cuda_blas_start queues a product of plan `plan`. Returns 0 or DL_CUDA_BLAS_FAILED. */
int dl_cuda_blas_start(dl_cuda_blas *blas, int plan, const dl_cuda_multiplication *product,
                       void *stream);

/* dl_cuda_blas_capture makes a graph of the kernels of a product. The caller
 * destroys *graph. Returns 0, a result of the driver, or DL_CUDA_BLAS_FAILED. */
int dl_cuda_blas_capture(void **graph, dl_cuda_blas *blas, int plan,
                         const dl_cuda_multiplication *product);

#endif
