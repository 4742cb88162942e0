/* backend.c - the table of backends. A backend is a file and a row. */
#include "tensor/backend.h"

#include "tensor/backend_rows.h"

#include <string.h>

static const struct {
    const char *name;
    diloco_status (*create)(dl_backend **out);
} rows[] = {
    {"cpu", dl_backend_cpu},
    {"trap", dl_backend_trap},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

diloco_status dl_backend_create(dl_backend **out, const char *name)
{
    *out = NULL;
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].create(out);
    return dl_fail(DILOCO_EINVAL, "there is no backend \"%s\": use cpu or trap", name);
}

/* "cuda", or "cuda:" and the number of a card. */
static bool is_cuda(int *index, const char *name)
{
    static const char cuda[] = "cuda";
    const size_t len = sizeof cuda - 1;
    *index = 0;
    if (strncmp(name, cuda, len) != 0) return false;
    if (!name[len]) return true;
    const char *digits = name + len + 1;
    const size_t n = strspn(digits, "0123456789");
    if (name[len] != ':' || n < 1 || n > 2 || digits[n]) return false;
    *index = digits[0] - '0';
    if (n == 2) *index = 10 * *index + digits[1] - '0';
    return true;
}

diloco_status dl_device_of_name(dl_device *kind, int *index, const char *name)
{
    *index = 0;
    *kind = DL_DEVICE_CPU;
    if (strcmp(name, "cpu") == 0) return DILOCO_OK;
    *kind = DL_DEVICE_CUDA;
    if (is_cuda(index, name)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "trainer.device = \"%s\": no such device: set cpu, cuda or cuda:N, where N is "
                   "the number of a card",
                   name);
}

void dl_backend_destroy(dl_backend *backend)
{
    if (backend) backend->ops->destroy(backend);
}

const char *dl_backend_name_at(size_t i)
{
    return i < N_ROWS ? rows[i].name : NULL;
}

diloco_status dl_backend_alloc(dl_backend *backend, void **out, size_t n)
{
    *out = backend->ops->alloc(backend, dl_size_max(n, 1));
    if (*out) return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "out of memory for %zu bytes on backend %s", n,
                   backend->ops->name);
}

void dl_backend_release(dl_backend *backend, void *memory)
{
    if (memory) backend->ops->release(backend, memory);
}
