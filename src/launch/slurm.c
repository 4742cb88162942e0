/* slurm.c - replicas as tasks of a Slurm array, by Slurm's own commands: sbatch, squeue, scancel.
 *
 * The ranks of one generation that are started together are one array job, whose index is the rank.
 * A replica's id is "<job>_<rank>". The job's script (slurm_script.h) runs the program from the
 * folder that all nodes share, and writes its exit code to <dir>/<name>/exit. Slurm forgets ended
 * jobs after MinJobAge, and their exit codes with them if there is no accounting database.
 *
 * Launching is once only. A lock in the shared folder keeps launchers apart, and a rank that the
 * queue has under this job name is not submitted again. Slurm requeues a job whose node failed or
 * that was preempted (--requeue): the task is PENDING again, and its generation stays. */
#include "launch/executor_rows.h"
#include "launch/host.h"
#include "launch/program.h"
#include "launch/slurm_queue.h"
#include "launch/slurm_script.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a script, words of sbatch, and bytes of a word. */
enum { SCRIPT_MAX = 1 << 20, ARGS_MAX = 32, ARG_BYTES = DL_PATH_MAX + 128 };

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

/* ---- states */

/* Slurm's states (squeue(1), "JOB STATE CODES"). A job that is COMPLETING still has processes.
 * Whether a FAILED job was killed is decided by set_state. */
static const struct {
    const char *slurm;
    dl_job_state state;
} states[] = {
    {"PENDING", DL_JOB_PENDING},      {"REQUEUED", DL_JOB_PENDING},
    {"REQUEUE_FED", DL_JOB_PENDING},  {"REQUEUE_HOLD", DL_JOB_PENDING},
    {"SPECIAL_EXIT", DL_JOB_PENDING}, {"RESV_DEL_HOLD", DL_JOB_PENDING},
    {"CONFIGURING", DL_JOB_STARTING}, {"RUNNING", DL_JOB_RUNNING},
    {"COMPLETING", DL_JOB_RUNNING},   {"SUSPENDED", DL_JOB_RUNNING},
    {"STOPPED", DL_JOB_RUNNING},      {"SIGNALING", DL_JOB_RUNNING},
    {"STAGE_OUT", DL_JOB_RUNNING},    {"RESIZING", DL_JOB_RUNNING},
    {"COMPLETED", DL_JOB_SUCCEEDED},  {"FAILED", DL_JOB_FAILED},
    {"TIMEOUT", DL_JOB_FAILED},       {"OUT_OF_MEMORY", DL_JOB_FAILED},
    {"DEADLINE", DL_JOB_FAILED},      {"CANCELLED", DL_JOB_CANCELLED},
    {"NODE_FAIL", DL_JOB_LOST},       {"PREEMPTED", DL_JOB_LOST},
    {"BOOT_FAIL", DL_JOB_LOST},       {"REVOKED", DL_JOB_LOST},
};

/* The state of a job that ended by its own exit code: 0 to 255, from 129 on a signal. A shell
 * reports a signal so. */
static void set_ended(dl_job *job, int code)
{
    if (code == diloco_exit_code(DILOCO_EINTERRUPTED))
        dl_job_set(job, DL_JOB_LOST, code, "stopped by its machine, state saved");
    else if (code > 128 && code <= 128 + SIGRTMAX)
        dl_job_set(job, DL_JOB_LOST, -1, "killed by signal %d (%s)", code - 128,
                   strsignal(code - 128));
    else
        dl_job_set(job, code ? DL_JOB_FAILED : DL_JOB_SUCCEEDED, code, "exit code %d", code);
}

/* The exit code that the job's script wrote in the restart of this number (-1: in any); -1 if it
 * wrote none. The file of an earlier restart must not count: it is about another process. */
static int exit_of(const dl_launch_spec *spec, const dl_job *job, int restart)
{
    int of = 0;
    char path[DL_PATH_MAX + DL_JOB_NAME_MAX + 16];
    int code = -1;
    snprintf(path, sizeof path, "%s/%s/exit", spec->dir, job->name);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    if (fscanf(file, "exit %d %d", &code, &of) != 2) code = -1;
    fclose(file);
    return code >= 0 && code < 256 && (restart < 0 || of == restart) ? code : -1;
}

/* A wait status as Slurm prints it, as an exit code; see wait(2). */
static int code_of(const char *status)
{
    const long how = strtol(status, NULL, 10);
    const int signal = (int)(how & 127);
    return signal ? 128 + signal : (int)(how >> 8 & 255);
}

/* Set the state of a job from its line. The exit code in the script's file is preferred to Slurm's,
 * as it distinguishes the replica's end from the script's. */
