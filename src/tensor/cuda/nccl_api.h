/* nccl_api.h - the functions of NCCL that group_cuda.c calls (docs.nvidia.com, NCCL). No header
 * of it is needed: communicators and streams are void *, types and results are int. tests/cuda_emu
 * has a library with the same symbols. */
#ifndef DL_TENSOR_CUDA_NCCL_API_H
#define DL_TENSOR_CUDA_NCCL_API_H

#include <stddef.h>

/* Our name, the library's symbol, the arguments. */
// clang-format off
#define DL_NCCL_FUNCTIONS(X) \
    X(open_all, ncclCommInitAll, (void **communicators, int n, const int *cards)) \
    X(close, ncclCommDestroy, (void *communicator)) \
    X(abort, ncclCommAbort, (void *communicator)) \
    X(failure, ncclCommGetAsyncError, (void *communicator, int *result)) \
    X(begin, ncclGroupStart, (void)) \
    X(end, ncclGroupEnd, (void)) \
    X(broadcast, ncclBroadcast, (const void *from, void *to, size_t count, int type, int root, \
                                 void *communicator, void *stream)) \
    X(send, ncclSend, (const void *from, size_t count, int type, int rank, void *communicator, \
                       void *stream)) \
    X(receive, ncclRecv, (void *to, size_t count, int type, int rank, void *communicator, \
                          void *stream))
// clang-format on

/* Results and constants of nccl.h. */
enum {
    DL_NCCL_SUCCESS = 0,
    DL_NCCL_DRIVER_FAILED = 1,
    DL_NCCL_INVALID_ARGUMENT = 4,
    DL_NCCL_INVALID_USAGE = 5, /* two ranks on one card */
    DL_NCCL_IN_PROGRESS = 7,
    DL_NCCL_FLOAT32 = 7 /* a type */
};

typedef struct dl_nccl {
    void *library;                  /* of dlopen */
    const char *(*text)(int error); /* ncclGetErrorString */
#define DL_NCCL_MEMBER(name, symbol, arguments) int(*name) arguments;
    DL_NCCL_FUNCTIONS(DL_NCCL_MEMBER)
#undef DL_NCCL_MEMBER
} dl_nccl;

#endif
