/* azureml.c - replicas as command jobs of Azure Machine Learning: PUT …/jobs/{name} of its resource
 * provider, one job a replica.
 *
 * Names are unique in a workspace. A second PUT of a name changes the first job, so a job is looked
 * up before it is created. The API has no channel for secrets: replicas reach an az:// store by the
 * managed identity of their compute target.
 *
 * The API has no exit code, so a job that failed may be one that was killed. It counts as LOST, and
 * launch.restarts bounds how often it is started again.
 *
 * Output is a file in a storage account of the workspace. The run history service of the
 * workspace's region signs an address of it. */
#include "base/clock.h"
#include "base/host_port.h"
#include "launch/cloud/jobs.h"
#include "launch/executor_rows.h"
#include "launch/lines.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The version of the Machine Learning REST API that the members below are from, and the resource
 * provider in the path of a workspace. */
#define API_VERSION "2025-12-01"
#define PROVIDER    "/providers/Microsoft.MachineLearningServices/workspaces/"
#define NAME        "Azure ML"

/* The scope of tokens. The services of a region accept those of the resource manager, and
 * azure-ai-ml sends them no others: MLClient replaces the default scope of their clients. */
#define SCOPE "https://management.azure.com/.default"

/* Seconds before its end at which a token is renewed: longer than a call takes. PIECE is the most
 * bytes of output in one request. */
enum { EARLY_S = 60, PIECE = 4 << 20 };

/* For the reasons of all failures in one poll. */
#define REASONS_TIME (10 * DL_SECOND)

/* ---- credentials: OAuth 2.0 client credentials of a service principal */

/* A field of a form, its value escaped. `before` has the name. */
static diloco_status add_field(dl_buf *body, const char *before, const char *value)
{
    DL_TRY(dl_buf_addf(body, "%s", before));
    return dl_web_escape(body, value, false);
}

/* The form of a client credentials grant (Microsoft identity platform, "OAuth 2.0 client
 * credentials flow"). */
static diloco_status write_grant(dl_rest_call *call, const char *tenant, const char *id,
                                 const char *secret)
{
    call->type = "application/x-www-form-urlencoded";
    DL_TRY(dl_rest_path(call, "/"));
    DL_TRY(dl_rest_segment(call, tenant));
    DL_TRY(dl_rest_path(call, "/oauth2/v2.0/token"));
    DL_TRY(add_field(&call->body, "grant_type=client_credentials&client_id=", id));
    DL_TRY(add_field(&call->body, "&client_secret=", secret));
    return add_field(&call->body, "&scope=", SCOPE);
}

/* AZURE_AUTHORITY_HOST is for other clouds of Azure, such as Azure Government. launch.endpoint does
 * not apply to the token service. */
static diloco_status request_token(dl_credentials *out, const dl_launch_spec *spec)
{
    const char *tenant = getenv("AZURE_TENANT_ID"), *id = getenv("AZURE_CLIENT_ID");
    const char *secret = getenv("AZURE_CLIENT_SECRET"), *host = getenv("AZURE_AUTHORITY_HOST");
    dl_rest rest;
    dl_rest_call call;
    if (!tenant || !*tenant || !id || !*id || !secret || !*secret)
        return dl_fail(DILOCO_EINVAL, "azureml: AZURE_TENANT_ID, AZURE_CLIENT_ID and "
                                      "AZURE_CLIENT_SECRET of a service principal are not set: "
                                      "az ad sp create-for-rbac  makes one");
    DL_TRY(dl_rest_init_at(&rest, spec, "Microsoft Entra ID",
                           host && *host ? host : "https://login.microsoftonline.com"));
    snprintf(rest.who.secret, sizeof rest.who.secret, "%s", secret); /* hidden in error texts */
    dl_rest_call_init(&call, "POST", "a token");
    diloco_status status = write_grant(&call, tenant, id, secret);
    if (!status) status = dl_rest_token(out, &rest, &call);
    dl_rest_call_deinit(&call);
    dl_rest_deinit(&rest);
    return status;
}

