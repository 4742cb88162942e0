/* executor.h - the interface of an executor, which starts replicas somewhere and reports their end.
 *
 * Each executor is one file and one row of the table in executor.c. It never carries tensors: those
 * go through the store. The common part of executors is above the table: the times at which
 * replicas are started (supervisor.h), the record of it (book.h), and the wait for the end.
 *
 * Names. A replica that was started has one name everywhere, in the console of a scheduler, in
 * folders and in the book:
 *
 *     diloco-<first 8 hex digits of the run's id>-r<rank>-g<generation>      diloco-1f0c2ab9-r3-g0
 *
 * The generation counts how often this rank was started. A backend that starts many ranks in one
 * job names the job without the rank, diloco-<run>-g<generation>, and its index is the rank.
 * Launching a name that was launched before starts nothing.
 *
 * An executor keeps no state between calls. Everything that it needs to find a replica again is in
 * the job's name and id, since the next call may come from another launcher on another machine. All
 * calls of a launcher come from one thread. */
#ifndef DL_LAUNCH_EXECUTOR_H
#define DL_LAUNCH_EXECUTOR_H

#include "base/config.h"
#include "base/file.h"

#include <stdio.h>

/* Bytes without the zero. 63 is the limit of a label in DNS, which Kubernetes and others use for
 * names. DL_JOBS_MAX bounds the ranks of a run. */
enum { DL_JOB_NAME_MAX = 63, DL_JOB_ID_MAX = 255, DL_JOB_MESSAGE_MAX = 255, DL_JOBS_MAX = 1024 };

/* The states from DL_JOB_SUCCEEDED on are final: no state follows them within a generation. */
typedef enum dl_job_state {
    DL_JOB_PENDING,  /* accepted; waits for a machine */
    DL_JOB_STARTING, /* has a machine; its program does not run yet */
    DL_JOB_RUNNING,
    DL_JOB_SUCCEEDED, /* exit code 0 */
    DL_JOB_FAILED,    /* another exit code, or it ran out of time */
    DL_JOB_CANCELLED, /* stopped on request */
    DL_JOB_LOST,      /* killed, preempted, or gone with its machine */
    DL_JOB_N_STATES
} dl_job_state;
/* The state in capitals, such as "PENDING": for people, and in the book. */
const char *dl_job_state_name(dl_job_state state);
/* Set *out to the state of this name. Returns false for other names. */
bool dl_job_state_of(dl_job_state *out, const char *name);
/* Returns true if the replica has ended, or never will run. */
static inline bool dl_job_is_over(dl_job_state state)
{
    return state >= DL_JOB_SUCCEEDED;
}

/* One generation of one rank, with what is known about it. Executors set id, state, exit_code,
 * silent and message; the rest never changes after dl_job_init. */
typedef struct dl_job {
    uint32_t rank, generation;
    char name[DL_JOB_NAME_MAX + 1];
    /* The backend's name of the job, from launch on; "": it was not launched. It is kept in the
     * book, so it has to be enough to find the job again. */
    char id[DL_JOB_ID_MAX + 1];
    dl_job_state state;
    int exit_code; /* -1: not known */
    /* The last poll had no answer about it; state and exit code are those of an earlier poll. */
    bool silent;
    /* The reason of the state, as a sentence for people. */
    char message[DL_JOB_MESSAGE_MAX + 1];
} dl_job;

/* dl_job_init makes a job of this rank and generation, PENDING and not launched. `run` is the run's
 * id in hex. */
void dl_job_init(dl_job *job, const char *run, uint32_t rank, uint32_t generation);
/* dl_job_set sets state, exit code (-1: not known) and message, which is cut to DL_JOB_MESSAGE_MAX
 * bytes. Bytes that are not UTF-8 become '?', since the message is written as JSON. Full stops at
 * its end are removed, since it becomes part of a sentence. */
void dl_job_set(dl_job *job, dl_job_state state, int exit_code, const char *format, ...)
    DL_PRINTF(4, 5);
/* dl_job_set_silent marks the job as silent and sets only its message, in the same way. */
void dl_job_set_silent(dl_job *job, const char *format, ...) DL_PRINTF(2, 3);

/* Returns true if the next generation may do better: for a lost replica, and for one whose store
 * did not answer or was full (exit code 4). Another failure would repeat itself. */
bool dl_job_may_be_restarted(const dl_job *job);

