/* remote.c - see remote.h. Both sides are here, so that a change of the format is a change of one
 * file. The launcher and the other machine run the same program, since ssh.c uploads it. */
#include "launch/remote.h"

#include "base/json.h"
#include "launch/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a request or reply, words of an array of texts, and bytes of an error. */
enum { REQUEST_MAX = 16 << 20, WORDS_MAX = 1024, WHY_BYTES = 1024 };

/* ---- the launcher's side */

/* argv begins after the program, which is the serving one. Values of secrets are read from this
 * process's environment only here. */
static diloco_status put_start(dl_json *j, const dl_launch_spec *spec, const dl_job *job, bool hide)
{
    char rank[16], text[DL_JOB_NAME_MAX + 32], **words;
    snprintf(rank, sizeof rank, "%u", job->rank);
    DL_TRY(dl_replica_argv(&words, spec, "", rank));
    dl_json_array(j, "argv");
    for (char **word = words + 1; *word; word++)
        dl_json_str(j, NULL, *word);
    dl_json_end(j);
    dl_argv_free(words);
    dl_json_array(j, "env");
    for (const char *const *e = spec->env; *e; e++)
        dl_json_str(j, NULL, *e);
    snprintf(text, sizeof text, "DILOCO_RANK=%u", job->rank);
    dl_json_str(j, NULL, text);
    snprintf(text, sizeof text, "DILOCO_JOB=%s", job->name);
    dl_json_str(j, NULL, text);
    for (const char *const *s = spec->secrets; *s; s++) {
        const char *value = hide ? "***" : getenv(*s);
        char *all = NULL;
        if (asprintf(&all, "%s=%s", *s, value ? value : "") < 0)
            return dl_fail(DILOCO_ENOMEM, "out of memory for a request");
        dl_json_str(j, NULL, all);
        free(all);
    }
    dl_json_end(j);
    return DILOCO_OK;
}

/* timeout and grace are written for every request; only "start" reads them. */
diloco_status dl_remote_request(dl_buf *out, const dl_launch_spec *spec, const char *what,
                                const dl_job *jobs, size_t n, bool follow, bool hide)
{
    dl_json j;
    const bool start = strcmp(what, "start") == 0;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_u64(&j, "format", 1);
    dl_json_str(&j, "do", what);
    dl_json_str(&j, "dir", spec->dir);
    dl_json_bool(&j, "follow", follow);
    dl_json_f64(&j, "timeout", spec->config->launch_timeout_s);
    dl_json_f64(&j, "grace", spec->config->launch_grace_s);
    dl_json_array(&j, "jobs");
    for (size_t i = 0; i < n; i++) {
        dl_json_object(&j, NULL);
        dl_json_str(&j, "name", jobs[i].name);
        if (start) DL_TRY(put_start(&j, spec, &jobs[i], hide));
        dl_json_end(&j);
    }
    dl_json_end(&j);
    dl_json_end(&j);
    return dl_json_done(&j);
}

/* The job of this name; NULL if it is not one of the n. A name from the other machine is only
 * compared. */
static dl_job *named(dl_job *jobs, size_t n, dl_json_value name)
{
    for (size_t i = 0; i < n; i++)
        if (dl_json_is(name, jobs[i].name)) return &jobs[i];
    return NULL;
}

/* A state or exit code that this version does not know makes the reply invalid. */
static diloco_status take_job(dl_job *job, dl_json_value value)
{
    char state[16], message[DL_JOB_MESSAGE_MAX + 1];
    int64_t code;
    dl_job_state known;
    DL_TRY(dl_json_read_str(state, sizeof state, value, "state"));
    DL_TRY(dl_json_read_i64(&code, value, "code", -1, 255));
    DL_TRY(dl_json_read_str(message, sizeof message, value, "message"));
    if (!dl_job_state_of(&known, state))
        return dl_fail(DILOCO_EPROTO, "there is no state %.16s", state);
    dl_job_set(job, known, (int)code, "%s", message);
    job->silent = false;
    return DILOCO_OK;
}

diloco_status dl_remote_reply(dl_job *jobs, size_t n, const void *text, size_t len)
{
    dl_json_value reply;
    char why[WHY_BYTES];
    for (size_t i = 0; i < n; i++)
        jobs[i].silent = true;
    DL_TRY(dl_json_parse(&reply, text, len));
    dl_json_iter it = dl_json_each(dl_json_get(reply, "jobs"));
    while (dl_json_next(&it)) {
        dl_job *job = named(jobs, n, dl_json_get(it.value, "name"));
        if (!job) return dl_fail(DILOCO_EPROTO, "the reply has a job that was not requested");
        if (!job->silent) return dl_fail(DILOCO_EPROTO, "the reply has a job twice");
        DL_TRY(take_job(job, it.value));
    }
    if (dl_json_get(reply, "error").type != DL_JSON_MISSING) {
        DL_TRY(dl_json_read_str(why, sizeof why, reply, "error"));
        return dl_fail(DILOCO_EIO, "%s", why);
    }
    for (size_t i = 0; i < n; i++)
        if (jobs[i].silent) return dl_fail(DILOCO_EPROTO, "the reply lacks a job");
    return DILOCO_OK;
}