/* Give the client a token. It is kept for the process: a poll every few seconds must not request
 * one each time. */
static diloco_status use_token(dl_rest *rest)
{
    static dl_credentials known;
    if (!known.token[0] || (int64_t)dl_clock_wall() > known.expires - EARLY_S) {
        const diloco_status status = request_token(&known, rest->spec);
        if (status) {
            explicit_bzero(&known, sizeof known);
            return status;
        }
    }
    rest->who = known;
    return DILOCO_OK;
}

static diloco_status open_rest(dl_rest *rest, const dl_launch_spec *spec)
{
    DL_TRY(dl_rest_init(rest, spec, NAME, "https://management.azure.com"));
    return spec->dry ? DILOCO_OK : use_token(rest);
}

/* ---- names of resources */

/* launch.project is SUBSCRIPTION/GROUP/WORKSPACE. Returns false if it has not three parts. Each
 * part has at most 127 bytes. */
static bool split_project(char part[3][128], const char *project)
{
    for (int i = 0; i < 3; i++) {
        const size_t len = strcspn(project, "/");
        if (!len || len >= 128 || project[len] != (i < 2 ? '/' : '\0')) return false;
        snprintf(part[i], 128, "%.*s", (int)len, project);
        project += len + 1;
    }
    return true;
}

/* Append the workspace's resource id, with which every path begins. Parts are escaped, since they
 * come from an option. */
static diloco_status add_workspace(dl_buf *out, const dl_config *config)
{
    static const char *const before[] = {"/subscriptions/", "/resourceGroups/", PROVIDER};
    char part[3][128];
    if (!split_project(part, config->launch_project))
        return dl_fail(DILOCO_EINVAL,
                       "launch.project = \"%.100s\": azureml needs it as "
                       "SUBSCRIPTION/RESOURCE-GROUP/WORKSPACE",
                       config->launch_project);
    for (int i = 0; i < 3; i++) {
        DL_TRY(dl_buf_addf(out, "%s", before[i]));
        DL_TRY(dl_web_escape(out, part[i], false));
    }
    return DILOCO_OK;
}

/* Write a member that is the id of a resource of the workspace. `format` makes the part below the
 * workspace, such as "/computes/NAME", of at most 511 bytes. */
static diloco_status put_id(dl_json *j, const char *key, const dl_config *config,
                            const char *format, ...) DL_PRINTF(4, 5);
static diloco_status put_id(dl_json *j, const char *key, const dl_config *config,
                            const char *format, ...)
{
    char rest[512];
    va_list args;
    dl_buf id;
    va_start(args, format);
    vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    dl_buf_init(&id, 4096);
    diloco_status status = add_workspace(&id, config);
    if (!status) status = dl_buf_addf(&id, "%s", rest);
    const char *text = status ? NULL : dl_buf_str(&id);
    if (text) dl_json_str(j, key, text);
    dl_buf_deinit(&id);
    return text ? DILOCO_OK : status ? status : dl_fail(DILOCO_ENOMEM, "out of memory for an id");
}

/* ---- calls */

/* The path of a job, for look, search and create. */
static diloco_status path_to(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    DL_TRY(add_workspace(&call->path, rest->spec->config));
    DL_TRY(dl_rest_path(call, "/jobs/"));
    DL_TRY(dl_rest_segment(call, job->name));
    return dl_rest_path(call, "?api-version=" API_VERSION);
}

/* The command is one line of a shell, which Azure ML runs in the environment's image. */
static diloco_status put_command(dl_json *j, const dl_launch_spec *spec, const dl_job *job)
{
    char rank[16];
    dl_buf line;
    snprintf(rank, sizeof rank, "%u", job->rank);
    dl_buf_init(&line, 1 << 20);
    diloco_status status = dl_cloud_line(&line, spec, rank);
    const char *text = status ? NULL : dl_buf_str(&line);
    if (text) dl_json_str(j, "command", text);
    dl_buf_deinit(&line);
    DL_TRY(status);
    return text ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for a command");
}

