/* direct.h - the server that exchange/peers.h needs from a program: it serves the objects that a
 * member of a run with a log lets others read. It is the hub, over TLS 1.3 and read only, for
 * clients with a welcome key. A client knows the server by its key. */
#ifndef DL_GOSSIP_DIRECT_H
#define DL_GOSSIP_DIRECT_H

/* Makes run.peers available in this process. Call it before a run is opened. */
void dl_direct_use(void);

#endif
