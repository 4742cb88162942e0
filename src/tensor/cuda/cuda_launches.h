/* cuda_launches.h - starts kernels in sequences.
 *
 * A training step starts the same few hundred kernels each time. The second time that a sequence of
 * kernels and sizes comes, it is recorded as a graph of the driver, and from then on one call
 * starts it. Arguments that differ from the last time, as a learning rate does, are set in the
 * graph before. The kernels and their order are those of single launches, and so are the bits. */
#ifndef DL_TENSOR_CUDA_LAUNCHES_H
#define DL_TENSOR_CUDA_LAUNCHES_H

#include "tensor/cuda/cuda_blas.h"
#include <stdbool.h>

typedef struct dl_cuda_launches dl_cuda_launches;

/* One kernel. The arguments are copied when it is added. */
typedef struct dl_cuda_call {
    void *function;   /* of the driver */
    const char *name; /* a literal, for errors */
    unsigned blocks;
    const void *arguments;
    size_t size; /* of the arguments, at most DL_CUDA_CALL_ARGUMENTS bytes */
} dl_cuda_call;
enum { DL_CUDA_CALL_ARGUMENTS = 192 };

/* dl_cuda_launches_create makes an empty sequence for one stream. All arguments are borrowed
 * until destroy. With `records` false each kernel is started by a call of its own. Returns NULL if
 * there is no memory.
 */
dl_cuda_launches *dl_cuda_launches_create(const dl_cuda *cuda, dl_cuda_blas *blas, void *stream,
                                          bool records);
void dl_cuda_launches_destroy(
    dl_cuda_launches *launches); /* NULL is fine; the sequence is dropped */

/* dl_cuda_launches_add appends a kernel to the sequence. Returns false if the sequence is full;
 * then the caller submits it first. */
bool dl_cuda_launches_add(dl_cuda_launches *launches, const dl_cuda_call *launch);

/* dl_cuda_launches_add_product appends a product of the library by its plan (cuda_blas.h). Other
 * arrays make another sequence. Returns false as dl_cuda_launches_add. */
bool dl_cuda_launches_add_product(dl_cuda_launches *launches, int plan,
                                  const dl_cuda_multiplication *product);

/* dl_cuda_launches_submit starts the sequence on the stream, and begins the next one. Returns the
 * driver's result, or DL_CUDA_BLAS_FAILED. If it is not 0, *what is the kernel or function that
 * failed. */
int dl_cuda_launches_submit(dl_cuda_launches *launches, const char **what);

/* Launches so far: of recorded graphs, and of single kernels or products. */
typedef struct dl_cuda_counts {
    uint64_t graphs, kernels;
} dl_cuda_counts;
dl_cuda_counts dl_cuda_launches_counts(const dl_cuda_launches *launches);

#endif
