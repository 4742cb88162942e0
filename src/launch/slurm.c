/* slurm.c - replicas as tasks of a Slurm array. The requests go by Slurm's commands, or with
 * launch.endpoint by its REST API (slurm_calls.h).
 *
 * The ranks of one generation that are started together are one array job, whose index is the rank.
 * A replica's id is "<job>_<rank>". The job's script (slurm_script.h) runs the program from the
 * folder that all nodes share, and writes its exit code to <dir>/<name>/exit. Slurm's queue forgets
 * ended jobs after MinJobAge. An accounting database, which many clusters have, keeps their states.
 *
 * Launching is once only. A lock in the shared folder keeps launchers apart, and a rank that the
 * queue has under this job name is not submitted again. Slurm requeues a job whose node failed or
 * that was preempted (--requeue): the task is PENDING again, and its generation stays. */
#include "launch/command.h"
#include "launch/executor_rows.h"
#include "launch/host.h"
#include "launch/program.h"
#include "launch/slurm_calls.h"
#include "launch/slurm_folder.h"
#include "launch/slurm_queue.h"
#include "launch/slurm_script.h"
#include "launch/slurm_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a script. */
enum { SCRIPT_MAX = 1 << 20 };

static const dl_slurm_calls *calls_of(const dl_launch_spec *spec)
{
#if DL_CLOUD
    if (spec->config->launch_endpoint[0]) return &dl_slurm_rest;
#else
    (void)spec;
#endif
    return &dl_slurm_commands;
}

/* ---- ids */

/* "<job>_<rank>". scancel would take any other word as an option or a whole job. */
static bool is_id(const dl_job *job)
{
    char rank[16], number[32];
    const size_t len = strcspn(job->id, "_");
    snprintf(rank, sizeof rank, "_%u", job->rank);
    snprintf(number, sizeof number, "%.*s", (int)len, job->id);
    return dl_id_is_number(number) && len < sizeof number && strcmp(job->id + len, rank) == 0;
}

/* ---- states of tasks that Slurm no longer has */

/* Has the task, which Slurm does not have, never begun as far as this machine knows? Its folder may
 * come late, so the last known state counts as well. */
static bool has_waited(const dl_launch_spec *spec, const dl_job *job)
{
    return job->state == DL_JOB_PENDING && dl_slurm_has_folder(spec, job) &&
           !dl_slurm_has_begun(spec, job) && !dl_slurm_was_stopped(spec, job);
}

/* Is there a task, or a rest without tasks, of the array with the number in the job's id? */
static bool has_array(const dl_slurm_tasks *tasks, const dl_job *job)
{
    const size_t len = strcspn(job->id, "_");
    for (size_t i = 0; i < tasks->n; i++) {
        const char *id = tasks->at[i].field[DL_SLURM_ID];
        if (strncmp(id, job->id, len) == 0 && (id[len] == '_' || !id[len])) return true;
    }
    return false;
}

/* Slurm has no job of this id. Its files then are the only source. A task that is cancelled while
 * it waits is such a job at once: Slurm removes it from its array and keeps no record of it. So one
 * that has not begun, and whose array Slurm still has, was cancelled. A machine without the folder
 * does not know how the job ended. */
static void set_unknown(const dl_launch_spec *spec, dl_job *job, const dl_slurm_tasks *arrays)
{
    const int written = dl_slurm_exit_of(spec, job, -1);
    const bool by_itself = written >= 0 && written != diloco_exit_code(DILOCO_EINTERRUPTED);
    if (!by_itself && dl_slurm_was_stopped(spec, job))
        dl_job_set(job, DL_JOB_CANCELLED, -1, "stopped on request");
    else if (written >= 0)
        dl_slurm_set_ended(job, written);
    else if (has_waited(spec, job) && has_array(arrays, job))
        dl_job_set(job, DL_JOB_CANCELLED, -1, "cancelled while it waited");
    else if (!dl_slurm_has_folder(spec, job))
        dl_job_set_silent(job,
                          "Slurm no longer has a job %.60s, and this machine has no folder %.100s",
                          job->id, spec->dir);
    else
        dl_job_set(job, DL_JOB_LOST, -1, "Slurm no longer has a job %.60s", job->id);
}