/* ---- the other machine's side */

/* A request as it was read. `jobs` points into its text. */
typedef struct request {
    dl_json_value jobs;
    dl_config_path dir;
    bool follow;
    double timeout, grace;
    char what[16];
} request;

/* To the end of the file, which the launcher's ssh closes after the request. Larger requests than
 * out->max are an error. */
static diloco_status read_all(dl_buf *out, int fd)
{
    char bytes[1 << 16];
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) != 0;) {
        if (n < 0 && errno != EINTR) return dl_fail_errno(errno, "read", "the request");
        if (n > 0) DL_TRY(dl_buf_add(out, bytes, (size_t)n));
    }
    return DILOCO_OK;
}

/* A relative folder is made absolute, since the keeper changes its working folder. */
static diloco_status read_request(request *r, const dl_buf *text)
{
    dl_json_value value;
    uint64_t format;
    dl_config_path dir, here;
    DL_TRY(dl_json_parse(&value, text->data, text->len));
    DL_TRY(dl_json_read_u64(&format, value, "format", UINT32_MAX));
    if (format != 1)
        return dl_fail(DILOCO_EPROTO, "the request's format is %llu, and this program knows 1",
                       (unsigned long long)format);
    DL_TRY(dl_json_read_str(r->what, sizeof r->what, value, "do"));
    DL_TRY(dl_json_read_str(dir, sizeof dir, value, "dir"));
    DL_TRY(dl_json_read_bool(&r->follow, value, "follow"));
    DL_TRY(dl_json_read_f64(&r->timeout, value, "timeout"));
    DL_TRY(dl_json_read_f64(&r->grace, value, "grace"));
    r->jobs = dl_json_get(value, "jobs");
    if (dir[0] == '/') {
        memcpy(r->dir, dir, sizeof dir);
        return DILOCO_OK;
    }
    if (!getcwd(here, sizeof here)) return dl_fail_errno(errno, "find", "the working folder");
    const int n = snprintf(r->dir, sizeof r->dir, "%s/%s", here, dir);
    return (size_t)n < sizeof r->dir ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "%s: too long", dir);
}

/* A name becomes a folder, so it may hold nothing but letters, digits and '-'. In particular no
 * '/'. */
static diloco_status read_name(dl_job *job, dl_json_value value)
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    *job = (dl_job){.exit_code = -1};
    DL_TRY(dl_json_read_str(job->name, sizeof job->name, value, "name"));
    if (*job->name && strspn(job->name, fine) == strlen(job->name)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "a job's name is invalid");
}

/* Read the texts of a list into words[n] and the following ones. The caller frees all of them, also
 * after an error. */
static diloco_status read_words(char **words, size_t n, dl_json_value list)
{
    dl_json_iter it = dl_json_each(list);
    while (dl_json_next(&it)) {
        if (n == WORDS_MAX) return dl_fail(DILOCO_EPROTO, "too many arguments");
        const size_t cap = (size_t)(it.value.end - it.value.at) + 1;
        words[n] = malloc(cap);
        if (!words[n]) return dl_fail(DILOCO_ENOMEM, "out of memory for a request");
        DL_TRY(dl_json_as_str(words[n], cap, it.value));
        n++;
    }
    return DILOCO_OK;
}

/* Start one job with this program itself: the request must not choose another. argv[0] is its path;
 * the words of the request follow it. One array holds argv and env, each with its NULL at the end.
 */
static diloco_status start_job(const request *r, const dl_job *job, dl_json_value value)
{
    char **argv = calloc(2 * (WORDS_MAX + 1), sizeof *argv);
    if (!argv) return dl_fail(DILOCO_ENOMEM, "out of memory for a request");
    char **env = argv + WORDS_MAX + 1;
    char self[DL_PATH_MAX + 1];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    diloco_status status =
        n > 0 ? DILOCO_OK : dl_fail(DILOCO_EIO, "this program's own file is not known");
    if (!status && !(argv[0] = strndup(self, (size_t)n)))
        status = dl_fail(DILOCO_ENOMEM, "out of memory for a request");
    if (!status) status = read_words(argv, 1, dl_json_get(value, "argv"));
    if (!status) status = read_words(env, 0, dl_json_get(value, "env"));
    const dl_host_start start = {.dir = r->dir,
                                 .name = job->name,
                                 .argv = (const char *const *)(uintptr_t)argv,
                                 .env = (const char *const *)(uintptr_t)env,
                                 .timeout_s = r->timeout,
                                 .grace_s = r->grace};
    if (!status) status = dl_host_start_one(&start);
    for (size_t i = 0; i < 2 * (WORDS_MAX + 1); i++)
        free(argv[i]);
    free(argv);
    return status;
}

