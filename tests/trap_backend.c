/* trap_backend.c - a test's CPU backends become trap backends, by -Wl,--wrap=dl_backend_create.
 *
 * Host code of such a test dies of SIGSEGV if it touches a model's or an optimizer's memory outside
 * of copies and operations. */
#include "tensor/backend.h"

#include <string.h>

/* Names that the linker gives. */
__typeof__(dl_backend_create) __real_dl_backend_create, __wrap_dl_backend_create;

diloco_status __wrap_dl_backend_create(dl_backend **out, const char *name)
{
    return __real_dl_backend_create(out, strcmp(name, "cpu") == 0 ? "trap" : name);
}
