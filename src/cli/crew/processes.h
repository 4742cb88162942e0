/* processes.h - replicas as processes: started, listened to, started again, stopped.
 *
 * A replica is this program again, `diloco replica NAME [--new]`, in a process group of its own (a
 * terminal's Ctrl-C reaches only the parent, which passes it on). It finds its settings
 * (dl_settings_read) at descriptor 3 and writes what happens to descriptor 4, one JSON object
 * a line:
 *
 *     {"event":"progress","step":…,"phase":"train",…}    diloco_progress, at most 10 a second
 *     {"event":"log","level":1,"text":"…"}               a line of the library's log
 *     {"event":"step"|"commit"|"eval"|…}                 the record, as it is
 *     {"event":"exit","status":4,"text":"…"}             how it ended: a diloco_status
 *
 *     killed by a signal   started again, up to `restarts` times each
 *     a new name, and DILOCO_EFENCED before any progress: another machine was quicker to take it;
 *                          started again by the name that on_taken gives it
 *     ended with an error  the others are stopped; its error becomes the launch's
 *     SIGINT, SIGTERM, SIGHUP to the parent: first, all are asked to stop (SIGTERM) and save;
 *     at a SIGINT after it, all are killed at once. A replica whose parent dies is sent SIGTERM. */
#ifndef DL_CLI_CREW_PROCESSES_H
#define DL_CLI_CREW_PROCESSES_H

#include "base/json.h"

/* Bounds: replicas of one launch and characters of a name. The descriptors are those of the child,
 * next to its stdin, stdout and stderr. */
enum { DL_LAUNCH_MAX = 1024, DL_SETTINGS_FD = 3, DL_EVENTS_FD = 4, DL_REPLICA_NAME_MAX = 31 };
enum { DL_NOTICE_LEVEL = 9 }; /* of a log event that a person should see, and that is no trouble */

/* A name without its generation, such as "r0". */
typedef char dl_replica_name[DL_REPLICA_NAME_MAX + 1];

/* One launch. Everything is borrowed until dl_launch_run returns. */
typedef struct dl_launch {
    const char *const *command; /* program and arguments before the name; ends with NULL */
    const dl_replica_name *names;
    const bool *is_new; /* [n] the name was unused when it was chosen; NULL: not one */
    size_t n;
    const dl_buf *settings; /* read by each of them at DL_SETTINGS_FD */
    int64_t restarts;       /* of one replica, after signals */
    int tick_ms;            /* how often on_tick is called; 0: never */

    void *user; /* of these, called on the caller's thread: */
    void (*on_event)(void *user, size_t replica, dl_json_value event);
    void (*on_notice)(void *user, const char *line); /* for a person: "r1 was killed …" */
    void (*on_tick)(void *user);
    diloco_status (*on_taken)(void *user,
                              size_t replica); /* OK: names[replica] is another new one */
} dl_launch;

/* dl_launch_run runs all replicas to their end, and takes over the three signals meanwhile.
 * Callbacks are called on the caller's thread. No child is left after it returns. Returns
 * DILOCO_EINTERRUPTED if it was stopped on request, or killed at the second one. Otherwise it
 * returns the first error of a replica, with its name before the text. DILOCO_EIO: a replica was
 * killed too often, or the system started no process. */
DL_MUST_CHECK diloco_status dl_launch_run(const dl_launch *launch);

#endif
