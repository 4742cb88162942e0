/* vertex.c - replicas as custom jobs of Vertex AI: POST …/customJobs, one job a replica.
 *
 * Display names are not unique, so a job is searched by its display name before it is created. A
 * replica's id is the resource name that the service gives it, projects/…/customJobs/<number>.
 *
 * Vertex AI has no channel for secrets: replicas reach a gs:// store by launch.role, a service
 * account. It restarts no job itself. Its exit code is in the sentence of an error alone. Output is
 * in Cloud Logging, which is read in pages by time. */
#include "launch/cloud/google_auth.h"
#include "launch/cloud/jobs.h"
#include "launch/executor_rows.h"

#include <stdlib.h>
#include <string.h>

/* Entries of a page. One has at most 256 KB (Cloud Logging, "Quotas and limits"), so a page stays
 * below the 16 MiB of an answer. */
enum { PAGE = 50 };

/* ---- credentials */

/* The same credentials serve Vertex AI and Cloud Logging. The project is launch.project,
 * GOOGLE_CLOUD_PROJECT or that of the credentials, in this order. A dry run reads no credentials.
 */
static diloco_status open_service(dl_rest *rest, const dl_launch_spec *spec, const char *base)
{
    const dl_config *config = spec->config;
    const char *project = config->launch_project;
    if (!*project && getenv("GOOGLE_CLOUD_PROJECT")) project = getenv("GOOGLE_CLOUD_PROJECT");
    DL_TRY(dl_rest_init(rest, spec, "Vertex AI", base));
    snprintf(rest->project, sizeof rest->project, "%s", project);
    if (!spec->dry) DL_TRY(dl_google_token(rest));
    if (rest->project[0]) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "vertex: no project: set launch.project or GOOGLE_CLOUD_PROJECT");
}

/* The address contains the region: jobs of a region are only there. */
static diloco_status open_rest(dl_rest *rest, const dl_launch_spec *spec)
{
    char base[256];
    DL_TRY(dl_rest_check_region(spec->config->launch_region));
    snprintf(base, sizeof base, "https://%.63s-aiplatform.googleapis.com",
             spec->config->launch_region);
    return open_service(rest, spec, base);
}

/* ---- calls */

/* The collection of custom jobs of project and region. */
static diloco_status path_to_jobs(dl_rest_call *call, const dl_rest *rest)
{
    DL_TRY(dl_rest_path(call, "/v1/projects/"));
    DL_TRY(dl_rest_segment(call, rest->project));
    DL_TRY(dl_rest_path(call, "/locations/"));
    DL_TRY(dl_rest_segment(call, rest->spec->config->launch_region));
    return dl_rest_path(call, "/customJobs");
}

/* One machine a job: each replica is a job of its own. A replicaCount is a text, as int64 is in
 * JSON of Google's APIs. */
static void put_machine(dl_json *j, const dl_config *config)
{
    dl_json_object(j, "machineSpec");
    dl_json_str(j, "machineType", config->launch_machine);
    if (config->launch_gpus) {
        dl_json_str(j, "acceleratorType", config->launch_gpu_type);
        dl_json_i64(j, "acceleratorCount", config->launch_gpus);
    }
    dl_json_end(j);
    dl_json_str(j, "replicaCount", "1");
    if (config->launch_disk_gb <= 0) return;
    dl_json_object(j, "diskSpec");
    dl_json_i64(j, "bootDiskSizeGb", dl_cloud_ceiling(config->launch_disk_gb));
    dl_json_end(j);
}

/* Vertex AI itself starts no job again: diloco launch does. */
static void put_scheduling(dl_json *j, const dl_config *config)
{
    char text[32];
    dl_json_object(j, "scheduling");
    dl_json_bool(j, "disableRetries", true);
    if (config->launch_spot) dl_json_str(j, "strategy", "SPOT");
    if (config->launch_timeout_s > 0) {
        snprintf(text, sizeof text, "%llds", (long long)dl_cloud_ceiling(config->launch_timeout_s));
        dl_json_str(j, "timeout", text);
    }
    dl_json_end(j);
}

/* `command` replaces the image's entrypoint. */
static diloco_status put_container(dl_json *j, const dl_launch_spec *spec, const dl_job *job)
{
    char rank[16];
    snprintf(rank, sizeof rank, "%u", job->rank);
    dl_json_object(j, "containerSpec");
    dl_json_str(j, "imageUri", spec->config->launch_image);
    dl_cloud_put_list(j, "command", spec->program);
    DL_TRY(dl_cloud_argv(j, "args", spec, rank, 1));
    DL_TRY(dl_cloud_env(j, "env", spec, job, true));
    dl_json_end(j);
    return DILOCO_OK;
}

/* The members are those of the API page customJobs.create. The label selects the jobs of a run in
 * the console. Values of labels are lower case, as hex digits are. */
