/* gradient_cuda.c - starts the kernels of gradient_kernels.cu (declared in columns.h). A launch
 * copies its arguments, so they may be on the stack. */
#include "nn/cuda/columns.h"

#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/movement_columns.h"
#include "tensor/cuda/backend_cuda.h"
#include "tensor/cuda/cuda_kernel.h"
#include "tensor/kernels.h"

_Static_assert((int)DL_CUDA_BLOCK == (int)DL_BLOCK, "a kernel's block is that of PROTOCOL B3");

/* Two kernels: the sums of blocks in parallel, then one block of threads for the verdict. The
 * stream's order makes the second one see all of the first. */
void dl_cuda_judge(const dl_gradient *g)
{
    const dl_cuda_judge_arguments judge = {.values = g->values,
                                           .n = g->n,
                                           .squares = g->squares,
                                           .n_squares = dl_gradient_blocks(g->n),
                                           .verdict = g->verdict,
                                           .clip = g->clip,
                                           .margin = g->margin};
    dl_cuda_squares(g->backend, g->squares, g->values, g->n);
    dl_backend_cuda_launch(g->backend,
                           &(dl_cuda_launch){"dl_judge", DL_GPU_THREADS, &judge, sizeof judge});
}

void dl_cuda_scale(const dl_gradient *g)
{
    const dl_cuda_scale_arguments a = {g->values, g->n, g->verdict};
    dl_backend_cuda_launch(g->backend, &(dl_cuda_launch){"dl_scale", g->n, &a, sizeof a});
}

void dl_cuda_pull(const dl_gradient *g, const dl_pull *p)
{
    const dl_cuda_pull_arguments a = {.values = g->values + p->begin,
                                      .parameters = p->parameters + p->begin,
                                      .anchor = p->anchor + p->begin,
                                      .n = p->end - p->begin,
                                      .mu = p->mu};
    dl_backend_cuda_launch(g->backend, &(dl_cuda_launch){"dl_pull", a.n, &a, sizeof a});
}
