/* skypilot.c - replicas as managed jobs of SkyPilot, by its own command: sky jobs launch.
 *
 * Names of jobs are not unique, so a job is searched by its name before it is launched. SkyPilot
 * itself starts a job again whose machine was taken away, and its generation stays.
 *
 * It reports no exit code, so a job that failed may be one that was killed. It counts as LOST, and
 * launch.restarts bounds how often it is started again. Values of secrets go to `sky` by its
 * environment; its arguments have the names. */
#include "base/log.h"
#include "launch/cloud/jobs.h"
#include "launch/command.h"
#include "launch/executor_rows.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Words of one call, of which launch.env and launch.secrets give most, and bytes of the queue,
 * which has all managed jobs of the user. */
enum { WORDS_MAX = 256, QUEUE_MAX = 64 << 20 };

/* The only version of SkyPilot whose calls were compared with those below. Add a later one after
 * tests/launch/fits.py has accepted it. */
#define KNOWN   "0.14"
#define INSTALL "pip install 'skypilot==" KNOWN ".*'"

#define DIGITS   "0123456789"
#define PATIENCE (600 * DL_SECOND) /* the first call starts SkyPilot's server and controller */

/* ---- arguments */

/* The words of one command, owned. An error is kept in `lost`, so that callers check once. drop()
 * frees the words, also after an error. */
typedef struct words {
    char *word[WORDS_MAX + 1];
    size_t n;
    bool lost; /* no memory, or too many */
} words;

/* Append a word, as printf does. */
static void add(words *w, const char *format, ...) DL_PRINTF(2, 3);
static void add(words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (w->n == WORDS_MAX || vasprintf(&w->word[w->n], format, args) < 0)
        w->lost = true;
    else
        w->n++;
    va_end(args);
}

static void add_all(words *w, const char *const *more)
{
    for (; *more; more++)
        add(w, "%s", *more);
}

static void drop(words *w)
{
    while (w->n)
        free(w->word[--w->n]);
}

/* End the list, and report what was lost while it was made. */
static diloco_status check_words(words *w)
{
    w->word[w->n] = NULL;
    return w->lost ? dl_fail(DILOCO_ENOMEM, "skypilot: too many arguments of sky") : DILOCO_OK;
}

/* "+" means at least this amount. Memory and disk are in GB; the disk is rounded up to whole ones.
 */
static void add_machine(words *w, const dl_config *config)
{
    add(w, "--image-id");
    add(w, "docker:%s", config->launch_image);
    if (config->launch_region[0])
        add_all(w, (const char *[]){"--infra", config->launch_region, NULL});
    if (config->launch_machine[0])
        add_all(w, (const char *[]){"--instance-type", config->launch_machine, NULL});
    if (config->launch_gpus) {
        add(w, "--gpus");
        add(w, "%s:%lld", config->launch_gpu_type, (long long)config->launch_gpus);
    }
    if (config->launch_cpus) {
        add(w, "--cpus");
        add(w, "%lld+", (long long)config->launch_cpus);
    }
    if (config->launch_memory_gb > 0) {
        add(w, "--memory");
        add(w, "%g+", config->launch_memory_gb);
    }
    if (config->launch_disk_gb > 0) {
        add(w, "--disk-size");
        add(w, "%lld", (long long)dl_cloud_ceiling(config->launch_disk_gb));
    }
    if (config->launch_spot) add(w, "--use-spot");
}

/* The last word is the replica's command as one line of a shell, which `sky` runs on the machine.
 * --env takes NAME=VALUE, and --secret a name whose value `sky` reads from its environment. */
static diloco_status fill(words *w, const dl_launch_spec *spec, const dl_job *job)
{
    char rank[16];
    dl_buf line;
    add_all(w, (const char *[]){"sky", "jobs", "launch", "--yes", "--detach-run", "--name",
                                job->name, NULL});
    add_machine(w, spec->config);
    add(w, "--env");
    add(w, "DILOCO_RANK=%u", job->rank);
    add(w, "--env");
    add(w, "DILOCO_JOB=%s", job->name);
    for (const char *const *e = spec->env; *e; e++)
        add_all(w, (const char *[]){"--env", *e, NULL});
    for (const char *const *s = spec->secrets; *s; s++)
        add_all(w, (const char *[]){"--secret", *s, NULL});
    snprintf(rank, sizeof rank, "%u", job->rank);
    dl_buf_init(&line, 1 << 20);
    diloco_status status = dl_cloud_line(&line, spec, rank);
    const char *text = status ? NULL : dl_buf_str(&line);
    if (text) add(w, "%s", text);
    if (!text) w->lost = true;
    dl_buf_deinit(&line);
    DL_TRY(status);
    return check_words(w);
}

