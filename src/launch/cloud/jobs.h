/* jobs.h - executors whose backend has a REST API and one job for each replica.
 *
 * A row (dl_cloud_rows) names the calls and reads the answers. The rest is shared: jobs.c makes the
 * calls and decides what an answer means for the job.
 *
 *     launch    search, create    sets the id
 *     poll      look, seen        sets state, exit code and message
 *     cancel    look, stop        sets nothing; a later poll sees the end
 *
 * Where names are not unique, a job is searched by its name before it is created. Where they are,
 * the row has no search, and a name that is taken is adopted. An unknown state counts as silence.
 * A job that is gone is LOST, as is one whose id is that of a job of another name. */
#ifndef DL_LAUNCH_CLOUD_JOBS_H
#define DL_LAUNCH_CLOUD_JOBS_H

#include "launch/cloud/rest.h"

/* The calls of one backend. A row is constant, and keeps no state. Functions that write a call
 * return DILOCO_EINVAL if it cannot be written. Answers come from the network, so they are
 * untrusted: a member that is absent reads as "". */
typedef struct dl_cloud_rows {
    /* Fill base, credentials and headers. Credentials are not needed with spec->dry. The caller
     * deinits `rest`, also after an error. */
    diloco_status (*open)(dl_rest *rest, const dl_launch_spec *spec);
    /* Each writes path and body of a call that was begun with its method. create and search use
     * job->name, since job->id is empty then. A search of NULL: names are unique, and the backend
     * refuses a second job of a name. */
    diloco_status (*create)(dl_rest_call *call, const dl_rest *rest, const dl_job *job);
    diloco_status (*search)(dl_rest_call *call, const dl_rest *rest, const dl_job *job);
    diloco_status (*look)(dl_rest_call *call, const dl_rest *rest, const dl_job *job);
    diloco_status (*stop)(dl_rest_call *call, const dl_rest *rest, const dl_job *job);
    const char *create_method, *search_method, *look_method, *stop_method;

    /* Members of a job in an answer (dl_rest_at): its id, and its name. An id_at of NULL: the name
     * is the id. A name_at of NULL: an id that is_id accepts is the name. Otherwise the name in the
     * answer to `look` is compared: by each poll, and before a job is stopped or its output is
     * read. */
    const char *id_at, *name_at;
    /* The list of jobs in the answer to `search`; "": the answer is the list; NULL: the answer is
     * the job itself. */
    const char *list_at;
    /* Is this refusal of `create` that of a name that an earlier launch has used? NULL: it never
     * is. */
    bool (*is_taken)(const dl_rest_response *response);
    /* Is this answer to `create`, of a status that it gets by call->keeps, a lack of machines?
     * NULL: it never is. Like every failure of the backend (5xx) it may pass; a person gets the
     * advice about quotas. */
    bool (*is_full)(const dl_rest_response *response);
    /* Set state, exit code and message from the answer to `look`. */
    void (*seen)(dl_job *job, dl_json_value response);
    /* Is this refusal of `look` or `stop` that of a job that does not exist? NULL: a 404. */
    bool (*is_gone)(const dl_rest_response *response);
    /* Is this refusal of `stop` that of a job that is over? NULL: it never is. */
    bool (*is_over)(const dl_rest_response *response);
    /* `stop` deletes the job. So a job that is gone was stopped: CANCELLED, not LOST. */
    bool stop_deletes;
} dl_cloud_rows;

/* The functions of an executor (executor.h) for a row. Each opens a client, makes its calls one job
 * after the other, and closes it. launch, find and poll end at the first error, and the jobs before
 * it keep their results. cancel asks every job to stop, and returns the first error. */
DL_MUST_CHECK diloco_status dl_cloud_launch(const dl_cloud_rows *rows, const dl_launch_spec *spec,
                                            dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_cloud_find(const dl_cloud_rows *rows, const dl_launch_spec *spec,
                                          dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_cloud_poll(const dl_cloud_rows *rows, const dl_launch_spec *spec,
                                          dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_cloud_cancel(const dl_cloud_rows *rows, const dl_launch_spec *spec,
                                            dl_job *jobs, size_t n);
/* dl_cloud_check_name returns DILOCO_EREFUSED if job->id is that of a job of another name. Logs
 * call it before they read. A job that is gone passes. */
DL_MUST_CHECK diloco_status dl_cloud_check_name(const dl_cloud_rows *rows,
                                                const dl_launch_spec *spec, const dl_job *job);
/* Defines launch, find_jobs, poll_all and cancel of an executor whose row is `rows`. */
#define DL_CLOUD_CALLS(rows)                                                                       \
    static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)                \
    {                                                                                              \
        return dl_cloud_launch(&(rows), spec, jobs, n);                                            \
    }                                                                                              \
    static diloco_status find_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)             \
    {                                                                                              \
        return dl_cloud_find(&(rows), spec, jobs, n);                                              \
    }                                                                                              \
    static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)              \
    {                                                                                              \
        return dl_cloud_poll(&(rows), spec, jobs, n);                                              \
    }                                                                                              \
    static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)                \
    {                                                                                              \
        return dl_cloud_cancel(&(rows), spec, jobs, n);                                            \
    }

