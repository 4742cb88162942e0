/* emulated_backend.h - a backend on the emulated device, for tests. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_BACKEND_H
#define DL_TESTS_CUDA_EMU_EMULATED_BACKEND_H

#include "check.h"
#include "cuda_emu/emulated.h"
#include "tensor/cuda/backend_cuda.h"

static inline diloco_status emulated_open_as(dl_backend **out, const emulated_setup *setup,
                                             bool unrecorded)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const dl_cuda_source source = {.name = "emulated",
                                   .library = EMULATED_LIBRARY,
                                   .images = images,
                                   .n_images = 1,
                                   .unrecorded = unrecorded};
    emulated_configure(setup);
    return dl_backend_cuda(out, &source, 0);
}
static inline diloco_status emulated_open(dl_backend **out, const emulated_setup *setup)
{
    return emulated_open_as(out, setup, false);
}

/* Every way to run for some seeds: 3 x 3 x seeds. */
enum { EMULATED_WAYS = 9 };
static inline emulated_setup emulated_way(size_t i)
{
    return (emulated_setup){.seed = 1 + i / EMULATED_WAYS,
                            .when = (emulated_when)(i % 3),
                            .order = (emulated_order)(i / 3 % 3)};
}

#endif