static diloco_status create(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    const dl_launch_spec *spec = rest->spec;
    char run[16];
    dl_json *j = &call->json;
    call->keeps = 429; /* RESOURCE_EXHAUSTED: a quota of machines, which no repetition raises */
    DL_TRY(path_to_jobs(call, rest));
    snprintf(run, sizeof run, "%.8s", spec->run);
    dl_json_object(j, NULL);
    dl_json_str(j, "displayName", job->name);
    dl_json_object(j, "labels");
    dl_json_str(j, "diloco-run", run);
    dl_json_end(j);
    dl_json_object(j, "jobSpec");
    dl_json_array(j, "workerPoolSpecs");
    dl_json_object(j, NULL);
    put_machine(j, spec->config);
    DL_TRY(put_container(j, spec, job));
    dl_json_end(j);
    dl_json_end(j);
    put_scheduling(j, spec->config);
    if (spec->config->launch_role[0]) dl_json_str(j, "serviceAccount", spec->config->launch_role);
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* filter=displayName="<name>", escaped. */
static diloco_status search(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    DL_TRY(path_to_jobs(call, rest));
    DL_TRY(dl_rest_path(call, "?filter=displayName%%3D%%22"));
    DL_TRY(dl_rest_segment(call, job->name));
    return dl_rest_path(call, "%%22");
}

/* projects/<name or number>/locations/<region>/customJobs/<number>. The id becomes a path that is
 * called with the token, so no other path may pass. A part begins with a letter or a digit, so it
 * is not "..". */
static bool is_id(const dl_job *job)
{
    static const struct {
        const char *before, *also;
    } parts[] = {{"projects/", "-.:"}, {"/locations/", "-"}, {"/customJobs/", ""}};
    const char *at = job->id;
    char part[DL_JOB_ID_MAX + 1] = "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t len = strlen(parts[i].before);
        if (strncmp(at, parts[i].before, len) != 0) return false;
        at += len;
        snprintf(part, sizeof part, "%.*s", (int)strcspn(at, "/"), at);
        if (!dl_id_is_plain(part, parts[i].also)) return false;
        at += strlen(part);
    }
    return !*at && dl_id_is_number(part);
}

/* The id is a resource name, which is a path (is_id). */
static diloco_status look(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    (void)rest;
    return dl_rest_path(call, "/v1/%s", job->id);
}

static diloco_status stop(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    (void)rest;
    return dl_rest_path(call, "/v1/%s:cancel", job->id);
}

/* A job that has ended cannot be cancelled. */
static bool is_over(const dl_rest_response *response)
{
    char text[64];
    return !strcmp(dl_rest_text(text, sizeof text, response->json, "error.status"),
                   "FAILED_PRECONDITION");
}

/* ---- states */

/* JobState of the Vertex AI API. A job that is being cancelled is still paid for: it counts as
 * running until it has ended. */
static const dl_cloud_state states[] = {
    {"JOB_STATE_QUEUED", DL_JOB_PENDING},      {"JOB_STATE_PENDING", DL_JOB_STARTING},
    {"JOB_STATE_RUNNING", DL_JOB_RUNNING},     {"JOB_STATE_UPDATING", DL_JOB_RUNNING},
    {"JOB_STATE_PAUSED", DL_JOB_RUNNING},      {"JOB_STATE_CANCELLING", DL_JOB_RUNNING},
    {"JOB_STATE_SUCCEEDED", DL_JOB_SUCCEEDED}, {"JOB_STATE_PARTIALLY_SUCCEEDED", DL_JOB_FAILED},
    {"JOB_STATE_FAILED", DL_JOB_FAILED},       {"JOB_STATE_EXPIRED", DL_JOB_FAILED},
    {"JOB_STATE_CANCELLED", DL_JOB_CANCELLED}, {NULL, DL_JOB_LOST}};

/* The exit code is only in the sentence of an error. */
static void seen(dl_job *job, dl_json_value response)
{
    char state[64], why[512];
    dl_rest_text(state, sizeof state, response, "state");
    dl_rest_message(why, sizeof why, response, "error.message");
    const int code = dl_cloud_code_at(response, "error.message");
    if (!strcmp(state, "JOB_STATE_FAILED") && code > 0)
        dl_cloud_set_ended(job, code);
    else
        dl_cloud_set(job, states, state, why);
}

/* Names are not unique, so there is a `search`. The member `name` is the job's resource name, which
 * ends with its number. */
