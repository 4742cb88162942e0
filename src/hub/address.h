/* address.h - listening at an address (base/host_port.h). */
#ifndef DL_HUB_ADDRESS_H
#define DL_HUB_ADDRESS_H

#include "base/host_port.h"
#include <stdbool.h>

/* Bind and listen; port 0 becomes the one it got. *loopback: only this machine can reach it; if
 * it is not, and `anywhere` is not true, nothing is bound: DILOCO_EREFUSED. DILOCO_EINVAL: the
 * host is not known; DILOCO_EIO: taken, or not allowed. */
DL_MUST_CHECK diloco_status dl_address_listen(int *fd, dl_address *address, bool *loopback,
                                              bool anywhere);

#endif
