/* heartbeat.h - the heartbeat of a node without a log (docs/formats.md). It is me/beat.json at the
 * node's own address, and hb/<name> at the nodes that it announced itself to, or that have read its
 * heartbeat. */
#ifndef DL_GOSSIP_HEARTBEAT_H
#define DL_GOSSIP_HEARTBEAT_H

#include "base/hash.h"
#include "base/peer_address.h"
#include "log/layout.h"

enum { DL_BEAT_MAX = 2048 }; /* bytes of the text; a longer one is refused unread */

#define DL_KEY_BEAT "me/beat.json"

/* A node's report of itself. Rounds are numbered from 0. */
typedef struct dl_beat {
    char run[33]; /* the run's identifier */
    dl_generation generation;
    char id[DL_HASH_HEX + 1]; /* random, of the node's folder: distinguishes two nodes of one
                               * name */
    char address[DL_ADDRESS_MAX + 1];
    uint64_t contributed; /* rounds [0, contributed) have its contribution; the last few are kept */
    uint64_t state;       /* its newest model to copy is that before this round */
    dl_hash digest;       /* of that model */
    uint64_t stepped;     /* rounds that moved its model */
    uint64_t ignored;     /* objects of others that it did not count */
    uint64_t step;        /* inner steps taken */
    double divergence;    /* rms distance of the models it saw last from their mean; NaN: none */
    bool done;
} dl_beat;

/* Appends a heartbeat as sealed JSON. Returns the errors of the buffer. */
DL_MUST_CHECK diloco_status dl_beat_write(dl_buf *out, const dl_beat *beat);
/* Reads a heartbeat; its bytes are untrusted. Returns DILOCO_EPROTO and DILOCO_EDIFFERS as
 * dl_sealed_open, and DILOCO_EPROTO if a member is invalid. `out` is unchanged after an error. */
DL_MUST_CHECK diloco_status dl_beat_read(dl_beat *out, const void *text, size_t len);

/* Reads the heartbeat that a store has under a key. Also returns the store's errors. */
DL_MUST_CHECK diloco_status dl_beat_get(dl_beat *out, dl_store *store, const char *key,
                                        dl_time until);

void dl_key_known(dl_key out, const char *name); /* hb/<name> */
/* Calls fn with each heartbeat under hb/ of a store, at most DL_KNOWN_MAX of them, until fn returns
 * false. Names that the caller knows already are not read (`knows` NULL: all are). Invalid objects
 * are skipped. All requests together may take `most`; the names that are left then are not read.
 * `first` chooses the name to begin with, so that later calls reach those names. Returns the errors
 * of the listing. */
enum { DL_KNOWN_MAX = 64 };
typedef bool (*dl_beat_fn)(void *context, const dl_beat *beat); /* false: that is enough */
typedef bool (*dl_knows_fn)(void *context, const char *name);
DL_MUST_CHECK diloco_status dl_beats_known(dl_store *store, size_t first, dl_time most,
                                           dl_knows_fn knows, dl_beat_fn fn, void *context);

#endif
