/* jobs.c - see jobs.h. Each …_one function makes one call about one job, and turns its answer into
 * the job's state or an error. A client is opened for each launch, poll and cancel, so it has
 * credentials that were renewed meanwhile. */
#include "launch/cloud/jobs.h"

#include "base/clock.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The longest time between two reads of a log that is followed. */
#define LOG_PERIOD (5 * DL_SECOND)

/* ---- calls */

/* The type of a row's create, search, look and stop. */
typedef diloco_status (*write_fn)(dl_rest_call *call, const dl_rest *rest, const dl_job *job);

/* Make one call about a job. The caller frees response->text after success, and always deinits the
 * call. `once`: the client must not repeat it by itself. */
static diloco_status ask(dl_rest *rest, dl_rest_response *response, write_fn write,
                         const char *method, const dl_job *job, bool once, dl_rest_call *call)
{
    dl_rest_call_init(call, method, job->name);
    call->once = once;
    diloco_status status = write(call, rest, job);
    if (!status) status = dl_rest_do(rest, call, response);
    return status;
}

/* ---- launching */

/* Set the job's id from the answer to `search`. The backend's filter is not trusted to be exact, so
 * names are compared again. */
static void read_found(const dl_cloud_rows *rows, dl_job *job, dl_json_value response)
{
    char name[DL_JOB_NAME_MAX + 1];
    if (!rows->list_at) {
        dl_rest_text(job->id, sizeof job->id, response, rows->id_at);
        return;
    }
    for (dl_json_iter it = dl_json_each(dl_rest_at(response, rows->list_at)); dl_json_next(&it);)
        if (!strcmp(dl_rest_text(name, sizeof name, it.value, rows->name_at), job->name))
            dl_rest_text(job->id, sizeof job->id, it.value, rows->id_at);
}

/* Set the job's id if the backend has a job of its name. A 404 is an empty list for some
 * backends. */