/* ---- calls */

/* Make the end of sky's stderr a part of a sentence: in one line, without the escape sequences of
 * colors. It begins at the name of the exception, which follows messages. Returns a part of `err`.
 */
static const char *words_of(char *err)
{
    char *out = err;
    const char *begin = err;
    for (const char *at = err; *at;) {
        if (at[0] == '\033' && at[1] == '[') {
            at += 2 + strspn(at + 2, "0123456789;");
            at += *at != '\0';
        } else {
            *out++ = *at == '\n' ? ' ' : *at;
            at++;
        }
    }
    *out = '\0';
    for (const char *at = err; (at = strstr(at, "sky.exceptions.")); at++)
        begin = at;
    return begin;
}

/* The error of a command that failed. Its exit code is 1 for all of them, so SkyPilot's words
 * decide. */
static diloco_status sky_failed(const char *what, diloco_status failed, dl_command_result *result)
{
    const char *said = words_of(result->err);
    if (strstr(said, "NoCloudAccessError"))
        return dl_fail(failed,
                       "%s: SkyPilot has no enabled cloud: run  sky check  to see what each cloud "
                       "needs",
                       what);
    return dl_fail(failed, "%s: sky ended with exit code %d: %.300s", what, result->exit_code,
                   said);
}

static diloco_status do_sky(dl_command_result *result, words *w)
{
    const dl_command_run run = {
        .argv = (const char *const *)(uintptr_t)w->word, .most = QUEUE_MAX, .patience = PATIENCE};
    DL_TRY(check_words(w));
    return dl_command_do(result, &run);
}

/* Read the version of `sky`, such as "0.14". Returns false if it is not known here, with a clause
 * about it in `out`. */
static bool is_known(char out[256])
{
    static const char *const argv[] = {"sky", "--version", NULL};
    const dl_command_run run = {.argv = argv};
    dl_command_result result;
    if (dl_command_do(&result, &run)) {
        snprintf(out, 256, "sky --version failed: %.200s", diloco_error_text());
        return false;
    }
    const char *text = dl_buf_str(&result.out), *at = text ? strstr(text, "version ") : NULL;
    if (at) at += strlen("version ");
    const size_t major = at ? strspn(at, DIGITS) : 0;
    const size_t minor = major && at[major] == '.' ? strspn(at + major + 1, DIGITS) : 0;
    const size_t len = major + 1 + minor;
    const bool known = minor && len == strlen(KNOWN) && memcmp(at, KNOWN, len) == 0;
    if (minor)
        snprintf(out, 256, "SkyPilot %.*s is not known here", (int)(len < 60 ? len : 60), at);
    else
        snprintf(out, 256, "sky --version printed no version of SkyPilot%s%.200s",
                 *result.err ? ": " : "", result.err);
    dl_buf_deinit(&result.out);
    return known;
}

/* Nothing is launched by a version that is not known here. */
static diloco_status check_version(void)
{
    char why[256];
    return is_known(why) ? DILOCO_OK : dl_fail(DILOCO_EREFUSED, "%s: " INSTALL, why);
}

/* Warn once of a version that is not known here. Jobs that cost money are seen and stopped
 * nevertheless. */
static void warn_of_version(void)
{
    static atomic_bool looked;
    char why[256];
    if (!atomic_exchange(&looked, true) && !is_known(why))
        dl_log(DILOCO_LOG_WARN,
               "%s: it starts no replica. Those that run are still shown and stopped by the calls "
               "of " KNOWN ": " INSTALL,
               why);
}

