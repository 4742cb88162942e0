/* reached.h - the address by which other machines reach a server that listens on this one. It is
 * the option for it, or the address that the server listens on. */
#ifndef DL_GOSSIP_REACHED_H
#define DL_GOSSIP_REACHED_H

#include "base/peer_address.h"

typedef struct dl_reached {
    const char *listen, *address;               /* as set; address "": where it listens */
    const char *listen_option, *address_option; /* their names, for errors */
    const char *url;                            /* the server's own */
    bool tls;
} dl_reached;

/* Sets `out` to the address in its normal form. Returns DILOCO_EINVAL if it is invalid, or if the
 * server listens on all interfaces and no option names an address to reach it by. */
DL_MUST_CHECK diloco_status dl_reached_by(char out[DL_ADDRESS_MAX + 1], const dl_reached *r);

#endif
