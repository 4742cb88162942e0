/* backend_cuda.h - the backend of a GPU, and how operations start kernels on it. */
#ifndef DL_TENSOR_BACKEND_CUDA_H
#define DL_TENSOR_BACKEND_CUDA_H

#include "base/file.h"
#include "tensor/backend.h"
#include "tensor/cuda/cuda_launches.h"

enum { DL_CUDA_MAX_IMAGES = 16 };

/* A driver and the device code for it. */
typedef struct dl_cuda_source {
    const char *name;      /* of the backend: "cuda"; the tests' is "emulated" */
    const char *library;   /* "libcuda.so.1" */
    const dl_span *images; /* [n_images], each what cuModuleLoadData takes */
    size_t n_images;
    const char *const *products; /* libraries like cuBLASLt, the last is NULL; NULL: none */
    const char *collectives;     /* a library like NCCL, a literal; NULL: groups are refused */
    int oldest;                  /* compute capability that the images need; 0: any */
    bool unrecorded;             /* each kernel is started by a call of its own, for comparisons */
    bool poisons;                /* for tests: dl_backend_forget fills memory with NaN patterns */
} dl_cuda_source;

/* dl_backend_cuda opens card `index` (from 0). source->name and source->collectives are borrowed
 * until destroy, all else of *source for the call alone. Returns
 * DILOCO_EREFUSED if the driver, the card or device code for it is missing, DILOCO_EIO if the
 * driver fails, DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_backend_cuda(dl_backend **out, const dl_cuda_source *source,
                                            int index);

/* The card of an open backend. A compute capability is 10 major + minor. */
typedef struct dl_cuda_card {
    char name[128];
    unsigned char uuid[16];
    uint64_t memory;   /* bytes */
    uint64_t products; /* version of the library of products; 0: none */
    int driver;        /* newest CUDA version that the driver supports: 1000 major + 10 minor */
    int capability;
} dl_cuda_card;
DL_MUST_CHECK diloco_status dl_backend_cuda_card(dl_cuda_card *out, dl_backend *backend);

/* dl_backend_cuda_memory_left reads the bytes of the card's memory that no process holds. It counts
 * what the driver and the libraries hold besides the arrays of the caller. Returns DILOCO_EIO if
 * the card has failed. */
DL_MUST_CHECK diloco_status dl_backend_cuda_memory_left(uint64_t *out, dl_backend *backend);

/* A kernel by name over n threads, in blocks of DL_GPU_THREADS. Its argument is one struct. */
typedef struct dl_cuda_launch {
    const char *kernel; /* a literal: the backend keeps the pointer */
    size_t n;           /* threads; 0: nothing is started */
    const void *arguments;
    size_t size;
} dl_cuda_launch;

/* dl_backend_cuda_launch queues a kernel, and copies its arguments. Kernels start together, when
 * other work is queued or awaited, or by dl_backend_submit. A failure is kept, as that of a copy.
 */
void dl_backend_cuda_launch(dl_backend *backend, const dl_cuda_launch *launch);

/* dl_backend_cuda_product queues a product by the library of products. Returns false, and queues
 * nothing, if there is no library, if it has no algorithm for this product, or after a failure,
 * which dl_backend_sync reports. */
bool dl_backend_cuda_product(dl_backend *backend, const dl_cuda_multiplication *product);

/* Launches so far, without those of the second stream and those that are held back. */
dl_cuda_counts dl_backend_cuda_counts(const dl_backend *backend);

/* For groups of cards (tensor/group.h). dl_backend_cuda_stream starts the kernels that are held
 * back and returns the driver's stream, to which the caller may add work, or NULL after a failure.
 */
void *dl_backend_cuda_stream(dl_backend *backend);

/* A second stream, whose work runs beside that of the first. dl_backend_cuda_mark starts the
 * kernels that are held back, and notes place `mark` after all work so far, mark < DL_CUDA_MARKS. A
 * mark may be noted again after dl_backend_cuda_join. dl_backend_cuda_beside lets the second stream
 * wait for a mark, and returns it, for more work of the caller, or NULL after a failure.
 * dl_backend_cuda_launch_beside starts a kernel on it at once. dl_backend_cuda_join lets the first
 * stream wait for the second one's work so far. None of them waits itself. */
enum { DL_CUDA_MARKS = 32 };
void dl_backend_cuda_mark(dl_backend *backend, size_t mark);
void *dl_backend_cuda_beside(dl_backend *backend, size_t mark);
void dl_backend_cuda_launch_beside(dl_backend *backend, const dl_cuda_launch *launch);
void dl_backend_cuda_join(dl_backend *backend);

int dl_backend_cuda_index(const dl_backend *backend); /* the card's number */
const char *dl_backend_cuda_collectives(const dl_backend *backend);

/* Returns the bytes that copies to the card take before one of them waits for the card. */
size_t dl_backend_cuda_room(const dl_backend *backend);

/* dl_backend_cuda_poll starts the kernels that are held back, and returns whether the card still
 * works on either stream, without a wait. After DL_CUDA_FAILED dl_backend_sync has the reason. */
typedef enum dl_cuda_state { DL_CUDA_IDLE, DL_CUDA_WORKS, DL_CUDA_FAILED } dl_cuda_state;
dl_cuda_state dl_backend_cuda_poll(dl_backend *backend);

#endif
