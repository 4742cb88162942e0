/* peer_address.h - where another member or node of a run is reached: "http://host:port" or
 * "https://host:port", and nothing else. */
#ifndef DL_BASE_PEER_ADDRESS_H
#define DL_BASE_PEER_ADDRESS_H

#include "base/status.h"
#include <stdbool.h>

enum { DL_ADDRESS_MAX = 287 }; /* bytes */

/* "host:port", or with http:// or https:// before it, and perhaps /run after it. Without a scheme
 * it is https where `tls`. DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_peer_address(char out[DL_ADDRESS_MAX + 1], const char *text,
                                            bool tls);

#endif
