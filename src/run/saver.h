/* saver.h - a thread that writes copies of the private state to the disk while training continues.
 *
 *     IDLE --begin--> WRITING --written, or given up--> IDLE
 *                     |     ^
 *                   begin   | written, or given up
 *                     v     |
 *                 WRITING, and the newest copy WAITS
 *
 * While it is held, it begins to write nothing, because its caller saves a newer state itself.
 *
 * The trainer begins a save. The exchange waits for it before it uploads a contribution. So the
 * state is durable before the contribution that follows from it is in the store (PROTOCOL P16).
 *
 * The trainer itself need not wait. There are two slots for copies. While one is written, the other
 * has the newest copy. A newer copy replaces it, and is then awaited by the same contributions. */
#ifndef DL_RUN_SAVER_H
#define DL_RUN_SAVER_H

#include "base/clock.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct dl_saver dl_saver;
enum { DL_SAVER_SLOTS = 2 };

typedef struct dl_saver_args {
    diloco_status (*write)(void *user, int slot);
    void (*full)(void *user, const char *why); /* the disk is full: once for each save */
    /* A save failed, and a newer copy replaces it: once until a save succeeds. On the saver's
     * thread; dl_saver_save does not use it. */
    void (*replaced)(void *user, const char *why);
    /* The slot's copy is not needed any more. NULL: does nothing. dl_saver_save does not use it. */
    void (*released)(void *user, int slot);
    void *user;
    /* Seconds for which a full disk is tried again, from the first write that finds it full until
     * one does not. */
    double patience_s;
} dl_saver_args;

/* Saves on this thread. If the disk is full, it reports that once, and tries again until the
 * patience is over or *gives_up is set. Returns what the last `write` returned. */
DL_MUST_CHECK diloco_status dl_saver_save(const dl_saver_args *args, int slot,
                                          atomic_bool *gives_up);

/* DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_saver_create(dl_saver **out, const dl_saver_args *args);
/* Waits for the saves in progress, which are not tried again. NULL is fine. */
void dl_saver_destroy(dl_saver *saver);

/* The slot for the next copy: the one that is not written. A copy that waits there is dropped, and
 * the next one is written in its place. Call dl_saver_begin or dl_saver_cancel next. */
int dl_saver_take(dl_saver *saver);
/* Returns whether a save is written now. */
bool dl_saver_writes(dl_saver *saver);

/* Writes the slot once, after the write in progress. Contributions to `entry` and later ones need
 * this save. */
void dl_saver_begin(dl_saver *saver, int slot, uint64_t entry);
/* Ends the making of a copy without one. Contributions that needed a dropped one wait for the next,
 * or until the saver gives up. */
void dl_saver_cancel(dl_saver *saver);

/* Begins a save by the caller itself, which has a newer state: no other write begins. A copy that
 * waits is kept. Contributions that need it, or a save that failed, wait for the caller's. Call
 * dl_saver_wait for all saves, and then dl_saver_saved or dl_saver_release. NULL is fine. */
void dl_saver_hold(dl_saver *saver);
/* The slot that no copy waits in, for the caller's own use while it holds the saver and no save is
 * in progress. */
int dl_saver_spare(dl_saver *saver);
/* The caller has saved the newest state. No contribution needs another save, the copy that waits is
 * dropped, and a failure is forgotten. Call it while no save is in progress. NULL is fine. */
void dl_saver_saved(dl_saver *saver);
/* The caller's save has failed. The copy that waits is written after all. NULL is fine. */
void dl_saver_release(dl_saver *saver);

/* Waits until no save that contributions to `entry` need is in progress. UINT64_MAX: none at all,
 * except a copy that is kept while the saver is held.
 * Returns the status of a failed save that they need, until the next begins.
 * Returns DILOCO_EINTERRUPTED if `interrupted` was set, and clears it (NULL: none), or if the saver
 * gave up a save that they need. Any thread; NULL is fine. */
DL_MUST_CHECK diloco_status dl_saver_wait(dl_saver *saver, uint64_t entry,
                                          atomic_bool *interrupted);

/* Ends the patience with a full disk: it is not tried again from here on. Any thread; NULL is fine.
 */
void dl_saver_give_up(dl_saver *saver);

#endif
