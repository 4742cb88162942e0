/* run_status.h - the status of a run, kept up to date: diloco_run_status_read reads it once, a
 * follower (follower.h) again and again, each entry only once. */
#ifndef DL_INSPECT_RUN_STATUS_H
#define DL_INSPECT_RUN_STATUS_H

#include "inspect/participants.h"

/* It keeps counts, and no entries. It has to be destroyed. */
typedef struct dl_status_book dl_status_book;

/* DILOCO_ENOMEM; DILOCO_EINVAL: the run's schedule is invalid. The caller destroys it. */
DL_MUST_CHECK diloco_status dl_status_book_create(dl_status_book **out, const dl_reader *r);
void dl_status_book_destroy(dl_status_book *book); /* NULL is fine */

/* Count the next entry of the log: a dl_reader_entry_fn, called for each entry in order. */
DL_MUST_CHECK diloco_status dl_status_book_entry(void *book, const dl_entry *raw,
                                                 const diloco_log_entry *entry);

/* Bring an empty book to the log's end. Entries before the newest snapshot are counted by its
 * manifest, and not read, unless the run may reject contributions: the log alone has their number.
 * The time is that of the entries since the snapshot, however long the log is. */
DL_MUST_CHECK diloco_status dl_status_book_catch_up(dl_status_book *book, dl_reader *r);

/* Read everything but the log: some listings and each replica's heartbeat. watch_s >= 0: a replica
 * is alive if its heartbeat changes within watch_s seconds. watch_s < 0: if it changed between
 * looks, within diloco_run_status.alive_s; before that time has passed, the time in
 * the heartbeat itself decides. */
DL_MUST_CHECK diloco_status dl_status_book_look(dl_status_book *book, dl_reader *r, double watch_s);

/* Sets a function that each later look calls for each generation of its replicas in gen/, so a
 * caller needs no listing of its own. A status other than OK ends the look. */
void dl_status_book_listen(dl_status_book *book, dl_participants_heard_fn heard, void *user);

/* Valid until the book is destroyed; changed by an entry and by a look. */
const diloco_run_status *dl_status_book_run(const dl_status_book *book);

#endif
