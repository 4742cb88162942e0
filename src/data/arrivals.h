/* arrivals.h - token shards that are read while they arrive.
 *
 * The program that fetches data (fetch/fetch_early.h) fills in a dl_arrivals before it opens the
 * data. A path list may then name a path that the table knows. Its files have their full length
 * from the start, and a reader waits for the bytes that it needs. */
#ifndef DL_DATA_ARRIVALS_H
#define DL_DATA_ARRIVALS_H

#include "base/file.h"

/* A file of such a path. */
typedef struct dl_arrival {
    const char *path; /* in the cache */
    /* If `file` is NULL, the file is whole, and `map` is zeroed. Otherwise `map` has the full
     * length, and bytes that have not arrived are 0. Both are borrowed as long as the table is. */
    void *file;
    dl_map map;
} dl_arrival;

/* Receives the files of a path, one a call. */
typedef diloco_status (*dl_arrival_fn)(void *context, const dl_arrival *arrival);

/* One thread at a time. */
typedef struct dl_arrivals {
    void *self;
    /* Gives the files of `path` to `found` in byte order of their names. The first and the last MiB
     * of each are there. *known: false, and nothing is given, if the table does not know the
     * path. */
    diloco_status (*each)(void *self, bool *known, const char *path, dl_arrival_fn found,
                          void *context);
    /* Asks for bytes of a file. It does not wait. With `now` they are fetched before all others;
     * otherwise after those, in the order of the calls. */
    void (*want)(void *file, size_t begin, size_t len, bool now);
    /* Waits until these bytes have arrived. Returns the error of the fetch, or DILOCO_EINTERRUPTED
     * if the program is asked to stop. */
    diloco_status (*await)(void *file, size_t begin, size_t len);
} dl_arrivals;

/* Makes `arrivals` the table of this process. It is borrowed; NULL: no table. No data may be open
 * meanwhile. */
void dl_arrivals_set(const dl_arrivals *arrivals);
const dl_arrivals *dl_arrivals_now(void);

#endif
