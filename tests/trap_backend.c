/* trap_backend.c - a test's CPU backends become trap backends, by -Wl,--wrap=dl_backend_create.
 *
 * Host code of such a test dies of SIGSEGV if it touches a model's or an optimizer's memory outside
 * of copies and operations. device_copied_out counts the bytes of all copies to the host. */
#include "tensor/backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

extern atomic_size_t device_copied_out;
atomic_size_t device_copied_out;

/* Names that the linker gives. */
__typeof__(dl_backend_create) __real_dl_backend_create, __wrap_dl_backend_create;

/* The trap backend's operations, with a copy_out that counts. Guarded by `lock` until a backend has
 * them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dl_backend_ops counting;
static __typeof__(counting.copy_out) copy_out;

static void count(dl_backend *self, void *host, const void *from, size_t n)
{
    atomic_fetch_add(&device_copied_out, n);
    copy_out(self, host, from, n);
}

static const dl_backend_ops *counted(const dl_backend_ops *trap)
{
    pthread_mutex_lock(&lock);
    if (!copy_out) {
        counting = *trap;
        copy_out = trap->copy_out;
        counting.copy_out = count;
    }
    pthread_mutex_unlock(&lock);
    return &counting;
}

diloco_status __wrap_dl_backend_create(dl_backend **out, const char *name)
{
    if (strcmp(name, "cpu") != 0) return __real_dl_backend_create(out, name);
    const diloco_status status = __real_dl_backend_create(out, "trap");
    if (!status) (*out)->ops = counted((*out)->ops);
    return status;
}
