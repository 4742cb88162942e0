/* mask.h - replace the values of secrets in a stream of bytes by "***".
 *
 * The secrets are variables of this process's environment. A value is found wherever the stream is
 * cut. So bytes at the end of a piece that may begin a value are held back until the next piece. */
#ifndef DL_LAUNCH_MASK_H
#define DL_LAUNCH_MASK_H

#include "base/buf.h"

/* Values, and bytes of the name of one. */
enum { DL_MASK_VALUES = 64, DL_MASK_NAME_MAX = 255 };

typedef struct dl_mask {
    const char *values[DL_MASK_VALUES]; /* borrowed from the environment, longest first */
    size_t n;
    bool begins[256]; /* a value begins with this byte */
    dl_buf held;      /* bytes that may begin a value */
} dl_mask;

/* dl_mask_init reads the values of the variables whose names are in `names`, with commas between
 * them; "" has none. Variables that are not set or empty are left out. The environment must not
 * change before dl_mask_deinit. Returns DILOCO_EINVAL for more than DL_MASK_VALUES names, or
 * for a name of more than DL_MASK_NAME_MAX bytes. */
DL_MUST_CHECK diloco_status dl_mask_init(dl_mask *mask, const char *names);
void dl_mask_deinit(dl_mask *mask);

/* dl_mask_add appends the bytes to `out` with "***" in the place of each value. With `last` nothing
 * is held back. Returns DILOCO_ENOMEM, or DILOCO_EPROTO if `out` becomes longer than its maximum.
 */
DL_MUST_CHECK diloco_status dl_mask_add(dl_mask *mask, dl_buf *out, const void *bytes, size_t n,
                                        bool last);

#endif