/* Has this task the name of the array job of the replica's generation? */
static bool is_own(const dl_launch_spec *spec, const dl_job *job, const dl_slurm_task *task)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_slurm_job_name(name, spec, job->generation);
    return strcmp(task->field[DL_SLURM_NAME], name) == 0;
}

/* Set the state of a job from the task that has its id. The id may be that of another job: the book
 * is not signed, and Slurm uses ids again. Then the job's file is preferred. */
static void set_polled(const dl_launch_spec *spec, dl_job *job, const dl_slurm_task *task)
{
    const int written = dl_slurm_exit_of(spec, job, -1);
    if (is_own(spec, job, task))
        dl_slurm_set_state(spec, job, task);
    else if (written >= 0)
        dl_slurm_set_ended(job, written);
    else
        dl_job_set_other(job, task->field[DL_SLURM_NAME]);
}

/* The task with the job's id, or NULL. If the id is listed twice, the later task counts. */
static const dl_slurm_task *task_of(const dl_slurm_tasks *tasks, const dl_job *job)
{
    for (size_t i = tasks->n; i > 0; i--)
        if (strcmp(tasks->at[i - 1].field[DL_SLURM_ID], job->id) == 0) return &tasks->at[i - 1];
    return NULL;
}

/* List the arrays of the jobs that have never begun, by one request. */
static diloco_status find_arrays(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                 dl_job *const *jobs, size_t n)
{
    size_t waited = 0;
    dl_job *list = calloc(n, sizeof *list);
    if (!list) return dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
    for (size_t i = 0; i < n; i++)
        if (has_waited(spec, jobs[i])) list[waited++] = *jobs[i];
    const diloco_status status = waited ? calls_of(spec)->find(out, spec, list, waited) : DILOCO_OK;
    free(list);
    return status;
}

/* The queue has forgotten these jobs. Without an answer about arrays none of them counts as
 * cancelled. The accounting database also has what Slurm decided: that a
 * person cancelled a job, or that its time was over. A job that is running there died with the
 * controller's state. */
static diloco_status set_forgotten(const dl_launch_spec *spec, dl_job *const *jobs, size_t n)
{
    dl_slurm_tasks tasks = {.n = 0}, arrays = {.n = 0};
    dl_job_state state;
    diloco_status status = DILOCO_OK;
    const char **ids = calloc(n, sizeof *ids);
    if (!ids) return dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
    for (size_t i = 0; i < n; i++)
        ids[i] = jobs[i]->id;
    if (calls_of(spec)->recall) status = calls_of(spec)->recall(&tasks, spec, ids, n);
    if (!status && find_arrays(&arrays, spec, jobs, n)) dl_slurm_tasks_free(&arrays);
    for (size_t i = 0; !status && i < n; i++) {
        const dl_slurm_task *task = task_of(&tasks, jobs[i]);
        if (task && dl_slurm_read_state(&state, task->field[DL_SLURM_STATE]) &&
            dl_job_is_over(state))
            set_polled(spec, jobs[i], task);
        else
            set_unknown(spec, jobs[i], &arrays);
    }
    free(ids);
    dl_slurm_tasks_free(&tasks);
    dl_slurm_tasks_free(&arrays);
    return status;
}

/* A job that is not in the answer was forgotten, not silent. */
static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_slurm_tasks tasks = {.n = 0};
    size_t n_forgotten = 0;
    dl_job **forgotten = calloc(n, sizeof *forgotten);
    if (!forgotten) return dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
    diloco_status status = calls_of(spec)->look(&tasks, spec, jobs, n);
    for (size_t i = 0; !status && i < n; i++) {
        const dl_slurm_task *task = task_of(&tasks, &jobs[i]);
        if (task)
            set_polled(spec, &jobs[i], task);
        else
            forgotten[n_forgotten++] = &jobs[i];
    }
    if (!status && n_forgotten) status = set_forgotten(spec, forgotten, n_forgotten);
    free(forgotten);
    dl_slurm_tasks_free(&tasks);
    return status;
}

/* ---- submitting */

/* Lines of a shell that export the secrets' values; with `hide` *** for each. */
static diloco_status add_secrets(dl_buf *out, const dl_launch_spec *spec, bool hide)
{
    for (const char *const *s = spec->secrets; *s; s++) {
        const char *value = getenv(*s);
        DL_TRY(dl_buf_addf(out, "export %s=", *s));
        DL_TRY(dl_shell_quote(out, hide ? "***" : value ? value : ""));
        DL_TRY(dl_buf_addf(out, "\n"));
    }
    return DILOCO_OK;
}