/* Run sky for its effect. `failed` is the status of a command that fails. */
static diloco_status run_sky(words *w, const char *what, diloco_status failed)
{
    dl_command_result result;
    DL_TRY(do_sky(&result, w));
    dl_buf_deinit(&result.out);
    return result.exit_code ? sky_failed(what, failed, &result) : DILOCO_OK;
}

/* Run `sky jobs queue`. The caller frees *text after success. Without a jobs controller, as before
 * the first job of a user, it fails and says that there are no jobs: the queue is empty then. */
static diloco_status run_queue(dl_buf *text)
{
    dl_command_result result;
    words w = {.n = 0};
    add_all(&w, (const char *[]){"sky", "jobs", "queue", "--all", "--output", "json", NULL});
    diloco_status status = do_sky(&result, &w);
    drop(&w);
    DL_TRY(status);
    *text = result.out;
    if (result.exit_code && strstr(result.err, "No in-progress managed jobs")) {
        dl_buf_clear(text);
        status = dl_buf_addf(text, "[]");
    } else if (result.exit_code) {
        status = sky_failed("the managed jobs", DILOCO_EUNREACHABLE, &result);
    }
    if (status) dl_buf_deinit(text);
    return status;
}

/* The array of all managed jobs. The caller frees *text. Lines before it are messages. */
static diloco_status read_queue(dl_json_value *queue, dl_buf *text)
{
    warn_of_version();
    DL_TRY(run_queue(text));
    const char *all = dl_buf_str(text), *at = all;
    while (at && *at != '[')
        at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    if (at && !dl_json_parse(queue, at, strlen(at))) return DILOCO_OK;
    dl_buf_deinit(text);
    return dl_fail(DILOCO_EPROTO, "skypilot:  sky jobs queue --output json  printed no JSON; "
                                  "SkyPilot " KNOWN " does");
}

/* Set the id from the queue; "" if no job has this name. The first one is the newest. */
static void find(dl_job *job, dl_json_value queue)
{
    char name[DL_JOB_NAME_MAX + 1];
    for (dl_json_iter it = dl_json_each(queue); !*job->id && dl_json_next(&it);)
        if (!strcmp(dl_rest_text(name, sizeof name, it.value, "job_name"), job->name))
            dl_rest_text(job->id, sizeof job->id, it.value, "job_id");
}

/* One queue for all jobs: each call of sky takes seconds. */
static diloco_status find_all(dl_job *jobs, size_t n)
{
    dl_json_value queue;
    dl_buf text;
    DL_TRY(read_queue(&queue, &text));
    for (size_t i = 0; i < n; i++)
        find(&jobs[i], queue);
    dl_buf_deinit(&text);
    return DILOCO_OK;
}

/* For --dry-run: the call as a shell would take it. It has the names of secrets alone. */
static diloco_status print_words(const dl_launch_spec *spec, const words *w)
{
    dl_buf line;
    dl_buf_init(&line, 1 << 20);
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; !status && i < w->n; i++) {
        if (i) status = dl_buf_add(&line, " ", 1);
        if (!status) status = dl_shell_quote(&line, w->word[i]);
    }
    if (!status) fprintf(spec->dry, "%.*s\n", (int)line.len, (const char *)line.data);
    dl_buf_deinit(&line);
    return status;
}

/* Launch a job. A refusal names the option whose value sky's own words repeat. */
static diloco_status submit(const dl_launch_spec *spec, words *w, const char *name)
{
    dl_command_result result;
    DL_TRY(do_sky(&result, w));
    dl_buf_deinit(&result.out);
    if (!result.exit_code) return DILOCO_OK;
    const diloco_status status = sky_failed(name, DILOCO_EREFUSED, &result);
    const char *option = dl_cloud_blamed(spec->config, words_of(result.err));
    return option ? dl_fail(status, "%s; check %s", diloco_error_text(), option) : status;
}

/* One call of sky for each job: it has no call for several. */
static diloco_status launch_one(const dl_launch_spec *spec, const dl_job *job)
{
    words w = {.n = 0};
    diloco_status status = fill(&w, spec, job);
    if (!status) status = spec->dry ? print_words(spec, &w) : submit(spec, &w, job->name);
    drop(&w);
    return status;
}

/* SkyPilot prints no id that a program can read: the queue has it. The queue has answered before a
 * job is launched, so a launch that fails is a refusal. */
