/* reached.c - see reached.h. */
#include "gossip/reached.h"

#include <string.h>

diloco_status dl_reached_by(char out[DL_ADDRESS_MAX + 1], const dl_reached *r)
{
    if (r->address[0]) return dl_peer_address(out, r->address, r->tls);
    if (r->listen[0] == ':' || !strncmp(r->listen, "0.0.0.0:", 8) ||
        !strncmp(r->listen, "[::]:", 5))
        return dl_fail(DILOCO_EINVAL,
                       "%s = \"%s\" listens on every address of this machine: set %s to the "
                       "address at which other nodes reach this node",
                       r->listen_option, r->listen, r->address_option);
    return dl_peer_address(out, r->url, r->tls);
}
