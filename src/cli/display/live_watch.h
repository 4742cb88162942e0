/* live_watch.h - the frame of `diloco watch` for a run that trains here, drawn by a thread.
 *
 * A store that answers slowly delays neither the replicas nor their lines. A folder is read once a
 * second, and any other store every 10 seconds, because its requests may cost money. */
#ifndef DL_CLI_DISPLAY_LIVE_WATCH_H
#define DL_CLI_DISPLAY_LIVE_WATCH_H

#include "cli/display/watch.h"

typedef struct dl_live_watch dl_live_watch;

/* dl_live_watch_start starts the thread for the run in `store`. `name` is the run's name on the
 * screen. Both texts are copied. Returns NULL if there is no memory or no thread for it: progress
 * is then shown without the frame. The caller stops it with dl_live_watch_stop. */
dl_live_watch *dl_live_watch_start(const char *store, const char *name);

/* dl_live_watch_stop ends the thread and waits at most a second for it. A thread in a slow request
 * continues until its request or the process ends, and frees its memory itself. NULL is
 * accepted. */
void dl_live_watch_stop(dl_live_watch *watch);

/* dl_live_watch_frame copies the newest frame and has the next one drawn for this size. It never
 * waits for the store. Returns false before the first frame, while the store cannot be read, and
 * for NULL. */
bool dl_live_watch_frame(dl_watch_frame *out, dl_live_watch *watch, int columns, int lines);

#endif
