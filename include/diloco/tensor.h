/* tensor.h - the tensors of a run: a name, a type, a shape and a role. */
#ifndef DILOCO_TENSOR_H
#define DILOCO_TENSOR_H

#include <diloco/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are part of format version 1. */
typedef enum diloco_dtype {
    DILOCO_F32 = 0,
    DILOCO_I64 = 1,
    DILOCO_BOOL = 2, /* one byte, 0 or 1 */
    DILOCO_BF16 = 3, /* the shared state is f32; the tensor holds it rounded (docs/c.md) */
    DILOCO_F16 = 4
} diloco_dtype;

typedef enum diloco_role {
    DILOCO_PARAMETER = 0, /* trains: moved by the outer optimizer */
    DILOCO_FROZEN = 1,    /* weighted mean, no lr, no momentum */
    DILOCO_BUFFER = 2     /* likewise; integers rounded half up, booleans by majority */
} diloco_role;

enum { DILOCO_MAX_DIMS = 4, DILOCO_NAME_MAX = 127 };

typedef struct diloco_tensor {
    const char *name; /* unique in its run, printable ASCII, at most DILOCO_NAME_MAX; copied */
    void *data;       /* contiguous, row-major; borrowed until the run is closed */
    diloco_dtype dtype;
    diloco_role role;
    int n_dims;
    size_t shape[DILOCO_MAX_DIMS];
    int fragment; /* 0 … fragments-1; 0 in vanilla DiLoCo */
} diloco_tensor;

/* diloco_device copies tensors, gradients and private pieces that are not in host memory. copy_in
 * and copy_out may return before the copy is done; synchronise waits for all copies queued on
 * `stream`. The library calls these functions on the thread that called it, for what the call
 * needs, never between calls. The caller ensures that its own work on this memory is done or queued
 * on the same stream. An error is returned by the call in progress and by every later one. */
typedef struct diloco_device {
    void *user, *stream; /* handed to each */
    diloco_status (*copy_in)(void *user, void *stream, void *host, const void *device, size_t len);
    diloco_status (*copy_out)(void *user, void *stream, void *device, const void *host, size_t len);
    diloco_status (*synchronise)(void *user, void *stream);
    /* Host memory that the copies like (pinned); both or none. Private pieces are copied to and
     * from other host memory. */
    void *(*alloc)(void *user, size_t len);
    void (*release)(void *user, void *memory);
    /* The device's name, such as the card's with the version of its library of products; NULL:
     * unknown. Borrowed until the run is closed. A resume on a device of another name is reported,
     * since training may not repeat its bits. */
    const char *name;
} diloco_device;

#ifdef __cplusplus
}
#endif
#endif
