/* reader.h - a run opened for reading, shared by the files of this folder.
 *
 * A reader belongs to one thread. It trusts nothing in the store: entries and contributions are
 * checked as a replica checks them. */
#ifndef DL_INSPECT_READER_H
#define DL_INSPECT_READER_H

#include "exchange/exec.h"
#include <diloco/inspect.h>

/* An open run. Zeroed members were not opened; dl_reader_close skips them. */
typedef struct dl_reader {
    dl_store *store; /* owned */
    dl_runfile file; /* run.json, checked */
    dl_hash digest;  /* of run.json */
    dl_hash text;    /* of the entry that a walk shows: the `prev` of the next one */
    dl_pool *pool;
    dl_exec *exec; /* NULL until dl_reader_exec */
} dl_reader;

/* DILOCO_ENOENT: no run there. Close only what was opened. */
DL_MUST_CHECK diloco_status dl_reader_open(dl_reader *r, const char *url);
void dl_reader_close(dl_reader *r);
/* Prepare for replaying, which needs memory of the state's size. */
DL_MUST_CHECK diloco_status dl_reader_exec(dl_reader *r, int n_threads);
dl_time dl_reader_limit(void); /* for any one read */

/* The number of entries in the log (log_gap.c); up to the end of a complete run. Objects after that
 * end are no entries. */
DL_MUST_CHECK diloco_status dl_reader_length(uint64_t *n, const dl_reader *r);
DL_MUST_CHECK diloco_status dl_reader_total(uint64_t *n, const dl_reader *r);
/* Allocates space for an entry of this run, and no more: a longer one is unreadable (P7.9). */
DL_MUST_CHECK diloco_status dl_reader_entry_init(dl_entry *out, const dl_reader *r);
/* dl_entry_read_at of this run's log. */
DL_MUST_CHECK diloco_status dl_reader_entry(dl_entry *out, const dl_buf *text, const dl_reader *r,
                                            uint64_t number);

/* diloco_log_walk on an open reader, with the entries themselves: NULL for one that cannot be read.
 */
typedef diloco_status (*dl_reader_entry_fn)(void *user, const dl_entry *entry,
                                            const diloco_log_entry *shown);
DL_MUST_CHECK diloco_status dl_reader_walk(dl_reader *r, uint64_t from, dl_reader_entry_fn fn,
                                           void *user);

#endif
