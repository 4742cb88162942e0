/* emulated_backend.h - a backend on the emulated device, for tests. Compiled with DILOCO_ON_CARD,
 * the same tests run on a card instead, which runs its work in its own order. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_BACKEND_H
#define DL_TESTS_CUDA_EMU_EMULATED_BACKEND_H

#include "check.h"
#include "cuda_emu/emulated.h"
#include "tensor/cuda/backend_cuda.h"

#include <stdlib.h>

#ifdef DILOCO_ON_CARD

#include "nn/device.h"

/* One backend stays open until the end, so that the driver keeps its context between tests. */
static inline diloco_status emulated_open(dl_backend **out, const emulated_setup *setup)
{
    static dl_backend *keeper;
    (void)setup;
    if (!keeper) CHECK_OK(dl_device_open(&keeper, "cuda", 0));
    return dl_device_open(out, "cuda", 0);
}

#define emulated_leaked() 0 /* a driver does not say */

#else

static inline diloco_status emulated_open_as(dl_backend **out, const emulated_setup *setup,
                                             bool unrecorded)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const dl_cuda_source source = {.name = "emulated",
                                   .library = EMULATED_LIBRARY,
                                   .images = images,
                                   .n_images = 1,
                                   .poisons = true,
                                   .unrecorded = unrecorded};
    emulated_configure(setup);
    return dl_backend_cuda(out, &source, 0);
}
static inline diloco_status emulated_open(dl_backend **out, const emulated_setup *setup)
{
    return emulated_open_as(out, setup, false);
}

#endif

/* EMULATED_SEED of the environment, for a soak, or 1. */
static inline uint64_t emulated_first_seed(void)
{
    const char *given = getenv("EMULATED_SEED");
    return given ? strtoull(given, NULL, 10) : 1;
}

/* Every way to run for some seeds: 3 x 3 x seeds. On a card, two runs are compared. */
#ifdef DILOCO_ON_CARD
enum { EMULATED_WAYS = 2 };
#else
enum { EMULATED_WAYS = 9 };
#endif
static inline emulated_setup emulated_way(size_t i)
{
    return (emulated_setup){.seed = emulated_first_seed() + i / EMULATED_WAYS,
                            .when = (emulated_when)(i % 3),
                            .order = (emulated_order)(i / 3 % 3)};
}

/* The seeds of each way: EMULATED_SEEDS of the environment, for a soak, or as many as a test may
 * take. */
static inline size_t emulated_seeds(size_t usual)
{
    const char *given = getenv("EMULATED_SEEDS");
    return given ? strtoul(given, NULL, 10) : usual;
}

#endif
