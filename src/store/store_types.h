/* store_types.h - the types that the users of a store (store.h) share with the kinds of stores. */
#ifndef DL_STORE_STORE_TYPES_H
#define DL_STORE_STORE_TYPES_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#include <stdatomic.h>

enum { DL_KEY_MAX = 512 };

typedef struct dl_store dl_store;

/* Where objects are stored. A run may use two stores as one, and a store that cannot create a name
 * exactly once (store/wrap/layers.h). The strings are borrowed. */
typedef struct dl_store_address {
    const char *url;   /* "file:///path", "mem://name", or a plain path (a file store) */
    const char *coord; /* url of the store with the names that decide; NULL: `url` has them, too */
    bool unguarded;    /* `url` cannot create a name exactly once */
} dl_store_address;

/* Counts of a handle since it was opened, for the record and for the tests. */
typedef struct dl_store_counters {
    /* Object bytes published and read (a lost create sends none); of a network store all that
     * went over the wire, framing, retries and lost creates included. */
    uint64_t bytes_sent, bytes_received;
    uint64_t n_create, n_put, n_get, n_list, n_delete;
    /* Requests as a provider bills them: reads; creates, puts and lists. Of a network store those
     * over the wire, parts and retries too; else one a call. */
    uint64_t billed_reads, billed_writes;
} dl_store_counters;

/* Bytes by the kind of object that they were moved for, summed over all handles that count into one
 * tally. kind_of returns the kind of a key or of a folder, below DL_MOVED_KINDS. Any thread. */
enum { DL_MOVED_KINDS = 8 };
typedef struct dl_moved {
    unsigned (*kind_of)(const char *key);
    atomic_ullong sent[DL_MOVED_KINDS], received[DL_MOVED_KINDS];
    atomic_ullong n_failed; /* calls that ended so that dl_store_may_recover */
} dl_moved;

/* How fast the store was for this handle: objects of 256 KiB and more, each direction, without the
 * fixed time of a request, which small objects measure. Each new one counts as much as all before.
 * 0: none yet. The time of a reader's sink counts, too. */
typedef struct dl_store_speed {
    double up_bps, down_bps, request_s;
} dl_store_speed;

/* A reader of an object in pieces. `begin` (may be NULL) hears the length before any byte, so it
 * can refuse before memory is taken; a status from either stops the read and is returned. An object
 * that changes or ends early is DILOCO_EPROTO. */
typedef struct dl_sink {
    void *context;
    diloco_status (*begin)(void *context, size_t len);
    diloco_status (*piece)(void *context, const void *data, size_t len);
} dl_sink;

/* A part of an object: bytes begin to end - 1, of which the object has at least one. */
typedef struct dl_store_part {
    size_t begin, end;
    /* The version that the object must have; "": any, and the read sets it. It remains "" if the
     * store does not say it. */
    char version[256];
} dl_store_part;

/* Called for each key of a listing, with the size of its object (dl_store_list). */
typedef diloco_status (*dl_found_fn)(void *context, const char *key, size_t len);

#endif