/* Returns the error for an id of the book that belongs to another job of the backend, whose name is
 * `theirs` (NULL: not known). An executor returns it instead of stopping that job or reading its
 * output. An empty name means that the backend gave none, and is refused as well. */
diloco_status dl_job_refuse_other(const dl_job *job, const char *theirs);
/* dl_job_set_other sets the state of such a job: LOST, with a message that names the other job.
 * The other job's own state is not used. For polls. With an empty name the job is silent, because
 * an answer without a name may be that of a proxy. */
void dl_job_set_other(dl_job *job, const char *theirs);

/* The values that all replicas of a launch have in common. Everything is borrowed, and outlives all
 * calls. */
typedef struct dl_launch_spec {
    const char *run;         /* the run's id, hex */
    const dl_config *config; /* options of [launch] */
    /* The text after "://" in --on, for example a list of hosts; "" without one. */
    const char *on;
    /* launch.dir with its default filled in: the folder in which replicas keep output and exit
     * code. It may be a folder of another machine. */
    const char *dir;
    const char *program; /* this program's file, or launch.binary */
    /* The arguments after the program, until NULL; {rank} becomes the rank. */
    const char *const *argv;
    const char *const *env;     /* "NAME=VALUE", until NULL */
    const char *const *secrets; /* names of variables of this process, until NULL: their values go
                                   through the backend's secret channel, and are never printed */
    /* For --dry-run: not NULL means that calls are printed here and nothing is sent. */
    FILE *dry;
} dl_launch_spec;

/* An executor's properties, which `diloco launch executors` shows. The texts are for people. The
 * flags from in_image on change what the supervisor and the checks of options do. */
typedef struct dl_executor_caps {
    const char *api;      /* the version of the backend's API; NULL: it has no API */
    const char *net;      /* "none", "private-ip": is there a network between replicas? */
    const char *rank_env; /* how the rank arrives */
    const char *log_api;  /* where output is */
    const char *restart;  /* restarts that the backend does by itself */
    const char *secrets;  /* its channel for secrets; NULL: it has none, and they are refused */
    /* The unit that the backend bills for a replica, and the options that decide its price. The
     * price itself is machine_hour of launch.prices. NULL: the user's own machines. */
    const char *price;
    /* Seconds after which the backend stops a replica at the latest, whatever launch.timeout says;
     * 0: no such limit is known. */
    uint32_t max_runtime_s;
    /* spot: the backend may preempt a replica. gang: with launch.gang it starts all or none. */
    bool spot, gang;
    /* Replicas run in launch.image and see no files of this machine. */
    bool in_image;
    /* The machine runs on and costs after its replica has ended, and starts its container again. So
     * the launcher stops it when the run is complete, or when its replica cannot begin. */
    bool must_be_stopped;
    /* The replicas see this machine's folders under the same paths, so relative paths can be made
     * absolute here. */
    bool same_files;
    /* All replicas run on this machine and share its cores. */
    bool same_machine;
    /* The backend itself keeps two launches of one name apart. Without that, an announcement of
     * another launcher is taken over only after a while. */
    bool exactly_once;
} dl_executor_caps;

/* Receives one line of a replica's output, without its newline and without a zero. It is valid only
 * during the call. A status other than OK ends the reading and is returned by it. */
typedef diloco_status (*dl_job_line_fn)(void *user, const char *line, size_t len);

/* Bytes of the name and the version of a backend's program. */
enum { DL_FOUND_MAX = 63 };

