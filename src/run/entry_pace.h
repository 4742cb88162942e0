/* entry_pace.h - the mean time from one entry of the log to the next, as heartbeats report it. The
 * window has the newest heartbeats that saw another entry, so waits for other replicas are in it.
 */
#ifndef DL_RUN_ENTRY_PACE_H
#define DL_RUN_ENTRY_PACE_H

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

/* Changes of the entry that a window has. */
enum { DL_ENTRY_PACE_WINDOW = 16 };

/* All zeros: nothing was seen. `at` has the times at which the numbers of applied entries in
 * `entries` were first seen, in order. One thread at a time. */
typedef struct dl_entry_pace {
    uint64_t entries[DL_ENTRY_PACE_WINDOW];
    dl_time at[DL_ENTRY_PACE_WINDOW];
    size_t n;
} dl_entry_pace;

/* dl_entry_pace_note records the number of entries that the replica has applied at `now`. The same
 * number again changes nothing. The first call begins the window. */
void dl_entry_pace_note(dl_entry_pace *pace, uint64_t entries, dl_time now);

/* Returns the mean seconds of an entry, or 0 before the number of entries has grown. An entry that
 * takes longer than the mean of the others raises it while it is open. */
double dl_entry_pace_seconds(const dl_entry_pace *pace, dl_time now);

#endif