static void set_state(const dl_launch_spec *spec, dl_job *job, const dl_slurm_task *q)
{
    const char *name = q->field[DL_SLURM_STATE], *reason = q->field[DL_SLURM_REASON];
    const int written = exit_of(spec, job, atoi(q->field[DL_SLURM_RESTARTS]));
    size_t i = 0;
    job->silent = false;
    while (i < sizeof states / sizeof *states && strcmp(states[i].slurm, name) != 0)
        i++;
    if (i == sizeof states / sizeof *states) {
        /* It counts as running until launch.lost_after. */
        dl_job_set_silent(job, "Slurm reports the unknown state %.60s", name);
        return;
    }
    if (written >= 0 && (strcmp(name, "FAILED") == 0 || strcmp(name, "COMPLETED") == 0))
        set_ended(job, written);
    else if (strcmp(name, "FAILED") == 0)
        /* Its script was killed, or Slurm did not start it: it writes what the program ends with.
         */
        dl_job_set(job, DL_JOB_LOST, -1, "ended with %d before its script could report it",
                   code_of(q->field[DL_SLURM_STATUS]));
    else if (dl_job_is_over(states[i].state))
        dl_job_set(job, states[i].state, -1, "%s", name);
    else if (states[i].state == DL_JOB_RUNNING)
        dl_job_set(job, DL_JOB_RUNNING, -1, "on %.100s%s%.10s", q->field[DL_SLURM_NODES],
                   strcmp(q->field[DL_SLURM_RESTARTS], "0") ? ", requeued by Slurm: restart " : "",
                   strcmp(q->field[DL_SLURM_RESTARTS], "0") ? q->field[DL_SLURM_RESTARTS] : "");
    else
        dl_job_set(job, states[i].state, -1, "%.100s", reason);
}

/* Slurm no longer has the job. Its file then is the only source. */
static void set_forgotten(const dl_launch_spec *spec, dl_job *job)
{
    const int written = exit_of(spec, job, -1);
    if (written >= 0)
        set_ended(job, written);
    else
        dl_job_set(job, DL_JOB_LOST, -1, "Slurm no longer has a job %.60s", job->id);
}

/* One call of squeue for all jobs. A job that is not in the answer was forgotten, not silent. */
static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_command_result queue;
    dl_slurm_task q;
    bool *found = calloc(n, sizeof *found);
    if (!found) return dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
    const diloco_status status = dl_slurm_queue(&queue, spec, jobs, n);
    const char *at = status ? NULL : (const char *)queue.out.data;
    const char *end = at ? at + queue.out.len : NULL;
    while (at && dl_slurm_next(&q, &at, end))
        for (size_t i = 0; i < n; i++)
            if (strcmp(q.field[DL_SLURM_ID], jobs[i].id) == 0) {
                set_state(spec, &jobs[i], &q);
                found[i] = true;
            }
    for (size_t i = 0; !status && i < n; i++)
        if (!found[i]) set_forgotten(spec, &jobs[i]);
    free(found);
    if (!status) dl_buf_deinit(&queue.out);
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

/* The words of one command, with their memory. */
typedef struct arguments {
    char text[ARGS_MAX][ARG_BYTES];
    const char *argv[ARGS_MAX + 1];
    size_t n;
} arguments;

/* Append a word. ARGS_MAX is more than make_arguments and add_resources can add. */
static void add_arg(arguments *a, const char *format, ...) DL_PRINTF(2, 3);
static void add_arg(arguments *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DL_ASSERT(a->n < ARGS_MAX);
    vsnprintf(a->text[a->n], ARG_BYTES, format, args);
    va_end(args);
    a->argv[a->n] = a->text[a->n];
    a->argv[++a->n] = NULL;
}

/* Options that a person gave. The cluster has defaults for the others. */
static void add_resources(arguments *a, const dl_config *config)
{
    if (config->launch_cpus) add_arg(a, "--cpus-per-task=%lld", (long long)config->launch_cpus);
    if (config->launch_gpus) add_arg(a, "--gres=gpu:%lld", (long long)config->launch_gpus);
    if (config->launch_memory_gb > 0) add_arg(a, "--mem=%.0fM", config->launch_memory_gb * 1000);
    if (config->launch_queue[0]) add_arg(a, "--partition=%s", config->launch_queue);
    if (config->launch_account[0]) add_arg(a, "--account=%s", config->launch_account);
    if (config->launch_timeout_s > 0) /* whole minutes, rounded up */
        add_arg(a, "--time=%lld", (long long)((config->launch_timeout_s + 59.999) / 60));
    else /* a limit of the partition: the replica saves, ends, and is submitted again */
        add_arg(a, "--signal=B:TERM@%lld", (long long)(config->launch_grace_s + 0.999));
}