/* One row of the table. Functions are never NULL except `logs`, `finish` and `found`. */
typedef struct dl_executor {
    const char *name;    /* "slurm" */
    const char *place;   /* name of the text after "://" in --on, or NULL */
    const char *needs;   /* requirements, for a person: software and settings */
    const char *tested;  /* the backend that its tests ran against */
    const char *options; /* options of [launch] beside those of every executor: "|cpus|gpus|" */
    const char *without; /* options of every executor that this one cannot honour; NULL: uses all */
    dl_executor_caps caps;
    double poll_s; /* seconds between polls unless launch.poll says */

    /* Check the options and that the programs are there, before anything is created. Returns
     * DILOCO_EINVAL or DILOCO_EREFUSED with the way out. */
    diloco_status (*check)(const dl_launch_spec *spec);
    /* Start n replicas of one generation, and set id and state of each. A name that was launched
     * before is found again instead, and gets its id. After an error those whose id is "" were not
     * started. With spec->dry it only prints. */
    diloco_status (*launch)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    /* Sets the id of each of n jobs that the backend has under its name, or may have. The others
     * keep "". It starts nothing. Its jobs are those whose launcher ended before it recorded their
     * ids. A poll reports their states. */
    diloco_status (*find)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    /* Return true if job->id has the form of the ids that `launch` gives to this job. Ids are read
     * from a store that others may write. The book drops each id that is refused here, so the other
     * functions get no other id (dl_book_bind). */
    bool (*is_id)(const dl_job *job);
    /* Set state, exit code and message of n launched replicas. A job without an answer stays as it
     * was and is marked silent; the supervisor declares it lost after launch.lost_after seconds.
     * A job whose id is that of another job of the backend is set by dl_job_set_other.
     * Returns DILOCO_EUNREACHABLE if nothing answers at all. */
    diloco_status (*poll)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    /* Give each line of the output so far to fn; with `follow` all lines until the replica has
     * ended. Returns dl_job_refuse_other if the id is that of another job. NULL: the backend has no
     * log, so each replica ships its output to the run's store (output.h). */
    diloco_status (*logs)(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user);
    /* Ask n replicas to stop, and do not wait. One that is over is no error. An id from a forged
     * book may be that of another job of the same user. So an executor whose ids do not hold the
     * name first compares the job's name at the backend, and returns dl_job_refuse_other if it is
     * another one. An error may also mean that a replica was stopped and its output is lost: then
     * the executor sets its state to DL_JOB_CANCELLED. */
    diloco_status (*cancel)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    /* Optional: every replica is over; remove what only running ones need, such as secrets. */
    void (*finish)(const dl_launch_spec *spec);
    /* Optional: write the name and version of the backend's own program on this machine, such as
     * "slurm-wlm 22.05.8", in printable ASCII. Writes "" without such a program, and if the
     * requests of `spec` do not go by it. `spec` may be NULL. */
    void (*found)(char out[DL_FOUND_MAX + 1], const dl_launch_spec *spec);
} dl_executor;

/* Row i of the table; NULL after the last. i must not exceed the number of rows. */
const dl_executor *dl_executor_at(size_t i);
/* dl_executor_find sets *out to the executor that `text` names, such as "slurm" or
 * "ssh://host,host", and *on to the part of `text` after "://". Returns DILOCO_EINVAL if there is
 * no such executor, or if it takes no place or needs one. */
DL_MUST_CHECK diloco_status dl_executor_find(const dl_executor **out, const char **on,
                                             const char *text);
/* Returns true if the executor uses this option of [launch]: "gpus" for launch.gpus. */
bool dl_executor_uses(const dl_executor *executor, const char *option);
/* Returns DILOCO_EREFUSED for an option, such as "launch.gpus", that the executor does not use.
 * `origin` says where it was given. */
diloco_status dl_executor_refuse_option(const dl_executor *executor, const char *name,
                                        const char *origin);
/* dl_executor_check_options returns DILOCO_EREFUSED, with the option's name, if an option of
 * [launch] was given that this executor does not use, or secrets that it has no channel for. An
 * ignored option would be a machine that is paid for by mistake. */
DL_MUST_CHECK diloco_status dl_executor_check_options(const dl_executor *executor,
                                                      const dl_config *config);

/* Returns true if an id begins with a letter or a digit, and holds only letters, digits and the
 * characters of `also`. Letters are those of ASCII. For ids whose form the backend does not
 * promise: such an id is no option of a program, and no path. */
bool dl_id_is_plain(const char *id, const char *also);
/* Returns true for 1 to 19 decimal digits. */
bool dl_id_is_number(const char *id);

/* dl_replica_argv makes the arguments of one replica, until NULL: `program`, then spec->argv with
 * {rank} replaced by `rank`. That may be any text, so that a backend may replace it later. The
 * caller frees *out with dl_argv_free. Returns DILOCO_ENOMEM; *out is NULL then. */
DL_MUST_CHECK diloco_status dl_replica_argv(char ***out, const dl_launch_spec *spec,
                                            const char *program, const char *rank);
void dl_argv_free(char **words); /* NULL is fine */
/* dl_shell_quote appends `text` as one word of a POSIX shell. Any bytes are safe. */
DL_MUST_CHECK diloco_status dl_shell_quote(dl_buf *out, const char *text);

#endif