/* The managed identity is the compute's own, or the one of the client id launch.role. Durations are
 * in ISO 8601. */
static void put_limits(dl_json *j, const dl_config *config)
{
    char text[32];
    dl_json_object(j, "resources");
    dl_json_i64(j, "instanceCount", 1);
    dl_json_end(j);
    dl_json_object(j, "identity");
    dl_json_str(j, "identityType", "Managed");
    if (config->launch_role[0]) dl_json_str(j, "clientId", config->launch_role);
    dl_json_end(j);
    if (config->launch_timeout_s <= 0) return;
    snprintf(text, sizeof text, "PT%lldS", (long long)dl_cloud_ceiling(config->launch_timeout_s));
    dl_json_object(j, "limits");
    dl_json_str(j, "jobLimitsType", "Command");
    dl_json_str(j, "timeout", text);
    dl_json_end(j);
}

/* An environment is an image that was registered in the workspace as NAME:VERSION. check() has seen
 * that there is a version. */
static diloco_status create(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    const dl_launch_spec *spec = rest->spec;
    const dl_config *config = spec->config;
    const char *version = strrchr(config->launch_image, ':');
    char group[32];
    dl_json *j = &call->json;
    DL_TRY(path_to(call, rest, job));
    snprintf(group, sizeof group, "diloco-%.8s", spec->run);
    dl_json_object(j, NULL);
    dl_json_object(j, "properties");
    dl_json_str(j, "jobType", "Command");
    dl_json_str(j, "displayName", job->name);
    dl_json_str(j, "experimentName", group);
    DL_TRY(put_command(j, spec, job));
    DL_TRY(put_id(j, "environmentId", config, "/environments/%.*s/versions/%s",
                  (int)(version - config->launch_image), config->launch_image, version + 1));
    DL_TRY(put_id(j, "computeId", config, "/computes/%s", config->launch_machine));
    DL_TRY(dl_cloud_env(j, "environmentVariables", spec, job, false));
    put_limits(j, config);
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* The service stops the job later; its state is CancelRequested until then. */
static diloco_status stop(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    DL_TRY(add_workspace(&call->path, rest->spec->config));
    DL_TRY(dl_rest_path(call, "/jobs/"));
    DL_TRY(dl_rest_segment(call, job->name));
    return dl_rest_path(call, "/cancel?api-version=" API_VERSION);
}

/* The API refuses to cancel a job that has ended. */
static bool is_over(const dl_rest_response *response)
{
    return response->status == 400 || response->status == 409;
}

/* The states of a job (JobStatus of the Machine Learning REST API). A job that is being cancelled
 * is still paid for: it counts as running until it has ended. */
static const dl_cloud_state states[] = {
    {"NotStarted", DL_JOB_PENDING}, {"Queued", DL_JOB_PENDING},
    {"Preparing", DL_JOB_STARTING}, {"Provisioning", DL_JOB_STARTING},
    {"Starting", DL_JOB_STARTING},  {"Running", DL_JOB_RUNNING},
    {"Finalizing", DL_JOB_RUNNING}, {"CancelRequested", DL_JOB_RUNNING},
    {"Paused", DL_JOB_RUNNING},     {"Completed", DL_JOB_SUCCEEDED},
    {"Canceled", DL_JOB_CANCELLED}, {"Failed", DL_JOB_LOST},
    {"NotResponding", DL_JOB_LOST}, {NULL, DL_JOB_LOST}};

/* The message says why a failed job counts as LOST; `explain` may replace it. */
static void seen(dl_job *job, dl_json_value response)
{
    char status[64];
    dl_rest_text(status, sizeof status, response, "properties.status");
    dl_cloud_set(job, states, status,
                 strcmp(status, "Failed") ? "" : "Azure ML reports no exit code");
}

/* `search` reads the job of the name, because `create` would change one that exists. The id is the
 * name, which the answers repeat. */
static const dl_cloud_rows rows = {.open = open_rest,
                                   .id_at = "name",
                                   .create = create,
                                   .create_method = "PUT",
                                   .search = path_to,
                                   .search_method = "GET",
                                   .look = path_to,
                                   .look_method = "GET",
                                   .seen = seen,
                                   .stop = stop,
                                   .stop_method = "POST",
                                   .is_over = is_over};

/* ---- the executor: jobs.c with the row above */

/* The id is the name. */
static bool is_id(const dl_job *job)
{
    return strcmp(job->id, job->name) == 0;
}

DL_CLOUD_CALLS(rows)

/* ---- logs
 *
 * The requests are those of the package azure-ai-ml 1.35. The workspace (Machine Learning REST API,
 * "Workspaces - Get") has a discoveryUrl, whose answer has the address "api" of the region. There
 * GET history/v1.0/…/runs/{name}/details has logFiles, an object of names of files and signed
 * addresses. The file user_logs/std_log.txt is stdout and stderr of a job (Microsoft Learn, "View
 * and download job logs in Azure Machine Learning studio"). */

/* A position in the output. */
typedef struct reading {
    uint64_t at;    /* bytes that were read */
    bool found;     /* the job has a file of output */
    dl_lines lines; /* the line that is not complete */
} reading;

/* Write the part of a URL before its path to base[DL_REST_BASE], and return the rest. Returns NULL
 * if Azure sent an address that is no https URL of a plain host. Such a host on this machine may
 * have http. */
static const char *split_url(char base[DL_REST_BASE], const char *url)
{
    const char *host = strstr(url, "://");
    const size_t len = host ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?#") : 0;
    base[0] = '\0';
    if (!len || len >= DL_REST_BASE) return NULL;
    snprintf(base, DL_REST_BASE, "%.*s", (int)len, url);
    if (strpbrk(base, "@ \\")) return NULL;
    for (const char *at = url + len; *at; at++)
        if (*at <= ' ' || *at > '~') return NULL;
    return !strncmp(url, "https://", 8) || dl_url_is_loopback(base) ? url + len : NULL;
}

/* GET an address that Azure has sent. It has its own signature, so the client has no token. `range`
 * is a header, or "". With `until`, a time, it is tried once and ends then; 0: none. The caller
 * frees response->text after success. A range after the end of a file (416) is no error. */
static diloco_status get_url(dl_rest_response *response, const dl_launch_spec *spec,
                             const char *what, const char *url, const char *range, dl_time until)
{
    char base[DL_REST_BASE];
    dl_rest rest;
    dl_rest_call call;
    const char *path = split_url(base, url);
    if (!path) return dl_fail(DILOCO_EPROTO, "%s: Azure ML sent an invalid address", what);
    DL_TRY(dl_rest_init_at(&rest, spec, NAME, base));
    snprintf(rest.headers[0], sizeof rest.headers[0], "%s", range);
    dl_rest_call_init(&call, "GET", what);
    call.once = until != 0;
    call.until = until;
    diloco_status status = dl_buf_add(&call.path, path, strlen(path));
    if (!status) status = dl_rest_do(&rest, &call, response);
    if (!status && !dl_rest_is_good(response) && response->status != 416) {
        status = dl_rest_refused(&rest, &call, response);
        dl_buf_deinit(&response->text);
    }
    dl_rest_call_deinit(&call);
    dl_rest_deinit(&rest);
    return status;
}

/* The address of the workspace's discovery service, in *url, which the caller frees. */
static diloco_status find_discovery(char **url, const dl_launch_spec *spec, dl_time until)
{
    dl_rest rest = {.name = NULL};
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "GET", "the workspace");
    call.once = until != 0;
    call.until = until;
    diloco_status status = open_rest(&rest, spec);
    if (!status) status = add_workspace(&call.path, spec->config);
    if (!status) status = dl_rest_path(&call, "?api-version=" API_VERSION);
    if (!status) status = dl_rest_must(&rest, &call, &response);
    if (!status) {
        *url = dl_rest_copy(response.json, "properties.discoveryUrl");
        dl_buf_deinit(&response.text);
        if (!*url) status = dl_fail(DILOCO_EPROTO, "the workspace has no discoveryUrl");
    }
    dl_rest_call_deinit(&call);
    dl_rest_deinit(&rest);
    return status;
}