/* Write the secrets to a file that only this user can read, before the job that reads it. */
static diloco_status put_secrets(const dl_launch_spec *spec)
{
    char path[DL_PATH_MAX + 16];
    dl_buf text;
    if (!*spec->secrets) return DILOCO_OK;
    snprintf(path, sizeof path, "%s/secrets", spec->dir);
    dl_buf_init(&text, SCRIPT_MAX);
    diloco_status status = add_secrets(&text, spec, false);
    const mode_t before = umask(077);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_file_write(path, &span, 1);
    umask(before);
    if (text.data) explicit_bzero(text.data, text.cap);
    dl_buf_deinit(&text);
    return status;
}

/* Make the folders for the logs of these jobs, which Slurm does not make. Without its folder a task
 * fails before it starts. */
static diloco_status make_folders(const dl_launch_spec *spec, const dl_job *const *jobs, size_t n)
{
    char path[DL_PATH_MAX + DL_JOB_NAME_MAX + 16];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", spec->dir, jobs[i]->name);
        DL_TRY(dl_dir_make(path));
    }
    return DILOCO_OK;
}

/* "0,2,5": the ranks are the indexes of the array. Ranks that were lost need not follow each
 * other. */
static diloco_status add_ranks(dl_buf *out, const dl_job *const *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        DL_TRY(dl_buf_addf(out, "%s%u", i ? "," : "", jobs[i]->rank));
    return DILOCO_OK;
}

/* The path of a task's log, in which Slurm replaces %a by the index, hence the rank. Slurm would
 * also replace a '%' of launch.dir, so that is written twice. */
static diloco_status add_output(dl_buf *out, const dl_launch_spec *spec, uint32_t generation)
{
    for (const char *at = spec->dir; *at; at++)
        DL_TRY(dl_buf_add(out, *at == '%' ? "%%" : at, *at == '%' ? 2 : 1));
    return dl_buf_addf(out, "/diloco-%.8s-r%%a-g%u/log", spec->run, generation);
}

/* For --dry-run: the names of the secrets, after the request. */
static diloco_status print_secrets(const dl_launch_spec *spec)
{
    dl_buf text;
    if (!*spec->secrets) return DILOCO_OK;
    dl_buf_init(&text, SCRIPT_MAX);
    const diloco_status status = add_secrets(&text, spec, true);
    if (!status)
        fprintf(spec->dry, "# %s/secrets:\n%.*s", spec->dir, (int)text.len,
                (const char *)text.data);
    dl_buf_deinit(&text);
    return status;
}

/* Submit the array job, or print it. Program, folders and secrets have to be in the shared folder
 * before that, because a task may start at once. */
static diloco_status submit(char number[32], const dl_launch_spec *spec,
                            const dl_slurm_submission *submission, const dl_job *const *jobs,
                            size_t n, const char *digest)
{
    const dl_slurm_calls *calls = calls_of(spec);
    if (spec->dry) {
        DL_TRY(calls->submit(number, spec, submission));
        return print_secrets(spec);
    }
    DL_TRY(make_folders(spec, jobs, n));
    DL_TRY(dl_program_install(spec, digest));
    DL_TRY(put_secrets(spec));
    return calls->submit(number, spec, submission);
}

