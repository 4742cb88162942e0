/* driver_header.cc - tensor/cuda/cuda_api.h says what the driver's cuda.h says. */
#include "same_abi.h"

#define _Noreturn [[noreturn]] /* of C */
#include "tensor/cuda/cuda_api.h"

#include <cuda.h>

DL_CUDA_FUNCTIONS(SAME_FUNCTION)

SAME_VALUE(DL_CUDA_SUCCESS, CUDA_SUCCESS)
SAME_VALUE(DL_CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)
SAME_VALUE(DL_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME_VALUE(DL_CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)
SAME_VALUE(DL_CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
SAME_VALUE(DL_CUDA_NOT_READY, CUDA_ERROR_NOT_READY)
SAME_VALUE(DL_CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS)
SAME_VALUE(DL_CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED)
SAME_VALUE(DL_CUDA_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
SAME_VALUE(DL_CUDA_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
SAME_VALUE(DL_CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME_VALUE(DL_CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME_VALUE(DL_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
SAME_VALUE(DL_CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)
SAME_VALUE(DL_CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)

/* Ours are casts of one digit to a pointer, which are no constant expressions. */
template <size_t N> constexpr int last_digit(const char (&text)[N])
{
    int digit = -1;
    for (char letter : text)
        if (letter >= '0' && letter <= '9') digit = letter - '0';
    return digit;
}
#define TEXT_OF(x)       EXPANDED_TEXT(x)
#define EXPANDED_TEXT(x) #x
#define SAME_POINTER(ours, theirs)                                                                 \
    static_assert(last_digit(TEXT_OF(ours)) == theirs, "a pointer has another value");
SAME_POINTER(DL_CUDA_EXTRA_END, CU_LAUNCH_PARAM_END_AS_INT)
SAME_POINTER(DL_CUDA_EXTRA_POINTER, CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
SAME_POINTER(DL_CUDA_EXTRA_SIZE, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)

#define NODE(ours, theirs) SAME_MEMBER(dl_cuda_kernel_node, ours, CUDA_KERNEL_NODE_PARAMS, theirs)
static_assert(sizeof(dl_cuda_kernel_node) == sizeof(CUDA_KERNEL_NODE_PARAMS), "another size");
NODE(function, func)
NODE(grid_x, gridDimX)
NODE(grid_y, gridDimY)
NODE(grid_z, gridDimZ)
NODE(block_x, blockDimX)
NODE(block_y, blockDimY)
NODE(block_z, blockDimZ)
NODE(shared_bytes, sharedMemBytes)
NODE(parameters, kernelParams)
NODE(extra, extra)
NODE(kernel, kern)
NODE(context, ctx)
