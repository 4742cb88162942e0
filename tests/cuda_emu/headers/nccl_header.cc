/* nccl_header.cc - tensor/cuda/nccl_api.h says what nccl.h says. */
#include "same_abi.h"

#include "tensor/cuda/nccl_api.h"

#include <nccl.h>

DL_NCCL_FUNCTIONS(SAME_FUNCTION)
SAME_SIGNATURE(ncclGetErrorString, const char *, (int error))

SAME_VALUE(DL_NCCL_SUCCESS, ncclSuccess)
SAME_VALUE(DL_NCCL_DRIVER_FAILED, ncclUnhandledCudaError)
SAME_VALUE(DL_NCCL_INVALID_ARGUMENT, ncclInvalidArgument)
SAME_VALUE(DL_NCCL_INVALID_USAGE, ncclInvalidUsage)
SAME_VALUE(DL_NCCL_IN_PROGRESS, ncclInProgress)
SAME_VALUE(DL_NCCL_FLOAT32, ncclFloat32)
