/* host_port.h - addresses as HOST:PORT, and which URLs name this machine.
 *
 * An address to listen on: "127.0.0.1:8000", "[::1]:8000", "host:0", ":8000" (everywhere). */
#ifndef DL_BASE_HOST_PORT_H
#define DL_BASE_HOST_PORT_H

#include "base/status.h"

#include <stdbool.h>

enum { DL_HOST_MAX = 255 };

typedef struct dl_address {
    char host[DL_HOST_MAX + 1]; /* "" for everywhere; without brackets */
    char port[8];               /* a number; "0": any that is free */
} dl_address;

/* Return whether the host of a URL is exactly "localhost", in 127.0.0.0/8 or ::1. A longer name
 * such as "localhost.example" is not: anyone may own it. */
bool dl_url_is_loopback(const char *url);
/* The same, or a link-local IPv4 address (169.254.0.0/16). */
bool dl_url_is_near(const char *url);

/* DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_address_parse(dl_address *out, const char *text);

#endif
