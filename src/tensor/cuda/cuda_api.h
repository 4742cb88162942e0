/* cuda_api.h - the functions of the GPU driver that the backend calls, found by dlopen.
 *
 * Nothing links to CUDA, and no header of it is needed: one program runs on machines with and
 * without a driver. The signatures are those of the driver API (docs.nvidia.com, CUDA Driver API);
 * handles are void *, results and devices are int, addresses on the device are uint64_t.
 * tests/cuda_emu has a library with the same symbols, which is the emulated device. */
#ifndef DL_TENSOR_CUDA_API_H
#define DL_TENSOR_CUDA_API_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* A kernel of a graph: the driver's CUDA_KERNEL_NODE_PARAMS_v2. */
typedef struct dl_cuda_kernel_node {
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameters, **extra; /* as of cuLaunchKernel; copied by the call */
    void *kernel, *context;     /* not read where function is set */
} dl_cuda_kernel_node;

/* Our name, the driver's symbol, the arguments. */
// clang-format off
#define DL_CUDA_FUNCTIONS(X) \
    X(init, cuInit, (unsigned flags)) \
    X(driver_version, cuDriverGetVersion, (int *version)) \
    X(device_count, cuDeviceGetCount, (int *n)) \
    X(device_get, cuDeviceGet, (int *device, int index)) \
    X(device_name, cuDeviceGetName, (char *name, int len, int device)) \
    X(device_uuid, cuDeviceGetUuid_v2, (unsigned char uuid[16], int device)) \
    X(device_memory, cuDeviceTotalMem_v2, (size_t *bytes, int device)) \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device)) \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **context, int device)) \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device)) \
    X(context_set, cuCtxSetCurrent, (void *context)) \
    X(stream_create, cuStreamCreate, (void **stream, unsigned flags)) \
    X(stream_destroy, cuStreamDestroy_v2, (void *stream)) \
    X(stream_wait, cuStreamSynchronize, (void *stream)) \
    X(stream_query, cuStreamQuery, (void *stream)) \
    X(stream_await, cuStreamWaitEvent, (void *stream, void *event, unsigned flags)) \
    X(event_create, cuEventCreate, (void **event, unsigned flags)) \
    X(event_record, cuEventRecord, (void *event, void *stream)) \
    X(event_destroy, cuEventDestroy_v2, (void *event)) \
    X(memory_left, cuMemGetInfo_v2, (size_t *left, size_t *all)) \
    X(alloc, cuMemAlloc_v2, (uint64_t *at, size_t n)) \
    X(release, cuMemFree_v2, (uint64_t at)) \
    X(host_alloc, cuMemHostAlloc, (void **at, size_t n, unsigned flags)) \
    X(host_release, cuMemFreeHost, (void *at)) \
    X(copy_in, cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t n, void *stream)) \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t n, void *stream)) \
    X(copy_within, cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, void *stream)) \
    X(fill, cuMemsetD8Async, (uint64_t at, unsigned char value, size_t n, void *stream)) \
    X(module_load, cuModuleLoadData, (void **module, const void *image)) \
    X(module_unload, cuModuleUnload, (void *module)) \
    X(function, cuModuleGetFunction, (void **function, void *module, const char *name)) \
    X(launch, cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
                               unsigned block_x, unsigned block_y, unsigned block_z, \
                               unsigned shared_bytes, void *stream, void **parameters, void **extra)) \
    X(graph_create, cuGraphCreate, (void **graph, unsigned flags)) \
    X(graph_destroy, cuGraphDestroy, (void *graph)) \
    X(graph_add_kernel, cuGraphAddKernelNode_v2, (void **node, void *graph, \
                        void *const *dependencies, size_t n, const dl_cuda_kernel_node *kernel)) \
    X(graph_add_child, cuGraphAddChildGraphNode, (void **node, void *graph, \
                       void *const *dependencies, size_t n, void *child)) \
    X(capture_begin, cuStreamBeginCapture_v2, (void *stream, int mode)) \
    X(capture_end, cuStreamEndCapture, (void *stream, void **graph)) \
    X(graph_instantiate, cuGraphInstantiateWithFlags, (void **executable, void *graph, \
                                                       unsigned long long flags)) \
    X(graph_set_kernel, cuGraphExecKernelNodeSetParams_v2, (void *executable, void *node, \
                                                            const dl_cuda_kernel_node *kernel)) \
    X(graph_launch, cuGraphLaunch, (void *executable, void *stream)) \
    X(graph_exec_destroy, cuGraphExecDestroy, (void *executable)) \
    X(error_text, cuGetErrorString, (int code, const char **text))
// clang-format on

/* Results and constants of the driver API that we name. */
enum {
    DL_CUDA_SUCCESS = 0,
    DL_CUDA_INVALID_VALUE = 1,
    DL_CUDA_OUT_OF_MEMORY = 2,
    DL_CUDA_INVALID_CONTEXT = 201,
    DL_CUDA_NOT_FOUND = 500,
    DL_CUDA_NOT_READY = 600, /* a stream that still works */
    DL_CUDA_ILLEGAL_ADDRESS = 700,
    DL_CUDA_LAUNCH_FAILED = 719,
    DL_CUDA_CAPTURE_UNSUPPORTED = 900, /* work that a graph cannot have */
    DL_CUDA_CAPTURE_INVALIDATED = 901, /* by such work before */
    DL_CUDA_CAPABILITY_MAJOR = 75,     /* attributes of a device */
    DL_CUDA_CAPABILITY_MINOR = 76,
    DL_CUDA_STREAM_NON_BLOCKING = 1, /* it does not wait for stream 0 */
    DL_CUDA_EVENT_DISABLE_TIMING = 2,
    DL_CUDA_CAPTURE_RELAXED = 2 /* other threads may call anything meanwhile */
};
#define DL_CUDA_EXTRA_END     ((void *)0)
#define DL_CUDA_EXTRA_POINTER ((void *)1) /* the next entry: the kernel's arguments as bytes */
#define DL_CUDA_EXTRA_SIZE    ((void *)2) /* the next entry: pointer to their size_t */

typedef struct dl_cuda {
    void *library; /* of dlopen */
#define DL_CUDA_MEMBER(name, symbol, arguments) int(*name) arguments;
    DL_CUDA_FUNCTIONS(DL_CUDA_MEMBER)
#undef DL_CUDA_MEMBER
} dl_cuda;

/* dl_cuda_load finds all functions in `library` ("libcuda.so.1" is the driver). Returns
 * DILOCO_EREFUSED with the missing library or symbol; then *out is zeroed. */
DL_MUST_CHECK diloco_status dl_cuda_load(dl_cuda *out, const char *library);
void dl_cuda_unload(dl_cuda *cuda); /* zeroed is fine */

#endif
