/* hf_jobs.c - replicas as Jobs of Hugging Face: POST /api/jobs/{namespace}.
 *
 * A job has no name that is unique, so each carries its name as a label, and is searched by it
 * before it is created. The namespace is launch.project, or the user that the token belongs to.
 * Output comes as server-sent events on a connection that the service does not close, so the end of
 * a log has to be inferred. */
#include "base/clock.h"
#include "base/file.h"
#include "launch/cloud/jobs.h"
#include "launch/executor_rows.h"

#include <stdlib.h>
#include <string.h>

/* Looks at the job, launch.poll apart, that a silence of its log lasts before the connection is
 * given up. */
enum { QUIET_LOOKS = 3 };

/* ---- credentials */

/* The first word of a file. Returns false if it cannot be read or is too long. */
static bool read_token(char *out, size_t cap, const char *path)
{
    dl_buf text;
    dl_buf_init(&text, 1 << 16);
    out[0] = '\0';
    if (!dl_file_read(&text, path) && dl_buf_str(&text)) {
        const size_t len = strcspn(dl_buf_str(&text), " \r\n");
        if (len < cap) snprintf(out, cap, "%.*s", (int)len, dl_buf_str(&text));
    }
    if (text.data) explicit_bzero(text.data, text.cap);
    dl_buf_deinit(&text);
    return out[0];
}

/* HF_TOKEN, then the file that `hf auth login` writes. HF_TOKEN_PATH names that file, and HF_HOME
 * the folder that holds it (huggingface_hub, "Environment variables"). */
static diloco_status find_token(char *out, size_t cap)
{
    char path[DL_PATH_MAX + 32];
    const char *token = getenv("HF_TOKEN"), *file = getenv("HF_TOKEN_PATH");
    const char *hub = getenv("HF_HOME"), *home = getenv("HOME");
    if (token && *token && strlen(token) < cap) {
        snprintf(out, cap, "%s", token);
        return DILOCO_OK;
    }
    if (file)
        snprintf(path, sizeof path, "%.1000s", file);
    else if (hub)
        snprintf(path, sizeof path, "%.1000s/token", hub);
    else
        snprintf(path, sizeof path, "%.1000s/.cache/huggingface/token", home ? home : "");
    if (read_token(out, cap, path)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "hf-jobs: no token in HF_TOKEN or %s: run  hf auth login", path);
}

/* The user's name is the namespace of the user's own jobs. */
static diloco_status ask_name(dl_rest *rest)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "GET", "the token's user");
    diloco_status status = dl_rest_path(&call, "/api/whoami-v2");
    if (!status) status = dl_rest_must(rest, &call, &response);
    if (!status) {
        dl_rest_text(rest->project, sizeof rest->project, response.json, "name");
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    if (!status && !rest->project[0])
        return dl_fail(DILOCO_EPROTO, "hf-jobs: the token's user has no name: set launch.project");
    return status;
}

/* HF_ENDPOINT is the variable of Hugging Face's own programs; launch.endpoint precedes it. A dry
 * run makes no request, so it prints "me" in place of a name that it would ask for. */
static diloco_status open_rest(dl_rest *rest, const dl_launch_spec *spec)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    DL_TRY(dl_rest_init(rest, spec, "Hugging Face",
                        endpoint && *endpoint ? endpoint : "https://huggingface.co"));
    memcpy(rest->project, spec->config->launch_project, sizeof rest->project - 1);
    if (spec->dry) {
        if (!rest->project[0]) strcpy(rest->project, "me");
        return DILOCO_OK;
    }
    DL_TRY(find_token(rest->who.token, sizeof rest->who.token));
    return rest->project[0] ? DILOCO_OK : ask_name(rest);
}

/* ---- calls */

/* /api/jobs/<namespace>[/<id>]<rest of path>. */
static diloco_status path_to(dl_rest_call *call, const dl_rest *rest, const char *id,
                             const char *rest_of_path)
{
    DL_TRY(dl_rest_path(call, "/api/jobs/"));
    DL_TRY(dl_rest_segment(call, rest->project));
    if (*id) {
        DL_TRY(dl_rest_path(call, "/"));
        DL_TRY(dl_rest_segment(call, id));
    }
    return dl_rest_path(call, "%s", rest_of_path);
}

/* `command` has all words, the program first. An empty `arguments` is as huggingface_hub sends it.
 * The limit of time is in whole seconds, rounded up; without it the service's own applies. */
