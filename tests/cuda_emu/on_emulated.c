/* on_emulated.c - a test's CPU backends become backends on the emulated device, by
 * -Wl,--wrap=dl_backend_create. So does what trainer.device = "cuda" opens, by
 * -Wl,--wrap=dl_device_open. device_copied_out counts the bytes of all copies to the host.
 *
 * All of them, or with `emulated_every` of 2 each second one. The seed of the device's order is the
 * process's EMULATED_SEED, or 1. Compiled with DILOCO_ON_CARD, they are on a card instead. */
#include "on_emulated.h"

#include "cuda_emu/emulated.h"
#include "nn/device.h"
#include "tensor/cuda/backend_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Names that the linker gives. The linker compares no types, so each has that of its function. */
__typeof__(dl_backend_create) __real_dl_backend_create, __wrap_dl_backend_create;
__typeof__(dl_device_open) __real_dl_device_open, __wrap_dl_device_open;

unsigned emulated_every = 1;

extern atomic_size_t device_copied_out;
atomic_size_t device_copied_out;

/* A card's self-test compares it with a CPU backend, which stays one. */
static _Thread_local bool is_opening;

#ifdef DILOCO_ON_CARD

static diloco_status open_device(dl_backend **out)
{
    is_opening = true;
    const diloco_status status = dl_device_open(out, "cuda", 0);
    is_opening = false;
    return status;
}

#else

static void configure(void)
{
    const char *seed = getenv("EMULATED_SEED");
    emulated_configure(&(emulated_setup){.seed = seed ? strtoull(seed, NULL, 10) : 1,
                                         .when = EMULATED_RANDOM,
                                         .order = EMULATED_SHUFFLED});
}

static diloco_status open_device(dl_backend **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const dl_cuda_source source = {.name = "emulated",
                                   .library = EMULATED_LIBRARY,
                                   .images = images,
                                   .n_images = 1,
                                   .poisons = true};
    pthread_once(&once, configure);
    return dl_backend_cuda(out, &source, 0);
}

#endif

/* ---- a copy of a backend's operations, whose copy_out counts. All backends have the same
 * functions; guarded by `lock` until one has them. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dl_backend_ops plain;

static void count(dl_backend *self, void *host, const void *from, size_t n)
{
    atomic_fetch_add(&device_copied_out, n);
    plain.copy_out(self, host, from, n);
}

static void destroy(dl_backend *self)
{
    void *counting = (void *)(uintptr_t)self->ops;
    plain.destroy(self);
    free(counting);
}

static diloco_status open_counted(dl_backend **out)
{
    const diloco_status status = open_device(out);
    dl_backend_ops *counting = status ? NULL : malloc(sizeof *counting);
    if (!counting) return status;
    pthread_mutex_lock(&lock);
    if (!plain.copy_out) plain = *(*out)->ops;
    pthread_mutex_unlock(&lock);
    *counting = *(*out)->ops;
    counting->copy_out = count;
    counting->destroy = destroy;
    (*out)->ops = counting;
    return status;
}

diloco_status __wrap_dl_backend_create(dl_backend **out, const char *name)
{
    static unsigned n;
    if (is_opening || strcmp(name, "cpu") != 0 ||
        __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED) % emulated_every != 0)
        return __real_dl_backend_create(out, name);
    return open_counted(out);
}

diloco_status __wrap_dl_device_open(dl_backend **out, const char *device, size_t rank)
{
    if (is_opening || strcmp(device, "cuda") != 0) return __real_dl_device_open(out, device, rank);
    return __wrap_dl_backend_create(out, "cpu");
}