static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    if (!spec->dry) DL_TRY(check_version()); /* it may have changed since `check` */
    if (!spec->dry) DL_TRY(find_all(jobs, n));
    diloco_status status = DILOCO_OK;
    char why[512] = "";
    for (size_t i = 0; !status && i < n; i++)
        if (!*jobs[i].id) status = launch_one(spec, &jobs[i]);
    if (spec->dry) return status;
    if (status) snprintf(why, sizeof why, "%s", diloco_error_text());
    DL_TRY(find_all(jobs, n));
    return status ? dl_fail(status, "%s", why) : DILOCO_OK;
}

static diloco_status find_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    (void)spec;
    return find_all(jobs, n);
}

/* ---- states */

/* The states of a managed job (ManagedJobStatus of SkyPilot). FAILED is an end by the program or by
 * a signal, which SkyPilot does not distinguish; the other failures would repeat themselves. */
static const dl_cloud_state states[] = {{"PENDING", DL_JOB_PENDING},
                                        {"SUBMITTED", DL_JOB_PENDING},
                                        {"STARTING", DL_JOB_STARTING},
                                        {"RECOVERING", DL_JOB_STARTING},
                                        {"RUNNING", DL_JOB_RUNNING},
                                        {"WINDING_DOWN", DL_JOB_RUNNING},
                                        {"CANCELLING", DL_JOB_RUNNING},
                                        {"SUCCEEDED", DL_JOB_SUCCEEDED},
                                        {"CANCELLED", DL_JOB_CANCELLED},
                                        {"FAILED", DL_JOB_LOST},
                                        {"FAILED_SETUP", DL_JOB_FAILED},
                                        {"FAILED_PRECHECKS", DL_JOB_FAILED},
                                        {"FAILED_NO_RESOURCE", DL_JOB_FAILED},
                                        {"FAILED_CONTROLLER", DL_JOB_LOST},
                                        {NULL, DL_JOB_LOST}};

/* Find the job's id in the queue, and set `name` to the name that the queue has for it. Returns
 * false if the id is not there. */
static bool look_up(char name[DL_JOB_NAME_MAX + 1], dl_json_value *task, const dl_job *job,
                    dl_json_value queue)
{
    char id[32];
    for (dl_json_iter it = dl_json_each(queue); dl_json_next(&it);) {
        if (strcmp(dl_rest_text(id, sizeof id, it.value, "job_id"), job->id) != 0) continue;
        dl_rest_message(name, DL_JOB_NAME_MAX + 1, it.value, "job_name");
        *task = it.value;
        return true;
    }
    return false;
}

/* A job that the queue does not list is silent, since it was listed before: the queue may be
 * incomplete. */
static void see(dl_job *job, dl_json_value queue)
{
    char name[DL_JOB_NAME_MAX + 1], status[64], why[512];
    dl_json_value task;
    if (!look_up(name, &task, job, queue)) {
        dl_job_set_silent(job, "SkyPilot no longer lists job %.60s", job->id);
        return;
    }
    if (strcmp(name, job->name) != 0) {
        dl_job_set_other(job, name);
        return;
    }
    dl_rest_text(status, sizeof status, task, "status");
    dl_rest_message(why, sizeof why, task, "failure_reason");
    job->silent = false;
    if (strcmp(status, "FAILED_NO_RESOURCE") == 0)
        dl_job_set(job, DL_JOB_FAILED, -1, "%s: %.150s" DL_CLOUD_QUOTA, status,
                   *why ? why : "no cloud has such a machine now");
    else
        dl_cloud_set(job, states, status, why);
}

/* One queue for all jobs. Without it nothing is known about any, so the error is the poll's. */
static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_json_value queue;
    dl_buf text;
    (void)spec;
    DL_TRY(read_queue(&queue, &text));
    for (size_t i = 0; i < n; i++)
        see(&jobs[i], queue);
    dl_buf_deinit(&text);
    return DILOCO_OK;
}

/* Returns DILOCO_OK if the queue has the job's id under its name. Without that the job must not be
 * stopped, and its output not be read. */