/* A folder that does not exist any more means LOST, as for local. */
static diloco_status poll_job(const request *r, dl_job *job)
{
    const diloco_status status = dl_host_poll(r->dir, job);
    if (status != DILOCO_ENOENT) return status;
    dl_job_set(job, DL_JOB_LOST, -1, "its folder is not in %.180s", r->dir);
    return DILOCO_OK;
}

/* Each request ends with a poll, so that the reply always has the state after it. */
static diloco_status do_job(const request *r, dl_job *job, dl_json_value value)
{
    DL_TRY(read_name(job, value));
    if (strcmp(r->what, "start") == 0) DL_TRY(start_job(r, job, value));
    if (strcmp(r->what, "cancel") == 0) DL_TRY(dl_host_cancel(r->dir, job->name));
    return poll_job(r, job);
}

static void put_reply(dl_json *j, const dl_job *job)
{
    dl_json_object(j, NULL);
    dl_json_str(j, "name", job->name);
    dl_json_str(j, "state", dl_job_state_name(job->state));
    dl_json_i64(j, "code", job->exit_code);
    dl_json_str(j, "message", job->message);
    dl_json_end(j);
}

/* Do what the request asks for each job, and write the states of those that succeeded. The first
 * error goes to `why`. A start that failed ends it, since the next would fail, too. Returns
 * DILOCO_EPROTO at once: the request itself is invalid then. */
static diloco_status do_each(const request *r, dl_json *j, char why[WHY_BYTES])
{
    dl_job job;
    dl_json_iter it = dl_json_each(r->jobs);
    while (dl_json_next(&it)) {
        const diloco_status status = do_job(r, &job, it.value);
        if (status == DILOCO_EPROTO) return status;
        if (!status) put_reply(j, &job);
        if (status && !*why) snprintf(why, WHY_BYTES, "%s", diloco_error_text());
        if (status && strcmp(r->what, "start") == 0) break;
    }
    return DILOCO_OK;
}

/* The reply is written as a whole, after all jobs. It has the jobs before one that failed: the
 * launcher must know which replicas run. */
static diloco_status do_jobs(const request *r, FILE *out)
{
    dl_buf text;
    dl_json j;
    char why[WHY_BYTES] = "";
    dl_buf_init(&text, REQUEST_MAX);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_json_u64(&j, "format", 1);
    dl_json_array(&j, "jobs");
    diloco_status status = do_each(r, &j, why);
    dl_json_end(&j);
    if (*why) dl_json_str(&j, "error", why);
    dl_json_end(&j);
    if (!status) status = dl_json_done(&j);
    if (!status) fprintf(out, "%.*s\n", (int)text.len, (const char *)text.data);
    dl_buf_deinit(&text);
    return status;
}

/* A launcher that was interrupted closes the connection. That ends the reading of the log. */
static diloco_status print_line(void *user, const char *line, size_t len)
{
    FILE *out = user;
    fprintf(out, "%.*s\n", (int)len, line);
    return fflush(out) ? dl_fail(DILOCO_EIO, "the reader of the output has closed it") : DILOCO_OK;
}

/* Only the first job of the request counts, since lines of a log do not say which replica wrote
 * them. */
static diloco_status do_logs(const request *r, FILE *out)
{
    dl_job job;
    dl_json_iter it = dl_json_each(r->jobs);
    if (!dl_json_next(&it)) return dl_fail(DILOCO_EPROTO, "the request names no job");
    DL_TRY(read_name(&job, it.value));
    return dl_host_logs(r->dir, job.name, r->follow ? dl_host_is_alive : NULL, print_line, out);
}

/* Unknown requests come from a launcher of a later version. */
static diloco_status serve(const request *r, FILE *out)
{
    static const char *const known[] = {"start", "poll", "cancel"};
    if (strcmp(r->what, "logs") == 0) return do_logs(r, out);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(r->what, known[i]) == 0) return do_jobs(r, out);
    return dl_fail(DILOCO_EPROTO, "the request has an unknown command");
}

diloco_status dl_remote_serve(int in, FILE *out)
{
    dl_buf text;
    request r;
    dl_buf_init(&text, REQUEST_MAX);
    diloco_status status = read_all(&text, in);
    if (!status) status = read_request(&r, &text);
    if (!status) status = serve(&r, out);
    dl_buf_deinit(&text);
    return status;
}