static diloco_status search_one(const dl_cloud_rows *rows, dl_rest *rest, dl_job *job)
{
    dl_rest_call call;
    dl_rest_response response;
    diloco_status status =
        ask(rest, &response, rows->search, rows->search_method, job, false, &call);
    if (!status) {
        if (dl_rest_is_good(&response))
            read_found(rows, job, response.json);
        else if (response.status != 404)
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* May this character be a part of a value? */
static bool is_of_value(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("-_/:.", c));
}

/* Does a value continue here? A full stop or a colon ends it if no word follows. */
static bool continues(const char *at)
{
    if (*at == '.' || *at == ':') return at[1] && at[1] != ' ';
    return is_of_value(*at);
}

/* Returns true if the words have the text, and not as a part of a longer one. */
static bool has_word(const char *words, const char *text)
{
    const size_t len = strlen(text);
    for (const char *at = words; (at = strcasestr(at, text)); at++)
        if ((at == words || !is_of_value(at[-1])) && !continues(at + len)) return true;
    return false;
}

/* Returns true if the words have the value, or its part after the last '/', which is a region in
 * "aws/us-east-1". Three letters are too few to be found by chance. */
static bool repeats(const char *words, const char *value)
{
    const char *end = strrchr(value, '/');
    return (strlen(value) > 3 && has_word(words, value)) ||
           (end && strlen(end) > 4 && has_word(words, end + 1));
}

const char *dl_cloud_blamed(const dl_config *config, const char *words)
{
    const struct {
        const char *option, *value;
    } rows[] = {{"launch.region", config->launch_region},
                {"launch.gpu_type", config->launch_gpu_type},
                {"launch.machine", config->launch_machine},
                {"launch.image", config->launch_image}};
    if (strcasestr(words, "not authorized") || strcasestr(words, "denied")) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (repeats(words, rows[i].value)) return rows[i].option;
    return NULL;
}

/* The error of a creation that is refused, with the option that it is about. Only a refusal of what
 * was asked for (400, 404, 422) is about an option. A failure of the backend (5xx) may pass, and so
 * may a lack of machines: the replicas that run must not lose their launcher for it. */
static diloco_status refuse_creation(const dl_cloud_rows *rows, const dl_rest *rest,
                                     const dl_rest_call *call, const dl_rest_response *response)
{
    const diloco_status refused = dl_rest_refused(rest, call, response);
    const int code = response->status;
    if (rows->is_full && rows->is_full(response))
        return dl_fail(DILOCO_EUNREACHABLE, "%s" DL_CLOUD_QUOTA, diloco_error_text());
    if (code >= 500) return dl_fail(DILOCO_EUNREACHABLE, "%s", diloco_error_text());
    const bool asks = (code == 400 || code == 404 || code == 422) && !dl_rest_has_advice(response);
    const char *option = asks ? dl_cloud_blamed(rest->spec->config, response->why) : NULL;
    return option ? dl_fail(refused, "%s; check %s", diloco_error_text(), option) : refused;
}

/* Set the job's id from the answer to `create`. A name that is taken is a job of an earlier launch,
 * and its id is the name. */
static diloco_status read_created(const dl_cloud_rows *rows, const dl_rest *rest,
                                  const dl_rest_call *call, const dl_rest_response *response,
                                  dl_job *job)
{
    const bool good = dl_rest_is_good(response);
    if (!good && !(rows->is_taken && rows->is_taken(response)))
        return refuse_creation(rows, rest, call, response);
    if (good && rows->id_at)
        DL_TRY(dl_json_read_str(job->id, sizeof job->id, response->json, rows->id_at));
    else
        snprintf(job->id, sizeof job->id, "%s", job->name);
    if (good) dl_job_set(job, DL_JOB_PENDING, -1, "%s", "");
    return DILOCO_OK;
}

/* Create a job. Where names are not unique the call is made at most once: if its answer is lost,
 * the next launch finds the job by its name. */
static diloco_status create_one(const dl_cloud_rows *rows, dl_rest *rest, dl_job *job)
{
    dl_rest_call call;
    dl_rest_response response;
    /* A call that is repeated would start a second machine where names are not unique. */
    diloco_status status =
        ask(rest, &response, rows->create, rows->create_method, job, rows->search != NULL, &call);
    if (!status) {
        status = read_created(rows, rest, &call, &response, job);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* For --dry-run: only the creation is printed. */
static diloco_status print_one(const dl_cloud_rows *rows, dl_rest *rest, const dl_job *job)
{
    dl_rest_call call;
    dl_rest_call_init(&call, rows->create_method, job->name);
    diloco_status status = rows->create(&call, rest, job);
    if (!status) status = dl_rest_print(rest, &call);
    dl_rest_call_deinit(&call);
    return status;
}

/* Search first where names are not unique, else the creation itself finds an earlier job. */
static diloco_status launch_one(const dl_cloud_rows *rows, dl_rest *rest, dl_job *job)
{
    if (rest->spec->dry) return print_one(rows, rest, job);
    if (rows->search) DL_TRY(search_one(rows, rest, job));
    return *job->id ? DILOCO_OK : create_one(rows, rest, job);
}

/* The client is zeroed first, because dl_rest_deinit follows even if `open` fails before it fills
 * it in. */
diloco_status dl_cloud_launch(const dl_cloud_rows *rows, const dl_launch_spec *spec, dl_job *jobs,
                              size_t n)
{
    dl_rest rest = {.name = NULL};
    diloco_status status = rows->open(&rest, spec);
    for (size_t i = 0; !status && i < n; i++)
        status = launch_one(rows, &rest, &jobs[i]);
    dl_rest_deinit(&rest);
    return status;
}

/* Where names are unique the id is the name, and a look says whether the job exists. */
diloco_status dl_cloud_find(const dl_cloud_rows *rows, const dl_launch_spec *spec, dl_job *jobs,
                            size_t n)
{
    dl_rest rest = {.name = NULL};
    diloco_status status = rows->open(&rest, spec);
    for (size_t i = 0; !status && i < n; i++) {
        if (rows->search)
            status = search_one(rows, &rest, &jobs[i]);
        else
            snprintf(jobs[i].id, sizeof jobs[i].id, "%s", jobs[i].name);
    }
    dl_rest_deinit(&rest);
    return status;
}

/* ---- looking */

/* Most backends answer 404 for a job that does not exist. AWS answers 400, so its row decides. */
static bool is_gone(const dl_cloud_rows *rows, const dl_rest_response *response)
{
    return rows->is_gone ? rows->is_gone(response) : response->status == 404;
}

/* Does the answer to `look` have another name than the job? Sets `name` to it. */
static bool is_other(char name[DL_JOB_NAME_MAX + 1], const dl_cloud_rows *rows, const dl_job *job,
                     const dl_rest_response *response)
{
    *name = '\0';
    if (!rows->name_at) return false;
    dl_rest_message(name, DL_JOB_NAME_MAX + 1, response->json, rows->name_at);
    return strcmp(name, job->name) != 0;
}

/* The backend's job of an id: the one of our name, another one, or none. */
typedef enum found { FOUND_JOB, FOUND_OTHER, FOUND_NONE } found;

/* Look up the job's id at the backend. FOUND_OTHER: a job of another name, which `name` is
 * set to. The caller frees response->text after success. */
static diloco_status look_up(found *what, char name[DL_JOB_NAME_MAX + 1],
                             dl_rest_response *response, const dl_cloud_rows *rows, dl_rest *rest,
                             const dl_job *job)
{
    dl_rest_call call;
    diloco_status status = ask(rest, response, rows->look, rows->look_method, job, false, &call);
    *what = FOUND_NONE;
    if (!status && dl_rest_is_good(response))
        *what = is_other(name, rows, job, response) ? FOUND_OTHER : FOUND_JOB;
    else if (!status && !is_gone(rows, response)) {
        status = dl_rest_refused(rest, &call, response);
        dl_buf_deinit(&response->text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Set the job's state. With stop_deletes a job that is gone was deleted by a cancel, hence
 * CANCELLED. An answer ends the silence; `seen` marks an unknown state as silent again. */
static diloco_status look_at_one(const dl_cloud_rows *rows, dl_rest *rest, dl_job *job)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_rest_response response;
    found what;
    DL_TRY(look_up(&what, name, &response, rows, rest, job));
    job->silent = false;
    if (what == FOUND_OTHER)
        dl_job_set_other(job, name);
    else if (what == FOUND_JOB)
        rows->seen(job, response.json);
    else
        dl_job_set(job, rows->stop_deletes ? DL_JOB_CANCELLED : DL_JOB_LOST, -1,
                   "%s no longer has %.180s", rest->name, job->id);
    dl_buf_deinit(&response.text);
    return DILOCO_OK;
}

/* An error leaves the later jobs as they were. The supervisor waits it out if it may pass, and
 * polls all of them again. */
diloco_status dl_cloud_poll(const dl_cloud_rows *rows, const dl_launch_spec *spec, dl_job *jobs,
                            size_t n)
{
    dl_rest rest = {.name = NULL};
    diloco_status status = rows->open(&rest, spec);
    for (size_t i = 0; !status && i < n; i++)
        status = look_at_one(rows, &rest, &jobs[i]);
    dl_rest_deinit(&rest);
    return status;
}

/* ---- the name of a job */

/* A job that is gone has neither an effect nor output. */
static diloco_status check_name(const dl_cloud_rows *rows, dl_rest *rest, const dl_job *job)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_rest_response response;
    found what;
    DL_TRY(look_up(&what, name, &response, rows, rest, job));
    dl_buf_deinit(&response.text);
    return what == FOUND_OTHER ? dl_job_refuse_other(job, name) : DILOCO_OK;
}

diloco_status dl_cloud_check_name(const dl_cloud_rows *rows, const dl_launch_spec *spec,
                                  const dl_job *job)
{
    if (!rows->name_at) return DILOCO_OK;
    dl_rest rest = {.name = NULL};
    diloco_status status = rows->open(&rest, spec);
    if (!status) status = check_name(rows, &rest, job);
    dl_rest_deinit(&rest);
    return status;
}

/* ---- stopping */

/* A job that is gone or over does not have to be stopped. */
static diloco_status stop_one(const dl_cloud_rows *rows, dl_rest *rest, const dl_job *job)
{
    if (rows->name_at) DL_TRY(check_name(rows, rest, job));
    dl_rest_call call;
    dl_rest_response response;
    diloco_status status = ask(rest, &response, rows->stop, rows->stop_method, job, false, &call);
    if (!status) {
        const bool over = rows->is_over && rows->is_over(&response);
        if (!dl_rest_is_good(&response) && !is_gone(rows, &response) && !over)
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Every job is asked to stop, also after one that could not be. `why` keeps the text of the first
 * error, which later calls would replace. */
diloco_status dl_cloud_cancel(const dl_cloud_rows *rows, const dl_launch_spec *spec, dl_job *jobs,
                              size_t n)
{
    dl_rest rest = {.name = NULL};
    char why[DL_REST_WHY] = "";
    diloco_status first = rows->open(&rest, spec);
    if (first) n = 0, snprintf(why, sizeof why, "%s", diloco_error_text());
    for (size_t i = 0; i < n; i++) {
        const diloco_status status = stop_one(rows, &rest, &jobs[i]);
        if (status && !first) {
            first = status;
            snprintf(why, sizeof why, "%s", diloco_error_text());
        }
    }
    dl_rest_deinit(&rest);
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

/* ---- logs */

/* Between two reads of a log: launch.poll if that is shorter. */
static dl_time log_period(const dl_config *config)
{
    const dl_time poll = dl_time_from_seconds(config->launch_poll_s);
    return poll && poll < LOG_PERIOD ? poll : LOG_PERIOD;
}

/* A job that is over is not polled again. */
diloco_status dl_cloud_follow(const dl_cloud_log *log, dl_rest *rest, const dl_cloud_rows *rows,
                              const dl_job *job, bool follow)
{
    dl_job now = *job;
    DL_TRY(dl_cloud_check_name(rows, rest->spec, job));
    DL_TRY(log->read(log->reading, rest, job));
    while (follow) {
        const bool over = dl_job_is_over(now.state);
        dl_clock_sleep(log_period(rest->spec->config));
        diloco_status status = over ? DILOCO_OK : dl_cloud_poll(rows, rest->spec, &now, 1);
        if (!status) status = log->renew(rest);
        if (!status) status = log->read(log->reading, rest, job);
        if (status && status != DILOCO_EUNREACHABLE) return status;
        follow = status || !dl_job_is_over(now.state);
    }
    return DILOCO_OK;
}

/* ---- states */

/* The silent mark lets an unknown state count as running for launch.lost_after seconds: a backend
 * may add states that end nothing. 60 bytes of the state and 180 of the message fit into
 * DL_JOB_MESSAGE_MAX together. */
void dl_cloud_set(dl_job *job, const dl_cloud_state *table, const char *theirs, const char *message)
{
    for (; table->theirs; table++)
        if (strcmp(table->theirs, theirs) == 0) {
            dl_job_set(job, table->ours, -1, "%.60s%s%.180s", theirs, *message ? ": " : "",
                       message);
            return;
        }
    dl_job_set_silent(job, "the backend reports the unknown state %.60s",
                      *theirs ? theirs : "nothing");
}

/* SageMaker writes "exit code: 1", and Vertex AI "a non-zero status of 1". First letters are left
 * out because sentences begin with either case. */
int dl_cloud_code_in(const char *sentence)
{
    static const char *const before[] = {"xit code", "xitCode", "status of"};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *at = strstr(sentence, before[i]);
        if (!at) continue;
        at += strlen(before[i]);
        at += strspn(at, " :=\"");
        const long code = strtol(at, NULL, 10);
        if (*at >= '0' && *at <= '9' && code < 256) return (int)code;
    }
    return -1;
}

int dl_cloud_code_at(dl_json_value object, const char *path)
{
    char *text = dl_rest_copy(object, path);
    const int code = text ? dl_cloud_code_in(text) : -1;
    free(text);
    return code;
}

/* Codes above 128 are signals, as a shell reports them; Linux has 64. */
void dl_cloud_set_ended(dl_job *job, int code)
{
    if (code == diloco_exit_code(DILOCO_EINTERRUPTED))
        dl_job_set(job, DL_JOB_LOST, code, "stopped by its machine, state saved");
    else if (code > 128 && code <= 128 + 64)
        dl_job_set(job, DL_JOB_LOST, -1, "killed by signal %d (%s)", code - 128,
                   strsignal(code - 128));
    else
        dl_job_set(job, code ? DL_JOB_FAILED : DL_JOB_SUCCEEDED, code, "exit code %d", code);
}

/* ---- the replica's words and variables */

diloco_status dl_cloud_need(const char *value, const char *option, const char *executor,
                            const char *example)
{
    if (*value) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s is not set, and %s needs it: add --set %s=%s", option,
                   executor, option, example);
}

/* `skip` 1 leaves out the program, where the backend has a member of its own for it. */
diloco_status dl_cloud_argv(dl_json *j, const char *key, const dl_launch_spec *spec,
                            const char *rank, size_t skip)
{
    char **words;
    DL_TRY(dl_replica_argv(&words, spec, spec->program, rank));
    dl_json_array(j, key);
    for (char **word = words; *word; word++)
        if ((size_t)(word - words) >= skip) dl_json_str(j, NULL, *word);
    dl_json_end(j);
    dl_argv_free(words);
    return DILOCO_OK;
}

void dl_cloud_put_list(dl_json *j, const char *key, const char *only)
{
    dl_json_array(j, key);
    dl_json_str(j, NULL, only);
    dl_json_end(j);
}

int64_t dl_cloud_ceiling(double amount)
{
    return (int64_t)(amount + 0.999);
}

/* Each word is quoted, so that the backend's shell gets exactly these words. */
diloco_status dl_cloud_line(dl_buf *out, const dl_launch_spec *spec, const char *rank)
{
    char **words;
    DL_TRY(dl_replica_argv(&words, spec, spec->program, rank));
    diloco_status status = DILOCO_OK;
    for (char **word = words; !status && *word; word++) {
        if (word > words) status = dl_buf_add(out, " ", 1);
        if (!status) status = dl_shell_quote(out, *word);
    }
    dl_argv_free(words);
    return status;
}

/* A variable is a member of an object, or with `pair` an object in an array. */
static void put_variable(dl_json *j, const char *name, const char *value, bool pair)
{
    if (!pair) {
        dl_json_str(j, name, value);
        return;
    }
    dl_json_object(j, NULL);
    dl_json_str(j, "name", name);
    dl_json_str(j, "value", value);
    dl_json_end(j);
}

/* Each entry of launch.env has a '=': the command has checked that. */
void dl_cloud_put_env(dl_json *j, const dl_launch_spec *spec, const dl_job *job, bool pairs)
{
    char text[DL_PATH_MAX + 64];
    snprintf(text, sizeof text, "%u", job->rank);
    put_variable(j, "DILOCO_RANK", text, pairs);
    put_variable(j, "DILOCO_JOB", job->name, pairs);
    for (const char *const *e = spec->env; *e; e++) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(*e, "="), *e);
        put_variable(j, text, strchr(*e, '=') + 1, pairs);
    }
}

diloco_status dl_cloud_env(dl_json *j, const char *key, const dl_launch_spec *spec,
                           const dl_job *job, bool pairs)
{
    if (pairs)
        dl_json_array(j, key);
    else
        dl_json_object(j, key);
    dl_cloud_put_env(j, spec, job, pairs);
    dl_json_end(j);
    return DILOCO_OK;
}

/* A variable that is not set gives an empty value; the options' check has seen that it is set. */
void dl_cloud_secrets(dl_json *j, const char *key, const dl_launch_spec *spec)
{
    dl_json_object(j, key);
    for (const char *const *s = spec->secrets; *s; s++) {
        const char *value = getenv(*s);
        dl_json_str(j, *s, spec->dry ? "***" : value ? value : "");
    }
    dl_json_end(j);
}