/* "--array=0,2,5": the ranks are the indexes. Ranks that were lost need not follow each other. */
static diloco_status make_array(dl_buf *out, const dl_job *const *jobs, size_t n)
{
    DL_TRY(dl_buf_addf(out, "--array="));
    for (size_t i = 0; i < n; i++)
        DL_TRY(dl_buf_addf(out, "%s%u", i ? "," : "", jobs[i]->rank));
    return DILOCO_OK;
}

/* --export names the variables that a job gets from this environment, so that no secret goes into
 * the job's description. %a in the output's path is the index, hence the rank. Output is appended,
 * since a requeued task writes to the same file. */
static void make_arguments(arguments *a, const dl_launch_spec *spec, uint32_t generation)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_slurm_job_name(name, spec, generation);
    add_arg(a, "sbatch");
    add_arg(a, "--parsable");
    add_arg(a, "--job-name=%s", name);
    add_arg(a, "--ntasks=1");
    add_arg(a, "--requeue");
    add_arg(a, "--open-mode=append");
    add_arg(a, "--export=HOME,PATH,LANG");
    add_arg(a, "--chdir=%s", spec->dir);
    add_arg(a, "--output=%s/diloco-%.8s-r%%a-g%u/log", spec->dir, spec->run, generation);
    add_resources(a, spec->config);
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

/* For --dry-run: the command with the script as its input, and the secrets' names. */
static diloco_status print_submission(const dl_launch_spec *spec, const arguments *a,
                                      const dl_buf *script)
{
    dl_buf line;
    dl_buf_init(&line, SCRIPT_MAX);
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; !status && i < a->n; i++) {
        if (i) status = dl_buf_addf(&line, " ");
        if (!status) status = dl_shell_quote(&line, a->argv[i]);
    }
    if (!status) status = dl_buf_addf(&line, " <<'SCRIPT'\n");
    if (!status) status = dl_buf_add(&line, script->data, script->len);
    if (!status) status = dl_buf_addf(&line, "SCRIPT\n");
    if (!status && *spec->secrets) status = dl_buf_addf(&line, "# %s/secrets:\n", spec->dir);
    if (!status) status = add_secrets(&line, spec, true);
    if (!status) fprintf(spec->dry, "%.*s", (int)line.len, (const char *)line.data);
    dl_buf_deinit(&line);
    return status;
}

/* Submit the script and set `number` to that of the job. sbatch --parsable prints "17" or, in a
 * federation, "17;cluster". */
static diloco_status submit(char number[32], const arguments *a, const dl_buf *script)
{
    dl_command_result result;
    DL_TRY(dl_slurm_run(&result, a->argv, script));
    const char *said = dl_buf_str(&result.out);
    snprintf(number, 32, "%.*s", said ? (int)strspn(said, "0123456789") : 0, said ? said : "");
    dl_buf_deinit(&result.out);
    return *number ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "sbatch did not print a job's number");
}

/* Submit n jobs of one generation as one array. Program and secrets have to be in the shared folder
 * before that, because a task may start at once. */
static diloco_status submit_jobs(const dl_launch_spec *spec, dl_job **jobs, size_t n)
{
    char digest[DL_PROGRAM_DIGEST + 1], number[32];
    dl_buf script, array;
    const dl_job *const *all = (const dl_job *const *)jobs;
    arguments *a = calloc(1, sizeof *a);
    if (!a) return dl_fail(DILOCO_ENOMEM, "not enough memory to submit a job");
    dl_buf_init(&script, SCRIPT_MAX);
    dl_buf_init(&array, SCRIPT_MAX);
    make_arguments(a, spec, jobs[0]->generation);
    diloco_status status = dl_program_digest(digest, spec->program);
    if (!status) status = dl_slurm_script(&script, spec, jobs[0]->generation, digest);
    if (!status) status = make_array(&array, all, n);
    const char *list = status ? NULL : dl_buf_str(&array);
    if (list) {
        a->argv[a->n++] = list;
        a->argv[a->n] = NULL;
    }
    if (!status && spec->dry) status = print_submission(spec, a, &script);
    if (!status && !spec->dry) {
        status = make_folders(spec, all, n);
        if (!status) status = dl_program_install(spec, digest);
        if (!status) status = put_secrets(spec);
        if (!status) status = submit(number, a, &script);
        for (size_t i = 0; !status && i < n; i++)
            snprintf(jobs[i]->id, sizeof jobs[i]->id, "%s_%u", number, jobs[i]->rank);
    }
    dl_buf_deinit(&script);
    dl_buf_deinit(&array);
    free(a);
    return status;
}