/* Submit n jobs of one generation as one array. */
static diloco_status submit_jobs(const dl_launch_spec *spec, dl_job **jobs, size_t n)
{
    char digest[DL_PROGRAM_DIGEST + 1], number[32] = "", name[DL_JOB_NAME_MAX + 1];
    dl_buf script, array, output;
    const uint32_t generation = jobs[0]->generation;
    const dl_job *const *all = (const dl_job *const *)jobs;
    dl_buf_init(&script, SCRIPT_MAX);
    dl_buf_init(&array, SCRIPT_MAX);
    dl_buf_init(&output, SCRIPT_MAX);
    dl_slurm_job_name(name, spec, generation);
    diloco_status status = dl_program_digest(digest, spec->program);
    if (!status) status = dl_slurm_script(&script, spec, generation, digest);
    if (!status) status = add_ranks(&array, all, n);
    if (!status) status = add_output(&output, spec, generation);
    const dl_slurm_submission submission = {.name = name,
                                            .array = dl_buf_str(&array),
                                            .output = dl_buf_str(&output),
                                            .script = dl_buf_str(&script)};
    if (!status && !(submission.array && submission.output && submission.script))
        status = dl_fail(DILOCO_ENOMEM, "not enough memory to submit a job");
    if (!status) status = submit(number, spec, &submission, all, n, digest);
    for (size_t i = 0; !status && *number && i < n; i++)
        snprintf(jobs[i]->id, sizeof jobs[i]->id, "%s_%u", number, jobs[i]->rank);
    dl_buf_deinit(&script);
    dl_buf_deinit(&array);
    dl_buf_deinit(&output);
    return status;
}

/* Set the ids of ranks that the queue has under the name of their generation: an earlier launcher
 * has submitted them, and was interrupted before it could record that. */
static diloco_status find_submitted(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_slurm_tasks tasks = {.n = 0};
    const diloco_status status = calls_of(spec)->find(&tasks, spec, jobs, n);
    for (size_t k = 0; !status && k < tasks.n; k++) {
        const char *id = tasks.at[k].field[DL_SLURM_ID], *rank = strchr(id, '_');
        for (size_t i = 0; rank && i < n; i++)
            if (strtoul(rank + 1, NULL, 10) == jobs[i].rank && is_own(spec, &jobs[i], &tasks.at[k]))
                snprintf(jobs[i].id, sizeof jobs[i].id, "%s", id);
    }
    dl_slurm_tasks_free(&tasks);
    return status;
}

/* Wait for the lock of the shared folder, which one launcher at a time has. Closing *fd releases
 * it, as does the end of this process. */
static diloco_status lock_folder(int *fd, const dl_launch_spec *spec)
{
    char path[DL_PATH_MAX + 16];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    DL_TRY(dl_dir_make(spec->dir));
    snprintf(path, sizeof path, "%s/lock", spec->dir);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0) return dl_fail_errno(errno, "make a lock in", spec->dir);
    while (fcntl(*fd, F_OFD_SETLKW, &whole))
        if (errno != EINTR) {
            close(*fd);
            return dl_fail_errno(errno, "lock", path);
        }
    return DILOCO_OK;
}

/* Under the lock: look which ranks are submitted already, then submit the others. */
static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    int lock = -1;
    size_t m = 0;
    dl_job **missing = calloc(n, sizeof *missing);
    if (!missing) return dl_fail(DILOCO_ENOMEM, "not enough memory to submit a job");
    diloco_status status = DILOCO_OK;
    if (!spec->dry) status = lock_folder(&lock, spec);
    if (!status && !spec->dry) status = find_submitted(spec, jobs, n);
    for (size_t i = 0; i < n; i++)
        if (!*jobs[i].id) missing[m++] = &jobs[i];
    if (!status && m) status = submit_jobs(spec, missing, m);
    if (lock >= 0) close(lock);
    free(missing);
    return status;
}

/* ---- the rest */

/* sha256sum computes the program's digest here, as the script does there. In a path of output with
 * a backslash Slurm replaces nothing, so %a would remain. */
static diloco_status check(const dl_launch_spec *spec)
{
    if (!dl_command_exists("sha256sum"))
        return dl_fail(DILOCO_EINVAL, "there is no program sha256sum here: install coreutils");
    if (strchr(spec->dir, '\\'))
        return dl_fail(DILOCO_EINVAL,
                       "launch.dir = \"%.200s\": Slurm writes no output below a folder with a "
                       "backslash in its name: set launch.dir to another folder",
                       spec->dir);
    return calls_of(spec)->check(spec);
}

/* Append to ids[n] the ids of the jobs that Slurm has under the name of their generation, and add
 * their number to *found. Jobs that it does not have are left out. Returns DILOCO_EREFUSED if an id
 * is that of another job; the other ids are appended. */
