/* cuda_driver.c - loads the driver's library and finds its functions (cuda_api.h). The library is
 * part of the driver's installation, so a machine without a GPU does not have it. */
#include "tensor/cuda/cuda_api.h"

#include <dlfcn.h>
#include <string.h>

void dl_cuda_unload(dl_cuda *cuda)
{
    if (cuda->library) dlclose(cuda->library);
    memset(cuda, 0, sizeof *cuda);
}

/* Writes the address of a symbol to *to, which is a pointer to a function. */
static diloco_status find(void *to, void *library, const char *symbol, const char *path)
{
    void *at = dlsym(library, symbol);
    memcpy(to, &at, sizeof at);
    if (at) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED, "%s has no function %s: install a newer driver of the GPU",
                   path, symbol);
}

static diloco_status find_all(dl_cuda *cuda, const char *path)
{
#define FIND(name, symbol, arguments) DL_TRY(find(&cuda->name, cuda->library, #symbol, path));
    DL_CUDA_FUNCTIONS(FIND)
#undef FIND
    return DILOCO_OK;
}

diloco_status dl_cuda_load(dl_cuda *out, const char *library)
{
    memset(out, 0, sizeof *out);
    out->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!out->library)
        return dl_fail(DILOCO_EREFUSED,
                       "the driver of the GPU cannot be loaded: %s. Install it, or set"
                       " trainer.device = \"cpu\"",
                       dlerror());
    const diloco_status status = find_all(out, library);
    if (status) dl_cuda_unload(out);
    return status;
}
