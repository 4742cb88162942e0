/* inner_cuda.c - starts the kernels of inner_kernels.cu. */
#include "nn/cuda/inner_columns.h"

#include "nn/cuda/columns.h"
#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/backend_cuda.h"

void dl_cuda_hyper(dl_backend *backend, dl_hyper *out, const dl_verdict *verdict,
                   const dl_hyper_options *options)
{
    const dl_cuda_hyper_arguments a = {out, verdict, *options};
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_hyper_of_step", 1, &a, sizeof a});
}

/* AdamW and its quasi-hyperbolic form have the same arguments: vectors[0] is m, vectors[1] is v. */
static void start_with_moments(const dl_inner_part *part, const char *kernel)
{
    const dl_cuda_adamw_arguments a = {.p = part->p,
                                       .m = part->vectors[0],
                                       .v = part->vectors[1],
                                       .g = part->g,
                                       .n = part->n,
                                       .hyper = part->hyper,
                                       .verdict = part->verdict,
                                       .decays = part->decays};
    dl_backend_cuda_launch(part->backend, &(dl_cuda_launch){kernel, a.n, &a, sizeof a});
}

void dl_cuda_adamw(const dl_inner_part *part)
{
    start_with_moments(part, "dl_adamw");
}

void dl_cuda_qhadamw(const dl_inner_part *part)
{
    start_with_moments(part, "dl_qhadamw");
}

void dl_cuda_sgd(const dl_inner_part *part)
{
    const dl_cuda_sgd_arguments a = {.p = part->p,
                                     .momentum = part->vectors[0],
                                     .g = part->g,
                                     .n = part->n,
                                     .hyper = part->hyper,
                                     .verdict = part->verdict,
                                     .decays = part->decays};
    dl_backend_cuda_launch(part->backend, &(dl_cuda_launch){"dl_sgd", a.n, &a, sizeof a});
}

void dl_cuda_rmsprop(const dl_inner_part *part)
{
    const dl_cuda_rmsprop_arguments a = {.p = part->p,
                                         .squares = part->vectors[0],
                                         .momentum = part->vectors[1],
                                         .mean = part->vectors[2],
                                         .g = part->g,
                                         .n = part->n,
                                         .hyper = part->hyper,
                                         .verdict = part->verdict,
                                         .decays = part->decays};
    dl_backend_cuda_launch(part->backend, &(dl_cuda_launch){"dl_rmsprop", a.n, &a, sizeof a});
}