static diloco_status check_name(const dl_job *job, dl_json_value queue)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_json_value task;
    if (look_up(name, &task, job, queue))
        return strcmp(name, job->name) ? dl_job_refuse_other(job, name) : DILOCO_OK;
    return dl_fail(DILOCO_EUNREACHABLE, "%s: SkyPilot no longer lists job %.60s", job->name,
                   job->id);
}

static diloco_status cancel_one(const dl_job *job, dl_json_value queue)
{
    words w = {.n = 0};
    DL_TRY(check_name(job, queue));
    add_all(&w, (const char *[]){"sky", "jobs", "cancel", "--yes", job->id, NULL});
    const diloco_status status = run_sky(&w, job->name, DILOCO_EUNREACHABLE);
    drop(&w);
    return status;
}

/* Every job is asked, also after an error: the first error is returned. */
static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char why[512] = "";
    dl_json_value queue;
    dl_buf text;
    diloco_status first = DILOCO_OK;
    (void)spec;
    DL_TRY(read_queue(&queue, &text));
    for (size_t i = 0; i < n; i++) {
        const diloco_status status = cancel_one(&jobs[i], queue);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    dl_buf_deinit(&text);
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

/* Is this an exit code of `sky jobs logs` that reports the state of the job (JobExitCode of
 * SkyPilot)? The output was printed then. */
static bool is_state(int exit_code)
{
    enum { FAILED = 100, NOT_FINISHED = 101, CANCELLED = 103 };
    return exit_code == FAILED || exit_code == NOT_FINISHED || exit_code == CANCELLED;
}

/* Ask the queue for the job's name. */
static diloco_status ask_name(const dl_job *job)
{
    dl_json_value queue;
    dl_buf text;
    DL_TRY(read_queue(&queue, &text));
    const diloco_status status = check_name(job, queue);
    dl_buf_deinit(&text);
    return status;
}

/* Without --follow `sky` prints the output so far. */
static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    int exit_code = 0;
    (void)spec;
    const char *const argv[] = {"sky",   "jobs", "logs", follow ? "--follow" : "--no-follow",
                                job->id, NULL};
    DL_TRY(ask_name(job));
    const diloco_status status = dl_command_lines(&exit_code, argv, NULL, 0, fn, user);
    return status == DILOCO_EIO && is_state(exit_code) ? DILOCO_OK : status;
}

/* A number. `sky` would take any other word as an option, such as --all. */
static bool is_id(const dl_job *job)
{
    return dl_id_is_number(job->id);
}

/* SkyPilot needs the number of GPUs and their type in one word. */
static diloco_status check(const dl_launch_spec *spec)
{
    const dl_config *config = spec->config;
    DL_TRY(dl_cloud_need(config->launch_image, "launch.image", "skypilot",
                         "docker.io/you/diloco:0.2"));
    if (!config->launch_gpus != !config->launch_gpu_type[0])
        return dl_fail(DILOCO_EINVAL, "skypilot needs launch.gpus and launch.gpu_type together, "
                                      "such as launch.gpus=1 and launch.gpu_type=L4");
    if (dl_command_exists("sky")) return check_version();
    return dl_fail(DILOCO_EINVAL, "skypilot: there is no program sky here: " INSTALL ", and  "
                                  "sky check  shows the clouds it can use");
}

/* A managed job has no time limit and no grace period. A search and a launch are two calls: not
 * exactly_once. */
const dl_executor dl_executor_skypilot = {
    .name = "skypilot",
    .needs = "SkyPilot's command sky, version 0.14, with the credentials of a cloud; "
             "launch.image",
    .tested = "a recorder in place of sky; its calls fit the source of SkyPilot 0.14.1. Not run "
              "against the real one",
    .options = "|image|machine|cpus|gpus|gpu_type|memory|disk|spot|region|",
    .without = "|dir|grace|timeout|",
    .caps = {.api = "the command sky of SkyPilot " KNOWN,
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "sky jobs logs",
             .restart = "of jobs whose machine was taken away or lost",
             .secrets = "secrets of the task",
             .price = "the machine that SkyPilot takes: launch.machine, launch.cpus, launch.gpus, "
                      "launch.gpu_type, launch.memory, launch.disk, launch.region, launch.spot; "
                      "its jobs controller costs as well",
             .spot = true,
             .in_image = true},
    .poll_s = 30,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
};