/* Open a client of the services of the workspace's region, with `until` as get_url. It
 * gets a token, so its address must be https. */
static diloco_status open_history(dl_rest *rest, const dl_launch_spec *spec, dl_time until)
{
    char base[DL_REST_BASE], api[DL_REST_BASE] = "";
    char *url = NULL;
    dl_rest_response response;
    DL_TRY(find_discovery(&url, spec, until));
    diloco_status status =
        get_url(&response, spec, "the services of the workspace", url, "", until);
    free(url);
    DL_TRY(status);
    dl_rest_text(api, sizeof api, response.json, "api");
    dl_buf_deinit(&response.text);
    if (!split_url(base, api))
        return dl_fail(DILOCO_EPROTO, "the services of the workspace have no address \"api\"");
    DL_TRY(dl_rest_init_at(rest, spec, NAME, api));
    return use_token(rest);
}

/* GET the details of the job's run. The caller frees response->text after success. */
static diloco_status get_details(dl_rest_response *response, dl_rest *rest, const dl_job *job,
                                 dl_time until)
{
    dl_rest_call call;
    dl_rest_call_init(&call, "GET", job->name);
    call.once = until != 0;
    call.until = until;
    diloco_status status = dl_rest_path(&call, "/history/v1.0");
    if (!status) status = add_workspace(&call.path, rest->spec->config);
    if (!status) status = dl_rest_path(&call, "/runs/%s/details", job->name);
    if (!status) status = dl_rest_must(rest, &call, response);
    dl_rest_call_deinit(&call);
    return status;
}

