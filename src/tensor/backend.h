/* backend.h - the memory of tensors, and the device that computes on them.
 *
 * A backend owns memory and moves bytes. Its computations are in the tables of the folders above
 * (nn's rows of operations), which have a column for each kind of device. Callers keep three rules,
 * and the trap backend proves that they do:
 *   - backend memory is read and written by copies and operations only, never by the host;
 *   - an operation runs between `enter` and `leave`, which only nn calls (nn/enter.h);
 *   - results are read late: after dl_backend_sync, which copies out do by themselves.
 *
 * One thread at a time a backend; an operation may use a pool inside. */
#ifndef DL_TENSOR_BACKEND_H
#define DL_TENSOR_BACKEND_H

#include "base/size.h"
#include "base/status.h"
#include <stdbool.h>

/* Columns of the operation tables. A model whose operations lack a column is refused by name. */
typedef enum dl_device { DL_DEVICE_CPU, DL_DEVICE_CUDA, DL_N_DEVICES } dl_device;

typedef struct dl_backend dl_backend;

typedef struct dl_backend_ops {
    const char *name;    /* "cpu", "trap" */
    const char *card;    /* the name of the card; NULL: none */
    dl_device device;    /* whose operations work on this memory */
    bool in_host_memory; /* the host may read and write it between operations, after sync */

    /* Returns n > 0 zeroed bytes aligned to 64, or NULL if there is no memory. The caller returns
     * them with release, before destroy. */
    void *(*alloc)(dl_backend *self, size_t n);
    void (*release)(dl_backend *self, void *memory);

    /* Queued in order with the operations. copy_in returns when the host bytes may be reused,
     * copy_out when they are there. A failure is kept, and the next sync returns it. */
    void (*copy_in)(dl_backend *self, void *to, const void *host, size_t n);
    void (*copy_out)(dl_backend *self, void *host, const void *from, size_t n);
    void (*copy_within)(dl_backend *self, void *to, const void *from, size_t n);
    void (*zero)(dl_backend *self, void *to, size_t n);

    /* For dl_backend_forget, in the same order. NULL: the memory keeps its values. */
    void (*forget)(dl_backend *self, void *memory, size_t n);

    /* Around each operation; they nest. For nn/enter.h. */
    void (*enter)(dl_backend *self);
    void (*leave)(dl_backend *self);

    /* Starts what a device holds back (dl_backend_submit). NULL: it holds nothing back. */
    void (*submit)(dl_backend *self);

    /* Waits until all queued work is done. Returns DILOCO_EIO if the device has failed. A failed
     * backend does no further work, and each later sync fails as well. */
    diloco_status (*sync)(dl_backend *self);
    void (*destroy)(dl_backend *self);
} dl_backend_ops;

/* The head of every backend's own struct. */
struct dl_backend {
    const dl_backend_ops *ops;
};

/* Creates the backend of this name, "cpu" or "trap". The trap backend computes as the CPU does, but
 * its memory can be read and written only inside its operations and copies: any other access
 * raises SIGSEGV. It fills memory of dl_backend_forget. *out is owned by the caller. Returns
 * DILOCO_EINVAL for another name, or DILOCO_ENOMEM; then *out is NULL. */
DL_MUST_CHECK diloco_status dl_backend_create(dl_backend **out, const char *name);

/* The meaning of trainer.device: one device, or several cards that train one replica. */
enum { DL_MAX_CARDS = 16 };
typedef struct dl_device_list {
    dl_device kind;
    size_t n;                /* devices, at least 1 */
    int cards[DL_MAX_CARDS]; /* [n] numbers of different cards; 0 for the CPU */
} dl_device_list;

/* dl_device_of_name reads a name of trainer.device: "cpu", "cuda" (card 0), "cuda:N", or "cuda:N,M"
 * with several cards. It opens nothing (nn/device.h does). Returns DILOCO_EINVAL for another name,
 * and if a card is named twice. */
DL_MUST_CHECK diloco_status dl_device_of_name(dl_device_list *out, const char *name);

/* Frees a backend; NULL is allowed. The caller has released all its memory before, and the trap
 * backend aborts the process otherwise. */
void dl_backend_destroy(dl_backend *backend);
const char *dl_backend_name_at(size_t i); /* NULL after the last */

/* Returns the name of the device that computes: the card's with its library of products, or else
 * the backend's. Borrowed until destroy. */
static inline const char *dl_backend_card(const dl_backend *backend)
{
    return backend->ops->card ? backend->ops->card : backend->ops->name;
}

/* Allocates n zeroed bytes of the backend's memory; n may be 0, and *out is not NULL then either.
 * Returns DILOCO_ENOMEM with the size in the message. */
DL_MUST_CHECK diloco_status dl_backend_alloc(dl_backend *backend, void **out, size_t n);
void dl_backend_release(dl_backend *backend, void *memory); /* NULL is fine */

/* n is in bytes in all of these, and may be 0. Copies and zeroing return no status: the next
 * dl_backend_sync reports a failure. */
static inline void dl_backend_copy_in(dl_backend *b, void *to, const void *host, size_t n)
{
    b->ops->copy_in(b, to, host, n);
}
static inline void dl_backend_copy_out(dl_backend *b, void *host, const void *from, size_t n)
{
    b->ops->copy_out(b, host, from, n);
}
static inline void dl_backend_copy_within(dl_backend *b, void *to, const void *from, size_t n)
{
    b->ops->copy_within(b, to, from, n);
}
static inline void dl_backend_zero(dl_backend *b, void *to, size_t n)
{
    b->ops->zero(b, to, n);
}
/* Declares that n bytes are written before they are read again. Backends of tests fill them with
 * NaN patterns, so that an operation that reads them first gives wrong results; others do nothing.
 */
static inline void dl_backend_forget(dl_backend *b, void *memory, size_t n)
{
    if (n && b->ops->forget) b->ops->forget(b, memory, n);
}
/* Starts operations that were queued. A device may hold them back until the next copy, zeroing or
 * sync, so that one call starts them all. A caller that computes on the host before it queues more
 * submits first, so that the device works meanwhile. */
static inline void dl_backend_submit(dl_backend *b)
{
    if (b->ops->submit) b->ops->submit(b);
}
DL_MUST_CHECK static inline diloco_status dl_backend_sync(dl_backend *b)
{
    return b->ops->sync(b);
}

#endif
