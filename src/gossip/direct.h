/* direct.h - what exchange/peers.h asks of a program: a server for what a member of a run with a
 * log lets others read. It is the hub, over TLS 1.3, read only, for who shows a key that is
 * welcome; whoever asks it knows it by its key. */
#ifndef DL_GOSSIP_DIRECT_H
#define DL_GOSSIP_DIRECT_H

/* From here on this process can do run.peers. */
void dl_direct_use(void);

#endif
