/* op_suite_kernels.cu - the test operations `source` and `sink` (op_suite.h) on the emulated
 * device. */
#include "tensor/cuda/cuda_kernel.h"

#include "op_suite_kernels.h"

DL_GPU_KERNEL(op_source_forward, op_source_arguments)
{
    if (DL_GPU_INDEX < a.n) a.y[DL_GPU_INDEX] = a.w[DL_GPU_INDEX];
}

DL_GPU_KERNEL(op_source_backward, op_source_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i >= a.all) return;
    const float before = a.add ? a.w[i] : 0;
    a.w[i] = before + (i < a.n ? a.y[i] : 0);
}

/* One thread adds, in the CPU's order. */
DL_GPU_KERNEL(op_sink_forward, op_sink_arguments)
{
    if (DL_GPU_INDEX > 0) return;
    for (uint64_t i = 0; i < a.n; i++)
        *a.loss += (double)sink_factor(i) * (double)a.y[i];
}

DL_GPU_KERNEL(op_sink_backward, op_sink_arguments)
{
    if (DL_GPU_INDEX < a.n) a.y[DL_GPU_INDEX] = sink_factor(DL_GPU_INDEX);
}
