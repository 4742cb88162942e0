/* tensor.h - what a run moves: named tensors with a type, a shape and a role. */
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
    DILOCO_BOOL = 2 /* one byte, 0 or 1 */
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

#ifdef __cplusplus
}
#endif
#endif
