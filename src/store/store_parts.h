/* store_parts.h - the inside of a store: shared by store.c and store_open.c. */
#ifndef DL_STORE_STORE_PARTS_H
#define DL_STORE_STORE_PARTS_H

#include "store/kind.h"

#include <stddef.h>

/* One handle: the part that every kind has, then the kind's own state. One thread uses it at a
 * time; only `aborted` is set from others. */
struct dl_store {
    const dl_store_kind *kind;
    char *url;                /* owned */
    dl_store_address address; /* its strings are url, or those of a handle that this one owns */
    atomic_bool aborted;
    dl_time least, most; /* pauses between two looks */
    size_t max_object;
    bool io_may_pass;
    bool vouched;           /* of the last create */
    dl_time pause, look_at; /* the last one; when it ends, 0: it is over */
    dl_store_counters counts;
    dl_moved *tally;                            /* NULL: none */
    dl_store_counters tallied;                  /* of the counts, what `tally` has */
    dl_store_speed speed;                       /* set by note_speed */
    _Alignas(max_align_t) unsigned char self[]; /* kind->size bytes */
};

#endif
