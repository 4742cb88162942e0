/* address.h - where to listen: "127.0.0.1:8000", "[::1]:8000", "host:0", ":8000" (everywhere). */
#ifndef DL_HUB_ADDRESS_H
#define DL_HUB_ADDRESS_H

#include "base/status.h"
#include <stdbool.h>

enum { DL_HOST_MAX = 255 };

typedef struct dl_address {
    char host[DL_HOST_MAX + 1]; /* "" for everywhere; without brackets */
    char port[8];               /* a number; "0": any that is free */
} dl_address;

/* DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_address_parse(dl_address *out, const char *text);

/* Bind and listen; port 0 becomes the one it got. *loopback: only this machine can reach it; if
 * it is not, and `anywhere` is not true, nothing is bound: DILOCO_EREFUSED. DILOCO_EINVAL: the
 * host is not known; DILOCO_EIO: taken, or not allowed. */
DL_MUST_CHECK diloco_status dl_address_listen(int *fd, dl_address *address, bool *loopback,
                                              bool anywhere);

#endif