/* The signed address of the job's output, in *url, which the caller frees. NULL is no
 * error: the job has written nothing yet. The second name is that of an older runtime. */
static diloco_status find_output(char **url, dl_rest *rest, const dl_job *job)
{
    static const char *const names[] = {"user_logs/std_log.txt", "azureml-logs/70_driver_log.txt"};
    dl_rest_response response;
    *url = NULL;
    DL_TRY(get_details(&response, rest, job, 0));
    const dl_json_value files = dl_json_get(response.json, "logFiles");
    for (size_t i = 0; !*url && i < sizeof names / sizeof *names; i++)
        *url = dl_rest_copy(dl_json_get(files, names[i]), "");
    dl_buf_deinit(&response.text);
    return DILOCO_OK;
}

/* Read at most PIECE bytes after the position. *more: there may be further ones. A server that
 * ignores the range sends the whole file. */
static diloco_status read_piece(reading *r, const dl_launch_spec *spec, const dl_job *job,
                                const char *url, bool *more)
{
    char range[96];
    dl_rest_response response;
    snprintf(range, sizeof range, "Range: bytes=%" PRIu64 "-%" PRIu64, r->at, r->at + PIECE - 1);
    DL_TRY(get_url(&response, spec, job->name, url, range, 0));
    const size_t all = response.status == 416 ? 0 : response.text.len;
    const size_t skip = response.status == 206 ? 0 : (size_t)(r->at < all ? r->at : all);
    const diloco_status status =
        all > skip ? dl_lines_add(&r->lines, (const char *)response.text.data + skip, all - skip)
                   : DILOCO_OK;
    r->at += all - skip;
    *more = response.status == 206 && all == PIECE;
    dl_buf_deinit(&response.text);
    return status;
}

/* Read all output that was written after the position. An address is valid for some hours, so each
 * read asks for a new one. */
static diloco_status read_output(void *context, dl_rest *rest, const dl_job *job)
{
    reading *r = context;
    char *url;
    diloco_status status = find_output(&url, rest, job);
    bool more = !status && url;
    if (more) r->found = true;
    while (!status && more)
        status = read_piece(r, rest->spec, job, url, &more);
    free(url);
    return status;
}

