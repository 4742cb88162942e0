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
 * the launcher, and writes `exit`. It also enforces launch.timeout, and kills a replica that does
 * not stop within launch.grace.
 *
 * The lock decides what is alive. A number in a file may be that of another process by now, and
 * after a restart of the machine no lock is held. The replica inherits the lock from its keeper, so
 * it counts as alive even if the keeper was killed.
 *
 *     no folder                 never started
 *     lock held, no pid         STARTING
 *     lock held                 RUNNING
 *     lock free, exit           SUCCEEDED, FAILED, CANCELLED, or LOST if a signal ended it
 *     lock free, no exit        LOST */
#ifndef DL_LAUNCH_HOST_H
#define DL_LAUNCH_HOST_H

#include "launch/executor.h"

/* One replica to start. Everything is borrowed, and only used during the call. */
typedef struct dl_host_start {
    const char *dir, *name;
    const char *const *argv; /* the program's path and its arguments, until NULL */
    const char *const *env;  /* "NAME=VALUE" beside this process's environment, until NULL */
    double timeout_s;        /* after which it is stopped; 0: never */
    double grace_s;          /* between asking it to stop and killing it */
} dl_host_start;

/* dl_host_start_one starts a replica unless its name was started before, also by another launcher.
 * Its working folder is `dir`. It returns when the keeper runs; the replica itself may still fail
 * to start, which a poll shows. Returns DILOCO_EIO, DILOCO_ENOMEM, or errors of the file system. */
DL_MUST_CHECK diloco_status dl_host_start_one(const dl_host_start *start);

/* dl_host_poll sets the job's state from its folder in `dir`. Returns DILOCO_ENOENT if the folder
 * does not exist. */
DL_MUST_CHECK diloco_status dl_host_poll(const char *dir, dl_job *job);

/* dl_host_cancel asks a replica to stop. Its keeper kills it launch.grace seconds later if it still
 * runs. A replica that is over, or was never started, is no error. */
DL_MUST_CHECK diloco_status dl_host_cancel(const char *dir, const char *name);

/* Returns true while the replica may write more output. */
typedef bool (*dl_host_alive_fn)(void *user, const char *dir, const char *name);
/* dl_host_logs gives each line of a replica's log to fn: the output so far, or with `alive` all
 * lines until that function returns false. It looks again every 100 ms. */
DL_MUST_CHECK diloco_status dl_host_logs(const char *dir, const char *name, dl_host_alive_fn alive,
                                         dl_job_line_fn fn, void *user);
/* Returns true if a process of the replica runs on this machine. It is an `alive` for dl_host_logs;
 * `user` is not used. */
bool dl_host_is_alive(void *user, const char *dir, const char *name);

#endif