/* ---- logs */

/* The log of a job that a backend gives in pages. `reading` is the position in it. */
typedef struct dl_cloud_log {
    /* Read all that the log has now after the position. */
    diloco_status (*read)(void *reading, dl_rest *rest, const dl_job *job);
    /* Renew the credentials of `rest`: a log may be followed for longer than they are valid. */
    diloco_status (*renew)(dl_rest *rest);
    void *reading;
} dl_cloud_log;

/* dl_cloud_follow checks the job's name (dl_cloud_check_name) and reads the log once. With `follow`
 * it reads again every 5 seconds, or every launch.poll if that is shorter. One more read follows
 * after the job is over, for output that arrives late. `rest` is the client of the log; the job is
 * polled by `rows`. Once the log was read, a backend that does not answer is waited out, as a
 * launch does. */
DL_MUST_CHECK diloco_status dl_cloud_follow(const dl_cloud_log *log, dl_rest *rest,
                                            const dl_cloud_rows *rows, const dl_job *job,
                                            bool follow);

/* ---- states */

/* A state in the backend's words, and ours for it. */
typedef struct dl_cloud_state {
    const char *theirs; /* compared exactly, case included; NULL ends a table */
    dl_job_state ours;
} dl_cloud_state;

/* Set the state that `theirs` means by the table, which ends with NULL, and the message. A state
 * that is not in it marks the job silent: it counts as running for launch.lost_after seconds. The
 * message of the job is "<theirs>: <message>", each part cut to fit. */
void dl_cloud_set(dl_job *job, const dl_cloud_state *table, const char *theirs,
                  const char *message);
/* Returns the exit code, 0 to 255, that a sentence of the backend names ("… exit code: 1", "…
 * status of 1"), or -1. Some backends report it nowhere else. */
int dl_cloud_code_in(const char *sentence);
/* The same for a member of an answer, such as "error.message". The whole text is read: some
 * backends write the code at the end of a long one. */
int dl_cloud_code_at(dl_json_value object, const char *path);
/* Set the state of a job that ended with this exit code: SUCCEEDED, FAILED, or LOST after a signal
 * or an interruption by its machine. A code from 129 on is 128 + the number of a signal, as a shell
 * reports it. */
void dl_cloud_set_ended(dl_job *job, int code);

/* ---- refusals */

/* The end of an error about machines that an account may not have, or that are all in use. */
#define DL_CLOUD_QUOTA "; ask for a higher quota, or take another machine or region"

/* Returns the name of the option of [launch] whose value the backend's words repeat, such as
 * "launch.region", or NULL. A backend that refuses a value names it by its own member, which a
 * person did not write. Words about a permission name a value without blaming it: NULL. */
const char *dl_cloud_blamed(const dl_config *config, const char *words);

/* ---- the replica's words and variables */

/* Returns DILOCO_EINVAL if an option that the executor needs is not set. `value` is the option's,
 * and `example` one that would do. `executor` is its name for the error text. */
DL_MUST_CHECK diloco_status dl_cloud_need(const char *value, const char *option,
                                          const char *executor, const char *example);

/* Write an array of the replica's words, the program first, without the first `skip` of them.
 * `rank` replaces {rank}. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_cloud_argv(dl_json *j, const char *key, const dl_launch_spec *spec,
                                          const char *rank, size_t skip);
/* Append the replica's words as one line of a POSIX shell, for backends that take a command
 * line. */
DL_MUST_CHECK diloco_status dl_cloud_line(dl_buf *out, const dl_launch_spec *spec,
                                          const char *rank);

/* Write an array of one text. */
void dl_cloud_put_list(dl_json *j, const char *key, const char *only);
/* Returns an amount of an option in whole units, rounded up, as most APIs take no fractions. */
int64_t dl_cloud_ceiling(double amount);

/* Write DILOCO_RANK, DILOCO_JOB and launch.env as {"NAME":"value"} or, with `pairs`, as
 * [{"name":"NAME","value":"value"}]. Returns DILOCO_OK: `j` keeps an error of the writer until
 * dl_json_done. */
DL_MUST_CHECK diloco_status dl_cloud_env(dl_json *j, const char *key, const dl_launch_spec *spec,
                                         const dl_job *job, bool pairs);
/* The same without the object or array around it, for a caller that has more to add. */
void dl_cloud_put_env(dl_json *j, const dl_launch_spec *spec, const dl_job *job, bool pairs);
/* Write {"NAME":"value"} of launch.secrets. Values are those of this process's environment, or ***
 * with spec->dry. The body is secret from then on; dl_rest_call_deinit overwrites it. */
void dl_cloud_secrets(dl_json *j, const char *key, const dl_launch_spec *spec);

#endif