/* Set the ids of ranks that the queue has under the name of their generation: an earlier launcher
 * has submitted them, and was interrupted before it could record that. */
static diloco_status find_submitted(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_command_result queue;
    dl_slurm_task q;
    DL_TRY(dl_slurm_queue(&queue, spec, jobs, n));
    const char *at = (const char *)queue.out.data, *end = at ? at + queue.out.len : NULL;
    while (at && dl_slurm_next(&q, &at, end)) {
        const char *rank = strchr(q.field[DL_SLURM_ID], '_');
        char name[DL_JOB_NAME_MAX + 1];
        for (size_t i = 0; rank && i < n; i++) {
            dl_slurm_job_name(name, spec, jobs[i].generation);
            if (strtoul(rank + 1, NULL, 10) == jobs[i].rank &&
                strcmp(name, q.field[DL_SLURM_NAME]) == 0)
                snprintf(jobs[i].id, sizeof jobs[i].id, "%s", q.field[DL_SLURM_ID]);
        }
    }
    dl_buf_deinit(&queue.out);
    return DILOCO_OK;
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

/* sha256sum computes the program's digest here, as the script does there. */
static diloco_status check(const dl_launch_spec *spec)
{
    static const char *const programs[] = {"sbatch", "squeue", "scancel", "sha256sum"};
    (void)spec;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!dl_command_exists(programs[i]))
            return dl_fail(DILOCO_EINVAL,
                           "there is no program %s here: run diloco launch where "
                           "jobs are submitted to Slurm",
                           programs[i]);
    return DILOCO_OK;
}

/* Append to ids[0..n-1] the ids of the jobs that Slurm has under the name of their generation. Jobs
 * that it does not have are left out. Returns DILOCO_EREFUSED if an id is that of another job; the
 * other ids are appended. */
static diloco_status find_own(const char **ids, const dl_launch_spec *spec, const dl_job *jobs,
                              size_t n)
{
    dl_command_result queue;
    dl_slurm_task q;
    size_t m = 0;
    diloco_status refused = DILOCO_OK;
    DL_TRY(dl_slurm_queue_of_ids(&queue, jobs, n));
    const char *at = (const char *)queue.out.data, *end = at ? at + queue.out.len : NULL;
    while (at && dl_slurm_next(&q, &at, end))
        for (size_t i = 0; i < n; i++) {
            char name[DL_JOB_NAME_MAX + 1];
            if (strcmp(q.field[DL_SLURM_ID], jobs[i].id) != 0) continue;
            dl_slurm_job_name(name, spec, jobs[i].generation);
            if (strcmp(q.field[DL_SLURM_NAME], name) != 0)
                refused = dl_job_refuse_other(&jobs[i], q.field[DL_SLURM_NAME]);
            else if (m < n)
                ids[m++] = jobs[i].id;
        }
    dl_buf_deinit(&queue.out);
    return refused;
}

/* scancel accepts ids of jobs that are over. `why` keeps the refusal of an id while the others are
 * stopped. */
static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_command_result result;
    char why[1024];
    const char **argv = calloc(n + 2, sizeof *argv);
    if (!argv) return dl_fail(DILOCO_ENOMEM, "not enough memory to stop jobs");
    argv[0] = "scancel";
    const diloco_status refused = find_own(argv + 1, spec, jobs, n);
    snprintf(why, sizeof why, "%s", refused ? diloco_error_text() : "");
    const diloco_status status = argv[1] ? dl_slurm_run(&result, argv, NULL) : DILOCO_OK;
    if (!status && argv[1]) dl_buf_deinit(&result.out);
    free(argv);
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
    return dl_host_logs(spec->dir, job->name, follow ? is_alive : NULL, pass_line, &f);
}

/* No job is left that reads the secrets. */
static void finish(const dl_launch_spec *spec)
{
    char path[DL_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/secrets", spec->dir);
    (void)!unlink(path);
}

/* The lock in the shared folder keeps two launchers apart, hence exactly_once. */
const dl_executor dl_executor_slurm = {
    .name = "slurm",
    .needs = "sbatch, squeue and scancel here; launch.dir in a folder that all nodes share",
    .tested = "Slurm 22.05: slurmctld and two slurmd on one machine",
    .options = "|cpus|gpus|memory|queue|account|",
    .caps = {.net = "private-ip",
             .rank_env = "argument, DILOCO_RANK, SLURM_ARRAY_TASK_ID",
             .log_api = "file",
             .secrets = "a file of launch.dir that only you can read",
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
};
