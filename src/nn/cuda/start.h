/* start.h - how an operation's function for a GPU starts a kernel. A start queues and returns. A
 * failure is kept by the backend, and the next sync reports it. */
#ifndef DL_NN_CUDA_START_H
#define DL_NN_CUDA_START_H

#include "nn/cuda/kernel_arguments.h"
#include "nn/op.h"
#include "tensor/cuda/backend_cuda.h"
#include "tensor/cuda/cuda_kernel.h"
#include "tensor/manifest.h"

/* n threads of `kernel`, with the struct `arguments`. */
#define DL_CUDA_START(pass, kernel, n, arguments)                                                  \
    dl_backend_cuda_launch((pass)->graph->backend,                                                 \
                           &(dl_cuda_launch){kernel, n, &(arguments), sizeof(arguments)})

/* Returns true if values of the pass's graph have two bytes. */
static inline bool dl_cuda_is_bf16(const dl_pass *p)
{
    return p->graph->target.element == DILOCO_BF16;
}

/* The same for a kernel of each element type (element.cuh); `kernel` is that for f32. */
#define DL_CUDA_START_ON_VALUES(pass, kernel, n, arguments)                                        \
    DL_CUDA_START(pass, dl_cuda_is_bf16(pass) ? kernel "_bf16" : kernel, n, arguments)

/* Returns element n of an array of values. */
static inline float *dl_cuda_value_at(const dl_pass *p, float *values, size_t n)
{
    return (float *)(void *)((unsigned char *)values + n * dl_dtype_size(p->graph->target.element));
}

/* Kernels with a warp for each item: 32 threads. */
enum { DL_CUDA_WARP = 32 };

/* Returns the threads of the kernel dl_product. */
static inline size_t dl_cuda_product_threads(const dl_cuda_product_arguments *a)
{
    const size_t down = (a->m + DL_CUDA_SIDE - 1) / DL_CUDA_SIDE;
    return down * ((a->n + DL_CUDA_SIDE - 1) / DL_CUDA_SIDE) * DL_GPU_THREADS;
}

/* C[m][n] = A B + bias, or added to C. A(i, l) is a[i * a_row + l * a_column], B(l, j) is
 * b[l * b_row + j * b_column]. bias f32[n] may be NULL. The arrays have the elements of `types`. */
void dl_cuda_product_on(dl_backend *backend, const dl_cuda_product_arguments *a,
                        dl_cuda_types types);

/* A product whose C are values, or f32: a gradient of weights, or logits. A and B are values or
 * weights of dl_cuda_weights. */
static inline void dl_cuda_product(const dl_pass *p, const dl_cuda_product_arguments *a)
{
    dl_cuda_product_on(p->graph->backend, a, dl_cuda_is_bf16(p) ? DL_CUDA_BF16 : DL_CUDA_F32);
}
static inline void dl_cuda_product_f32(const dl_pass *p, const dl_cuda_product_arguments *a)
{
    dl_cuda_product_on(p->graph->backend, a,
                       dl_cuda_is_bf16(p) ? DL_CUDA_BF16_TO_F32 : DL_CUDA_F32);
}

/* Returns the node's weights as a product reads them: with values in bf16 their rounded copy. */
static inline float *dl_cuda_weights(const dl_pass *p)
{
    uint16_t *rounded = p->graph->rounded;
    if (!rounded) return dl_weight_data(p);
    return (float *)(void *)(rounded + p->graph->weights[p->node->weight].offset);
}

/* Returns the threads of an attention kernel whose blocks own `rows` rows (DL_CUDA_FORWARD_ROWS or
 * DL_CUDA_BACKWARD_ROWS) of one of `heads` heads. */
static inline size_t dl_cuda_attention_threads(const dl_cuda_attention_arguments *a, size_t heads,
                                               size_t rows)
{
    const size_t pieces = (a->length + rows - 1) / rows;
    const size_t slices = (a->dim / 2 + DL_CUDA_PAIRS - 1) / DL_CUDA_PAIRS;
    return a->rows * heads * pieces * slices * DL_GPU_THREADS;
}

/* Chunks of positions: a thread adds up each, and another pass adds the chunks. */
static inline size_t dl_cuda_chunks(size_t rows)
{
    return (rows + DL_CUDA_CHUNK - 1) / DL_CUDA_CHUNK;
}

#endif
