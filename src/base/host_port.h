/* host_port.h - where to listen: "127.0.0.1:8000", "[::1]:8000", "host:0", ":8000" (everywhere). */
#ifndef DL_BASE_HOST_PORT_H
#define DL_BASE_HOST_PORT_H

#include "base/status.h"

enum { DL_HOST_MAX = 255 };

typedef struct dl_address {
    char host[DL_HOST_MAX + 1]; /* "" for everywhere; without brackets */
    char port[8];               /* a number; "0": any that is free */
} dl_address;

/* DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_address_parse(dl_address *out, const char *text);

#endif
