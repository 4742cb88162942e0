/* live_watch.h - the frame of `diloco watch` for a run that trains here, drawn by a thread.
 *
 * A store that answers slowly delays neither the replicas nor their lines. A folder is read once a
 * second, and any other store every 10 seconds, because its requests may cost money. */
#ifndef DL_CLI_DISPLAY_LIVE_WATCH_H
#define DL_CLI_DISPLAY_LIVE_WATCH_H

#include "cli/display/watch.h"

typedef struct dl_live_watch dl_live_watch;

/* Return NULL if there is no memory or no thread for it: progress is then shown without the frame.
 * `name` is the run's name on the screen. */
dl_live_watch *dl_live_watch_start(const char *store, const char *name);

/* The thread ends within a second, or stays in its request until the process ends. NULL is fine. */
void dl_live_watch_stop(dl_live_watch *watch);

/* Copy the newest frame and have the next one drawn for this size. Return false before the first
 * frame, and while the store cannot be read. NULL has no frame. */
bool dl_live_watch_frame(dl_watch_frame *out, dl_live_watch *watch, int columns, int lines);

#endif