static diloco_status find_own(const char **ids, size_t *found, const dl_launch_spec *spec,
                              const dl_job *jobs, size_t n)
{
    dl_slurm_tasks tasks = {.n = 0};
    diloco_status refused = DILOCO_OK;
    const diloco_status status = calls_of(spec)->look(&tasks, spec, jobs, n);
    for (size_t i = 0; !status && i < n; i++) {
        const dl_slurm_task *task = task_of(&tasks, &jobs[i]);
        if (task && is_own(spec, &jobs[i], task))
            ids[(*found)++] = jobs[i].id;
        else if (task)
            refused = dl_job_refuse_other(&jobs[i], task->field[DL_SLURM_NAME]);
    }
    dl_slurm_tasks_free(&tasks);
    return status ? status : refused;
}

/* `why` keeps the refusal of an id while the other jobs are stopped. */
static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char why[1024];
    size_t found = 0;
    const char **ids = calloc(n, sizeof *ids);
    if (!ids) return dl_fail(DILOCO_ENOMEM, "not enough memory to stop jobs");
    const diloco_status refused = find_own(ids, &found, spec, jobs, n);
    snprintf(why, sizeof why, "%s", refused ? diloco_error_text() : "");
    const diloco_status status = found ? calls_of(spec)->cancel(spec, ids, found) : DILOCO_OK;
    if (!status) dl_slurm_record_stop(spec, jobs, n, ids, found);
    free(ids);
    if (status) return status;
    return refused ? dl_fail(refused, "%s", why) : DILOCO_OK;
}

/* A log that is followed: is_alive polls `job` between two reads. */
typedef struct following {
    const dl_launch_spec *spec;
    dl_job job;
    dl_job_line_fn fn;
    void *user;
} following;

static diloco_status pass_line(void *user, const char *line, size_t len)
{
    const following *f = user;
    return f->fn(f->user, line, len);
}

/* While Slurm does not answer the replica counts as alive. */
static bool is_alive(void *user, const char *dir, const char *name)
{
    following *f = user;
    (void)dir, (void)name;
    return poll_all(f->spec, &f->job, 1) || !dl_job_is_over(f->job.state);
}

static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    following f = {spec, *job, fn, user};
    if (!dl_slurm_has_folder(spec, job))
        return dl_fail(DILOCO_ENOENT,
                       "%s: its output is in the folder %.300s, which this machine does not have. "
                       "Read it on a machine that shares launch.dir",
                       job->name, spec->dir);
    return dl_host_logs(spec->dir, job->name, follow ? is_alive : NULL, pass_line, &f);
}

/* No job is left that reads the secrets. */
static void finish(const dl_launch_spec *spec)
{
    char path[DL_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/secrets", spec->dir);
    (void)!unlink(path);
}

/* By the REST API the version of Slurm here does not matter. */
static void found(char out[DL_FOUND_MAX + 1], const dl_launch_spec *spec)
{
    *out = '\0';
    if (!spec || calls_of(spec) == &dl_slurm_commands) dl_slurm_version(out);
}

/* A build without cloud/ has no client of REST APIs. */
#if DL_CLOUD
#define ENDPOINT "endpoint|"
#else
#define ENDPOINT ""
#endif

/* The lock in the shared folder keeps two launchers apart, hence exactly_once. */
const dl_executor dl_executor_slurm = {
    .name = "slurm",
    .needs =
        "sbatch, squeue and scancel here, or slurmrestd at launch.endpoint and a token in "
        "SLURM_JWT or SLURM_JWT_FILE; launch.dir in a folder that all nodes and this machine share",
    .tested = "Slurm 22.05: slurmctld, slurmdbd, slurmrestd and two slurmd on one machine. "
              "slurmrestd of 24.11 was tried once",
    .options = "|cpus|gpus|memory|queue|account|" ENDPOINT,
    .caps = {.api = "Slurm's commands; REST v0.0.38 and v0.0.40 to v0.0.43",
             .net = "private-ip",
             .rank_env = "argument, DILOCO_RANK, SLURM_ARRAY_TASK_ID",
             .log_api = "file",
             .secrets = "a file of launch.dir that only you can read",
             .price = "the part of a node, if your site charges for it: launch.queue, launch.cpus, "
                      "launch.gpus, launch.memory",
             .restart = "after a node failure or a preemption (--requeue)",
             .spot = true,
             .same_files = true,
             .exactly_once = true},
    .poll_s = 5,
    .check = check,
    .launch = launch,
    .find = find_submitted,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
    .finish = finish,
    .found = found,
};