static const dl_cloud_rows rows = {.open = open_rest,
                                   .id_at = "name",
                                   .name_at = "displayName",
                                   .list_at = "customJobs",
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

DL_CLOUD_CALLS(rows)

/* ---- logs */

/* A position in the log: entries after the time `after` are new, and `token` is the next page. */
typedef struct reading {
    char after[64]; /* time of the last entry */
    char token[2048];
    dl_job_line_fn fn;
    void *user;
} reading;

/* Give the first line of an entry. Programs that write JSON have their text in jsonPayload. The
 * time of an entry without text is kept as well, so that it is not read again. */
static diloco_status give_entry(reading *r, dl_json_value entry)
{
    dl_json_value text = dl_json_get(entry, "textPayload");
    if (text.type != DL_JSON_STRING) text = dl_rest_at(entry, "jsonPayload.message");
    dl_rest_text(r->after, sizeof r->after, entry, "timestamp");
    return dl_rest_give_line(text, r->fn, r->user);
}

/* POST entries:list for the entries after `since`. Cloud Logging knows a job by its number. Entries
 * come in the order of time, so the time of the last one is where the next query begins. */
static diloco_status write_query(dl_rest_call *call, const dl_rest *rest, const dl_job *job,
                                 const reading *r, const char *since)
{
    char text[DL_REST_BASE + 256];
    const char *number = strrchr(job->id, '/');
    dl_json *j = &call->json;
    DL_TRY(dl_rest_path(call, "/v2/entries:list"));
    dl_json_object(j, NULL);
    dl_json_array(j, "resourceNames");
    snprintf(text, sizeof text, "projects/%s", rest->project);
    dl_json_str(j, NULL, text);
    dl_json_end(j);
    snprintf(text, sizeof text, "resource.type=\"ml_job\" AND resource.labels.job_id=\"%s\"%s%s%s",
             number ? number + 1 : job->id, *since ? " AND timestamp>\"" : "", since,
             *since ? "\"" : "");
    dl_json_str(j, "filter", text);
    dl_json_str(j, "orderBy", "timestamp asc");
    dl_json_i64(j, "pageSize", PAGE);
    if (r->token[0]) dl_json_str(j, "pageToken", r->token);
    dl_json_end(j);
    return DILOCO_OK;
}

/* All pages of the entries after the last one that was read. A token of a page is valid for the
 * same filter only, so `since` is kept for all of them. */
static diloco_status read_pages(void *context, dl_rest *rest, const dl_job *job)
{
    reading *r = context;
    char since[sizeof r->after];
    memcpy(since, r->after, sizeof since);
    r->token[0] = '\0';
    do {
        dl_rest_call call;
        dl_rest_response response;
        dl_rest_call_init(&call, "POST", job->name);
        diloco_status status = write_query(&call, rest, job, r, since);
        if (!status) status = dl_rest_must(rest, &call, &response);
        if (!status) {
            for (dl_json_iter it = dl_json_each(dl_json_get(response.json, "entries"));
                 !status && dl_json_next(&it);)
                status = give_entry(r, it.value);
            dl_rest_text(r->token, sizeof r->token, response.json, "nextPageToken");
            dl_buf_deinit(&response.text);
        }
        dl_rest_call_deinit(&call);
        DL_TRY(status);
    } while (r->token[0]);
    return DILOCO_OK;
}

static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    dl_rest rest = {.name = NULL};
    reading r = {.fn = fn, .user = user};
    const dl_cloud_log log = {.read = read_pages, .renew = dl_google_token, .reading = &r};
    diloco_status status = open_service(&rest, spec, "https://logging.googleapis.com");
    if (!status) status = dl_cloud_follow(&log, &rest, &rows, job, follow);
    dl_rest_deinit(&rest);
    return status;
}

/* A type of accelerator and a number of them have a meaning only together. */
static diloco_status check(const dl_launch_spec *spec)
{
    static const char name[] = "vertex";
    const dl_config *config = spec->config;
    DL_TRY(dl_cloud_need(config->launch_image, "launch.image", name,
                         "europe-west4-docker.pkg.dev/PROJECT/REPOSITORY/diloco:0.2"));
    DL_TRY(dl_cloud_need(config->launch_region, "launch.region", name, "europe-west4"));
    DL_TRY(dl_cloud_need(config->launch_machine, "launch.machine", name, "g2-standard-8"));
    if (!config->launch_gpus == !config->launch_gpu_type[0]) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "vertex needs launch.gpus and launch.gpu_type together, such as "
                                  "launch.gpus=1 and launch.gpu_type=NVIDIA_L4");
}

/* A search and a creation are two requests, between which another launcher may create the same job:
 * not exactly_once. */
const dl_executor dl_executor_vertex = {
    .name = "vertex",
    .needs = "application default credentials of Google; launch.image, launch.region, "
             "launch.machine and a project",
    .tested = "a fake of this project; requests fit the discovery document of "
              "google-api-python-client. Not run against the real one",
    .options = "|image|machine|gpus|gpu_type|disk|spot|region|project|role|endpoint|",
    .without = "|dir|grace|",
    .caps = {.api = "v1",
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "Cloud Logging",
             .price = "a machine, its GPUs and its disk: launch.machine, launch.gpus, "
                      "launch.gpu_type, launch.disk, launch.region, launch.spot",
             .restart = "no",
             .spot = true,
             .in_image = true},
    .poll_s = 15,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
};
