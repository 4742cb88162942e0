/* reached.h - by which address others find a server that listens here. */
#ifndef DL_GOSSIP_REACHED_H
#define DL_GOSSIP_REACHED_H

#include "base/peer_address.h"

typedef struct dl_reached {
    const char *listen, *address;               /* as set; address "": where it listens */
    const char *listen_option, *address_option; /* their names, for errors */
    const char *url;                            /* the server's own */
    bool tls;
} dl_reached;

/* Returns DILOCO_EINVAL if the address is invalid, or if it listens everywhere and no option names
 * an address to reach it by. */
DL_MUST_CHECK diloco_status dl_reached_by(char out[DL_ADDRESS_MAX + 1], const dl_reached *r);

#endif
