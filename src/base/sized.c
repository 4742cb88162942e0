/* sized.c - see sized.h: the part both know is copied, the rest is 0 on either side. */
#include "base/sized.h"

#include "base/size.h"

#include <string.h>

/* A newer caller may pass a longer struct, as long as it leaves the members that are unknown here
 * at 0. */
diloco_status dl_sized_in(void *to, size_t known, const void *from, size_t size, const char *what)
{
    const unsigned char *bytes = from;
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return dl_fail(DILOCO_EINVAL,
                           "%s of %zu bytes uses a member beyond the %zu bytes that this "
                           "library knows: take the library of these headers, or a later one",
                           what, size, known);
    memset(to, 0, known);
    memcpy(to, from, dl_size_min(known, size));
    return DILOCO_OK;
}

/* The caller's struct may be longer or shorter than the library's. */
void dl_sized_out(void *out, size_t size, const void *from, size_t known)
{
    memset(out, 0, size);
    memcpy(out, from, dl_size_min(known, size));
}