static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    dl_rest rest = {.name = NULL};
    reading r = {.at = 0};
    const dl_cloud_log log = {.read = read_output, .renew = use_token, .reading = &r};
    dl_lines_init(&r.lines, fn, user);
    diloco_status status = open_history(&rest, spec, 0);
    if (!status) status = dl_cloud_follow(&log, &rest, &rows, job, follow);
    status = dl_lines_end(&r.lines, status);
    dl_rest_deinit(&rest);
    if (status || r.found) return status;
    return dl_fail(DILOCO_ENOENT, "%s has no output: Azure ML has no user_logs/std_log.txt of it",
                   job->name);
}

/* ---- the reason of a failure */

/* Set the message of a failed job from the error of its run. Returns false if a service does not
 * give it: the message stays as it is. */
static bool explain(const dl_launch_spec *spec, dl_job *job, dl_time until)
{
    dl_rest rest = {.name = NULL};
    dl_rest_response response;
    char why[200];
    const bool known =
        !open_history(&rest, spec, until) && !get_details(&response, &rest, job, until);
    if (known) {
        dl_rest_message(why, sizeof why, response.json, "error.error.message");
        for (char *at = why; *at; at++)
            if ((unsigned char)*at < ' ') *at = ' ';
        if (*why) dl_job_set(job, DL_JOB_LOST, -1, "Failed: %s", why);
        dl_buf_deinit(&response.text);
    }
    dl_rest_deinit(&rest);
    return known;
}

/* The look at a job has no reason, and it is asked for once: a job that is over is not polled
 * again. A service that does not answer must not delay a poll, so the first failure ends this. */
static diloco_status poll_with_reasons(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    DL_TRY(poll_all(spec, jobs, n));
    const dl_time until = dl_time_after(dl_clock_now(), REASONS_TIME);
    bool known = true;
    for (size_t i = 0; known && i < n; i++)
        if (jobs[i].state == DL_JOB_LOST && strncmp(jobs[i].message, "Failed", 6) == 0)
            known = explain(spec, &jobs[i], until);
    return DILOCO_OK;
}

/* An image with a '/' is an address of a registry, not an environment of the workspace. */
static diloco_status check(const dl_launch_spec *spec)
{
    static const char name[] = "azureml";
    const dl_config *config = spec->config;
    char part[3][128];
    const char *colon = strrchr(config->launch_image, ':');
    DL_TRY(dl_cloud_need(config->launch_project, "launch.project", name,
                         "SUBSCRIPTION/RESOURCE-GROUP/WORKSPACE"));
    DL_TRY(dl_cloud_need(config->launch_image, "launch.image", name, "diloco:1"));
    DL_TRY(dl_cloud_need(config->launch_machine, "launch.machine", name, "gpu-cluster"));
    if (!split_project(part, config->launch_project))
        return dl_fail(DILOCO_EINVAL,
                       "launch.project = \"%.100s\": azureml needs it as "
                       "SUBSCRIPTION/RESOURCE-GROUP/WORKSPACE",
                       config->launch_project);
    if (colon && colon > config->launch_image && colon[1] && !strchr(config->launch_image, '/'))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "launch.image = \"%.100s\": azureml needs an environment of the workspace, as "
                   "NAME:VERSION; az ml environment create --image IMAGE  makes one of an image",
                   config->launch_image);
}

/* A look and a PUT are two requests, between which another launcher may create the job: not
 * exactly_once. The API has no grace period, and a job sees no folder of the launcher. */
const dl_executor dl_executor_azureml = {
    .name = "azureml",
    .needs = "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET; launch.image, an "
             "environment of the workspace; launch.machine, a compute target; launch.project",
    .tested = "a fake of this project; requests fit the models of azure-ai-ml. Not run against "
              "the real one",
    .options = "|image|machine|project|role|endpoint|",
    .without = "|dir|grace|",
    .caps = {.api = API_VERSION,
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "run history of the workspace",
             .price = "a machine of the compute target: launch.machine",
             .restart = "of low-priority machines that were taken away",
             .spot = true,
             .in_image = true},
    .poll_s = 15,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_with_reasons,
    .logs = logs,
    .cancel = cancel,
};
