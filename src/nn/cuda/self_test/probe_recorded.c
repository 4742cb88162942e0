/* probe_recorded.c - a sequence of kernels that comes again, which the backend starts as a graph
 * (tensor/cuda/cuda_launches.h). Two arrays are blended in turn, so that another order of the
 * kernels gives other values. */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "tensor/cuda/backend_cuda.h"

/* The graph is made the second time, gets another argument the third, and the same the fourth. */
enum { REPEATS = 4, KERNELS = 10, N = 300 };
static const double ROUNDINGS = 1e-5;

static diloco_status repeat(dl_probe *p, float factor)
{
    float *x = dl_probe_change(p, N, ROUNDINGS), *y = dl_probe_change(p, N, ROUNDINGS);
    for (int k = 0; k < KERNELS; k++) {
        const dl_cuda_blend_arguments a = {.y = DL_PROBE_AT(p, k % 2 ? x : y),
                                           .x = DL_PROBE_AT(p, k % 2 ? y : x),
                                           .n = N,
                                           .a = k == 3 ? factor : 0.5f,
                                           .b = 0.75f};
        if (k == 0)
            dl_probe_run(p, N, &a, sizeof a);
        else
            dl_backend_cuda_launch(p->backend, &(dl_cuda_launch){p->kernel, N, &a, sizeof a});
    }
    for (int k = 0; k < KERNELS; k++) {
        float *to = k % 2 ? x : y;
        const float *from = k % 2 ? y : x;
        for (size_t i = 0; i < N; i++)
            to[i] = (k == 3 ? factor : 0.5f) * from[i] + 0.75f * to[i];
    }
    return dl_probe_compare(p);
}

diloco_status dl_probe_recorded(dl_probe *p)
{
    for (int i = 0; i < REPEATS; i++) {
        dl_probe_begin(p);
        DL_TRY(repeat(p, i < 2 ? 0.25f : -1.5f));
    }
    return DILOCO_OK;
}