static diloco_status create(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    const dl_launch_spec *spec = rest->spec;
    const dl_config *config = spec->config;
    dl_json *j = &call->json;
    char rank[16];
    snprintf(rank, sizeof rank, "%u", job->rank);
    DL_TRY(path_to(call, rest, "", ""));
    dl_json_object(j, NULL);
    DL_TRY(dl_cloud_argv(j, "command", spec, rank, 0));
    dl_json_array(j, "arguments");
    dl_json_end(j);
    DL_TRY(dl_cloud_env(j, "environment", spec, job, false));
    if (*spec->secrets) dl_cloud_secrets(j, "secrets", spec);
    dl_json_str(j, "flavor", config->launch_machine[0] ? config->launch_machine : "cpu-basic");
    if (config->launch_timeout_s > 0)
        dl_json_i64(j, "timeoutSeconds", dl_cloud_ceiling(config->launch_timeout_s));
    dl_json_object(j, "labels");
    dl_json_str(j, "name", job->name);
    dl_json_end(j);
    dl_json_str(j, "dockerImage", config->launch_image);
    dl_json_end(j);
    return DILOCO_OK;
}

/* The filter is the label name=<name>, escaped. */
static diloco_status search(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    DL_TRY(path_to(call, rest, "", "?label=name%3D"));
    return dl_rest_segment(call, job->name);
}

static diloco_status look(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    return path_to(call, rest, job->id, "");
}

/* The stages of a job (JobStage of huggingface_hub). */
static const dl_cloud_state states[] = {
    {"SCHEDULING", DL_JOB_PENDING},  {"RUNNING", DL_JOB_RUNNING}, {"UPDATING", DL_JOB_RUNNING},
    {"COMPLETED", DL_JOB_SUCCEEDED}, {"ERROR", DL_JOB_FAILED},    {"CANCELED", DL_JOB_CANCELLED},
    {"DELETED", DL_JOB_CANCELLED},   {NULL, DL_JOB_LOST}};

/* The exit code is only in the sentence of an error. */
static void seen(dl_job *job, dl_json_value response)
{
    char stage[64], message[256];
    dl_rest_text(stage, sizeof stage, response, "status.stage");
    dl_rest_message(message, sizeof message, response, "status.message");
    const int code = dl_cloud_code_at(response, "status.message");
    if (!strcmp(stage, "ERROR") && code > 0)
        dl_cloud_set_ended(job, code);
    else
        dl_cloud_set(job, states, stage, message);
}

static diloco_status stop(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    return path_to(call, rest, job->id, "/cancel");
}

/* The service refuses to cancel a job that is over. */
static bool is_over(const dl_rest_response *response)
{
    return response->status == 400 || response->status == 409;
}

/* Names are not unique, so there is a `search`. */
static const dl_cloud_rows rows = {.open = open_rest,
                                   .id_at = "id",
                                   .name_at = "labels.name",
                                   .list_at = "",
                                   .create = create,
                                   .create_method = "POST",
                                   .search = search,
                                   .search_method = "GET",
                                   .look = look,
                                   .look_method = "GET",
                                   .seen = seen,
                                   .stop = stop,
                                   .stop_method = "POST",
                                   .is_over = is_over};

/* ---- the executor: jobs.c with the row above */

/* Ids are hexadecimal digits today. That is not promised, so an id is only kept from being a
 * path. */
static bool is_id(const dl_job *job)
{
    return dl_id_is_plain(job->id, "-_");
}

DL_CLOUD_CALLS(rows)

/* ---- logs: events  data: {"data":"the line","timestamp":"2026-01-01T00:00:00.000Z"} */

/* A log that is being read. */
typedef struct reading {
    dl_job_line_fn fn;
    void *user;
    const dl_launch_spec *spec;
    const dl_job *job;
    const dl_rest_call *call; /* of the present connection; NULL between two */
    /* Events that were given, over all connections, and those that this connection repeats. */
    size_t given, repeated;
    /* The log is complete: a line later than the begin of the reading has come, or the job is
     * over. */
    bool follow, ended;
    bool over;      /* the job was over at the last look, and no event came since */
    dl_time looked; /* when the job was looked at */
} reading;

/* Between two looks at the job while its log is followed. */
static dl_time look_period(const reading *r)
{
    const double poll_s = r->spec->config->launch_poll_s;
    return dl_time_from_seconds(poll_s > 0 ? poll_s : dl_executor_hf_jobs.poll_s);
}

/* Is the job over? While the service does not say so it counts as running. */
static bool is_job_over(reading *r)
{
    dl_job now = *r->job;
    r->looked = dl_clock_now();
    return !poll_all(r->spec, &now, 1) && dl_job_is_over(now.state);
}

