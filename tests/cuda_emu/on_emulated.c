/* on_emulated.c - a test's CPU backends become backends on the emulated device, by
 * -Wl,--wrap=dl_backend_create. So does what trainer.device = "cuda" opens, by
 * -Wl,--wrap=dl_device_open.
 *
 * All of them, or with `emulated_every` of 2 each second one. The seed of the device's order is the
 * process's EMULATED_SEED, or 1. Compiled with DILOCO_ON_CARD, they are on a card instead. */
#include "on_emulated.h"

#include "cuda_emu/emulated.h"
#include "nn/device.h"
#include "tensor/cuda/backend_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Names that the linker gives. The linker compares no types, so each has that of its function. */
__typeof__(dl_backend_create) __real_dl_backend_create, __wrap_dl_backend_create;
__typeof__(dl_device_open) __real_dl_device_open, __wrap_dl_device_open;

unsigned emulated_every = 1;

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
    const dl_cuda_source source = {
        .name = "emulated", .library = EMULATED_LIBRARY, .images = images, .n_images = 1};
    pthread_once(&once, configure);
    return dl_backend_cuda(out, &source, 0);
}

#endif

diloco_status __wrap_dl_backend_create(dl_backend **out, const char *name)
{
    static unsigned n;
    if (is_opening || strcmp(name, "cpu") != 0 ||
        __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED) % emulated_every != 0)
        return __real_dl_backend_create(out, name);
    return open_device(out);
}

diloco_status __wrap_dl_device_open(dl_backend **out, const char *device, size_t rank)
{
    if (is_opening || strcmp(device, "cuda") != 0) return __real_dl_device_open(out, device, rank);
    return __wrap_dl_backend_create(out, "cpu");
}
