/* sized.h - structs of the caller's, of the size that its compiler saw (include/diloco/status.h
 * says the rule). */
#ifndef DL_BASE_SIZED_H
#define DL_BASE_SIZED_H

#include "base/status.h"
#include <stddef.h>

/* to[known] from from[size]: members that the caller's lacks are 0. DILOCO_EINVAL: a byte that the
 * library does not know is not 0; `what` is the struct's name. to is unspecified then. */
DL_MUST_CHECK diloco_status dl_sized_in(void *to, size_t known, const void *from, size_t size,
                                        const char *what);

/* out[size] from from[known]: members that the library does not know are 0. */
void dl_sized_out(void *out, size_t size, const void *from, size_t known);

#endif