/* A keep-alive of a log that is followed: nothing else is to be sent at present. The log is
 * complete if the job is over at two looks, with no event between them. */
static diloco_status look_at_job(reading *r)
{
    if (!r->follow || dl_clock_now() - r->looked < look_period(r)) return DILOCO_OK;
    const bool before = r->over;
    r->over = is_job_over(r);
    r->ended = before && r->over;
    return r->ended ? dl_fail(DILOCO_ECLOSED, "the job is over") : DILOCO_OK;
}

/* Was this line written after the backend had answered? Then the earlier output is complete. Both
 * times are the backend's, so no clocks of two machines are compared. They are whole seconds: a
 * line of the same second is not later. */
static bool is_later(const reading *r, dl_json_value event)
{
    char at[64];
    dl_rest_text(at, sizeof at, event, "timestamp");
    return r->call->date && dl_web_time(at) > r->call->date;
}

/* Give the text of one event. Lines without the mark are comments or keep-alives, which begin with
 * a colon. An event that is not JSON is given as it is. */
static diloco_status give_event(void *user, const char *line, size_t len)
{
    static const char mark[] = "data:";
    reading *r = user;
    const size_t before = strlen(mark);
    dl_json_value event;
    if (len && line[0] == ':') return look_at_job(r);
    if (len < before || memcmp(line, mark, before) != 0) return DILOCO_OK;
    r->over = false;
    if (r->repeated) {
        r->repeated--;
        return DILOCO_OK;
    }
    r->given++;
    if (dl_json_parse(&event, line + before, len - before)) return r->fn(r->user, line, len);
    if (!r->follow && is_later(r, event)) {
        r->ended = true;
        return dl_fail(DILOCO_ECLOSED, "the output so far is complete");
    }
    return dl_rest_give_line(dl_json_get(event, "data"), r->fn, r->user);
}

/* Read the log on one connection, which has it from the begin. Without `follow` the output ends at
 * a later line, or after some seconds without one (quiet_ends). A reading that has ended is
 * complete, although the reader returned an error. */
static diloco_status read_once(reading *r, dl_rest *rest)
{
    dl_rest_call call;
    r->call = &call;
    r->repeated = r->given;
    dl_rest_call_init(&call, "GET", r->job->name);
    call.quiet_ends = !r->follow;
    if (r->follow) call.quiet = QUIET_LOOKS * look_period(r);
    diloco_status status = path_to(&call, rest, r->job->id, "/logs");
    if (!status) status = dl_rest_lines(rest, &call, give_event, r);
    dl_rest_call_deinit(&call);
    r->call = NULL;
    return r->ended ? DILOCO_OK : status;
}

/* The service may keep the connection of a job that is over. So a silence ends the connection of a
 * log that is followed, and the job is looked at before the next one. A connection that fails
 * sooner is an error. */
static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    dl_rest rest = {.name = NULL};
    reading r = {.fn = fn, .user = user, .spec = spec, .job = job, .follow = follow};
    diloco_status status = dl_cloud_check_name(&rows, spec, job);
    if (!status) status = open_rest(&rest, spec);
    while (!status) {
        const dl_time begin = dl_clock_now();
        status = read_once(&r, &rest);
        const bool silent = dl_clock_now() - begin >= QUIET_LOOKS * look_period(&r);
        if (!follow || status != DILOCO_EUNREACHABLE || !silent) break;
        status = DILOCO_OK;
        if (is_job_over(&r)) break;
    }
    dl_rest_deinit(&rest);
    return status;
}

static diloco_status check(const dl_launch_spec *spec)
{
    return dl_cloud_need(spec->config->launch_image, "launch.image", "hf-jobs",
                         "docker.io/you/diloco:0.2");
}

/* A search and a creation are two requests, between which another launcher may create the same job:
 * not exactly_once. */
const dl_executor dl_executor_hf_jobs = {
    .name = "hf-jobs",
    .needs = "a token in HF_TOKEN or of hf auth login; launch.image; launch.machine is the flavor",
    .tested = "a fake of this project; requests equal to those of huggingface_hub 2.4. "
              "Not run against the real one",
    .options = "|image|machine|project|endpoint|",
    .without = "|dir|grace|",
    .caps = {.api = "/api/jobs, which has no version",
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "events of the API",
             .restart = "no",
             .secrets = "secrets of the job",
             .price = "a flavor: launch.machine; hf jobs hardware lists the prices",
             .in_image = true},
    .poll_s = 10,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
};
