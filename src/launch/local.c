/* local.c - replicas as detached processes of this machine. host.h does the work; this file makes
 * the arguments and variables. It is the executor to copy for a new one. */
#include "launch/executor_rows.h"
#include "launch/host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static diloco_status check(const dl_launch_spec *spec)
{
    if (access(spec->program, X_OK) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "launch.binary: %s is no program that can be executed here",
                   spec->program);
}

/* "<host>/<name>": a launcher on another machine cannot see these processes. */
static void id_of(char out[DL_JOB_ID_MAX + 1], const char *name)
{
    char host[64] = "";
    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "host");
    snprintf(out, DL_JOB_ID_MAX + 1, "%s/%s", host, name);
}

/* The host's name may be any text of one line; commands do not get it. */
static bool is_id(const dl_job *job)
{
    const size_t host = strcspn(job->id, "/");
    for (size_t i = 0; i < host; i++)
        if ((unsigned char)job->id[i] < ' ' || job->id[i] == 127) return false;
    return host && job->id[host] && strcmp(job->id + host + 1, job->name) == 0;
}

/* Returns DILOCO_EUNREACHABLE if the job was started on another machine. It is no failure of the
 * replica, so it must not count as LOST at once. */
static diloco_status check_here(const dl_job *job)
{
    char id[DL_JOB_ID_MAX + 1];
    id_of(id, job->name);
    if (!*job->id || strcmp(job->id, id) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EUNREACHABLE,
                   "%s was started on the machine %.*s: run this command there", job->name,
                   (int)strcspn(job->id, "/"), job->id);
}

/* For --dry-run: a line that a shell could run, with *** for secrets. */
static diloco_status print_command(const dl_launch_spec *spec, const dl_job *job,
                                   char *const *words)
{
    dl_buf line;
    dl_buf_init(&line, 1 << 20);
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; !status && spec->env[i]; i++) {
        status = dl_shell_quote(&line, spec->env[i]);
        if (!status) status = dl_buf_add(&line, " ", 1);
    }
    for (size_t i = 0; !status && spec->secrets[i]; i++)
        status = dl_buf_addf(&line, "%s=*** ", spec->secrets[i]);
    for (size_t i = 0; !status && words[i]; i++) {
        if (i) status = dl_buf_add(&line, " ", 1);
        if (!status) status = dl_shell_quote(&line, words[i]);
    }
    if (!status)
        fprintf(spec->dry, "%s: in %s: DILOCO_RANK=%u %.*s\n", job->name, spec->dir, job->rank,
                (int)line.len, (const char *)line.data);
    dl_buf_deinit(&line);
    return status;
}

/* The replica's variables: those of the spec, and the rank. Secrets are in this process's
 * environment, which a replica inherits. */
static const char **variables(const dl_launch_spec *spec, const char *rank, const char *name)
{
    size_t n = 0;
    while (spec->env[n])
        n++;
    const char **all = calloc(n + 3, sizeof *all);
    if (!all) return NULL;
    memcpy(all, spec->env, n * sizeof *all);
    all[n] = rank;
    all[n + 1] = name;
    return all;
}

/* The keeper writes the folder; the job is STARTING until a poll sees more. A name that was started
 * before starts nothing, and gets the same id. */
static diloco_status start(const dl_launch_spec *spec, dl_job *job, char *const *words)
{
    char rank[32], name[DL_JOB_NAME_MAX + 32];
    snprintf(rank, sizeof rank, "DILOCO_RANK=%u", job->rank);
    snprintf(name, sizeof name, "DILOCO_JOB=%s", job->name);
    const char **env = variables(spec, rank, name);
    if (!env) return dl_fail(DILOCO_ENOMEM, "not enough memory to start %s", job->name);
    const dl_host_start what = {.dir = spec->dir,
                                .name = job->name,
                                .argv = (const char *const *)(uintptr_t)words,
                                .env = env,
                                .timeout_s = spec->config->launch_timeout_s,
                                .grace_s = spec->config->launch_grace_s};
    const diloco_status status = dl_host_start_one(&what);
    free((void *)(uintptr_t)env);
    if (status) return status;
    id_of(job->id, job->name);
    dl_job_set(job, DL_JOB_STARTING, -1, "%s", "");
    return DILOCO_OK;
}

static diloco_status launch_one(const dl_launch_spec *spec, dl_job *job)
{
    char rank[16], **words;
    snprintf(rank, sizeof rank, "%u", job->rank);
    DL_TRY(dl_replica_argv(&words, spec, spec->program, rank));
    const diloco_status status =
        spec->dry ? print_command(spec, job, words) : start(spec, job, words);
    dl_argv_free(words);
    return status;
}

/* The first error ends the launch. Replicas before it run and have their ids. */
static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        DL_TRY(launch_one(spec, &jobs[i]));
    return DILOCO_OK;
}

/* A replica that was started here has a folder. */
static diloco_status find_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dl_job seen = jobs[i];
        const diloco_status status = dl_host_poll(spec->dir, &seen);
        if (status && status != DILOCO_ENOENT) return status;
        if (!status) id_of(jobs[i].id, jobs[i].name);
    }
    return DILOCO_OK;
}

/* A folder that was removed means that the replica's state is gone, too. */
static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        DL_TRY(check_here(&jobs[i]));
        const diloco_status status = dl_host_poll(spec->dir, &jobs[i]);
        if (status == DILOCO_ENOENT)
            dl_job_set(&jobs[i], DL_JOB_LOST, -1, "its folder is not in %.180s", spec->dir);
        else if (status)
            return status;
    }
    return DILOCO_OK;
}

static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    DL_TRY(check_here(job));
    return dl_host_logs(spec->dir, job->name, follow ? dl_host_is_alive : NULL, fn, user);
}

/* Every replica is asked, also after an error: the first error is returned. */
static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char why[1024] = "";
    diloco_status first = DILOCO_OK;
    for (size_t i = 0; i < n; i++) {
        diloco_status status = check_here(&jobs[i]);
        if (!status) status = dl_host_cancel(spec->dir, jobs[i].name);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

/* Two launchers of one name are kept apart by the lock in the name's folder, hence exactly_once.
 * The processes have this machine's environment, so secrets need no channel of their own. */
const dl_executor dl_executor_local = {
    .name = "local",
    .needs = "nothing",
    .tested = "real processes",
    .options = "|",
    .caps = {.net = "private-ip",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "file",
             .secrets = "inherited environment",
             .restart = "no",
             .same_files = true,
             .same_machine = true,
             .exactly_once = true},
    .poll_s = 1,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
};
