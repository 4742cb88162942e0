/* host.h - replicas as detached processes of this machine.
 *
 * Each has a folder DIR/NAME:
 *
 *     lock     locked (F_OFD_SETLK) as long as any process of the replica runs
 *     pid      of its keeper
 *     log      what the replica writes to stdout and stderr
 *     exit     how it ended: "exit 0", "signal 9", "timeout"
 *     cancel   it was asked to stop
 *
 * A keeper is a process of this program in a session of its own. It starts the replica, outlives
 * the launcher, and writes `exit`. The lock decides what is alive: a number in a file may be that
 * of another process by now, and after a restart of the machine no lock is held.
 *
 *     no folder                 never started
 *     lock held, no pid         STARTING
 *     lock held                 RUNNING
 *     lock free, exit           SUCCEEDED, FAILED, CANCELLED, or LOST if a signal ended it
 *     lock free, no exit        LOST */
#ifndef DL_LAUNCH_HOST_H
#define DL_LAUNCH_HOST_H

#include "launch/executor.h"

typedef struct dl_host_start {
    const char *dir, *name;
    const char *const *argv; /* the program's path and its arguments, until NULL */
    const char *const *env;  /* "NAME=VALUE" beside this process's environment, until NULL */
    double timeout_s;        /* after which it is stopped; 0: never */
    double grace_s;          /* between asking it to stop and killing it */
} dl_host_start;

/* Start it, unless the name was started before. Its working folder is `dir`. Returns when the
 * keeper runs. DILOCO_EIO. */
DL_MUST_CHECK diloco_status dl_host_start_one(const dl_host_start *start);

/* Set the job's state. A folder that does not exist: DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_host_poll(const char *dir, dl_job *job);

/* Ask it to stop. It is killed launch.grace seconds later if it still runs. */
DL_MUST_CHECK diloco_status dl_host_cancel(const char *dir, const char *name);

/* Each line of its log; with `alive` until that says no more. */
typedef bool (*dl_host_alive_fn)(void *user, const char *dir, const char *name);
DL_MUST_CHECK diloco_status dl_host_logs(const char *dir, const char *name, dl_host_alive_fn alive,
                                         dl_job_line_fn fn, void *user);
/* Does a process of it run here? For dl_host_logs; `user` is not used. */
bool dl_host_is_alive(void *user, const char *dir, const char *name);

#endif
