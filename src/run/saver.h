/* saver.h - a thread that writes a copy of the private state to the disk while training continues.
 *
 *     IDLE --begin--> WRITING --written, or given up--> IDLE
 *
 * The trainer begins a save. The exchange waits for it before it uploads a contribution. So the
 * state is durable before the contribution that follows from it is in the store (PROTOCOL P16). */
#ifndef DL_RUN_SAVER_H
#define DL_RUN_SAVER_H

#include "base/clock.h"
#include "base/status.h"

#include <stdatomic.h>

typedef struct dl_saver dl_saver;

typedef struct dl_saver_args {
    diloco_status (*write)(void *user);
    void (*full)(void *user, const char *why); /* the disk is full: once for each save */
    void *user;
    double patience_s; /* seconds for which a full disk is tried again */
} dl_saver_args;

/* Saves on this thread. If the disk is full, it reports that once, and tries again until the
 * patience is over or *gives_up is set. Returns what the last `write` returned. */
DL_MUST_CHECK diloco_status dl_saver_save(const dl_saver_args *args, atomic_bool *gives_up);

/* DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_saver_create(dl_saver **out, const dl_saver_args *args);
/* Waits for the write in progress, which is not tried again. NULL is fine. */
void dl_saver_destroy(dl_saver *saver);

/* Write once. No save may be in progress. */
void dl_saver_begin(dl_saver *saver);

/* Wait until no save is in progress. Returns the status of the last one, until the next begins.
 * DILOCO_EINTERRUPTED: `interrupted` was set, and is cleared; NULL: none. Any thread; NULL is
 * fine. */
DL_MUST_CHECK diloco_status dl_saver_wait(dl_saver *saver, atomic_bool *interrupted);

/* A full disk is not tried again from here on. Any thread; NULL is fine. */
void dl_saver_give_up(dl_saver *saver);

#endif
