/* sagemaker.c - replicas as training jobs of Amazon SageMaker: CreateTrainingJob, one job a
 * replica.
 *
 * Names are unique in an account and region, so a name is created once, and the name is the id. The
 * API is AWS's JSON protocol with Signature Version 4, as for CloudWatch Logs, where output is.
 *
 * SageMaker has no channel for secrets: replicas reach an s3:// store by launch.role. It replaces
 * spot machines that were taken away, and the generation stays. Its exit code is in the sentence of
 * a failure alone. */
#include "base/clock.h"
#include "launch/cloud/jobs.h"
#include "launch/executor_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* DAY_S is the limit of a job in seconds and DISK_GB the disk of a machine, unless options say
 * otherwise. RUNTIME_MAX_S is the largest MaxRuntimeInSeconds (API page StoppingCondition).
 * SageMaker writes the output of all training jobs to one log group. */
enum { DAY_S = 86400, RUNTIME_MAX_S = 28 * DAY_S, DISK_GB = 30 };
#define LOG_GROUP "/aws/sagemaker/TrainingJobs"
#define AMZ_JSON  "application/x-amz-json-1.1"

/* ---- credentials */

/* launch.region, AWS_REGION, AWS_DEFAULT_REGION, and the profile of the AWS command line, in this
 * order. */
static diloco_status find_region(char out[64], const dl_config *config)
{
    const char *region = config->launch_region;
    if (!*region) region = getenv("AWS_REGION") ? getenv("AWS_REGION") : "";
    if (!*region) region = getenv("AWS_DEFAULT_REGION") ? getenv("AWS_DEFAULT_REGION") : "";
    snprintf(out, 64, "%.63s", region);
    if (*out || dl_credentials_aws_setting(out, 64, "region")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "sagemaker: no region: set launch.region or AWS_REGION");
}

/* The credentials of this moment: a machine's role has others every few hours. */
static diloco_status renew(dl_rest *rest)
{
    return dl_credentials_aws(&rest->who, rest->web, dl_time_after(dl_clock_now(), 30 * DL_SECOND));
}

/* The same credentials serve SageMaker and CloudWatch Logs. `service` is part of the signature. The
 * web client is made before its first call, since a machine gets its credentials over HTTP. */
static diloco_status open_service(dl_rest *rest, const dl_launch_spec *spec, const char *host,
                                  const char *service)
{
    char base[256], region[64];
    DL_TRY(find_region(region, spec->config));
    DL_TRY(dl_rest_check_region(region));
    snprintf(base, sizeof base, "https://%s.%s.amazonaws.com", host, region);
    DL_TRY(dl_rest_init(rest, spec, "SageMaker", base));
    memcpy(rest->region, region, sizeof region);
    snprintf(rest->service, sizeof rest->service, "%s", service);
    if (spec->dry) return DILOCO_OK;
    static const atomic_bool never;
    DL_TRY(dl_web_create(&rest->web, &(dl_web_options){.ca_file = rest->ca_file}, &never));
    return renew(rest);
}

static diloco_status open_rest(dl_rest *rest, const dl_launch_spec *spec)
{
    return open_service(rest, spec, "api.sagemaker", "sagemaker");
}

/* ---- calls */

/* AWS's JSON protocol: POST to "/", and the operation in the header X-Amz-Target. */
static diloco_status begin(dl_rest_call *call, const char *target)
{
    call->target = target;
    call->type = AMZ_JSON;
    return dl_rest_path(call, "/");
}

/* One machine a job. Sizes are whole GB, rounded up. */
static void put_resources(dl_json *j, const dl_config *config)
{
    const double disk = config->launch_disk_gb > 0 ? config->launch_disk_gb : DISK_GB;
    dl_json_object(j, "ResourceConfig");
    dl_json_str(j, "InstanceType", config->launch_machine);
    dl_json_i64(j, "InstanceCount", 1);
    dl_json_i64(j, "VolumeSizeInGB", dl_cloud_ceiling(disk));
    dl_json_end(j);
}

/* SageMaker's own default of a limit is a day. With spot machines the wait for one counts apart.
 * The time for both must not be less than the limit (API page StoppingCondition), so it is a day
 * more. */
static void put_limits(dl_json *j, const dl_config *config)
{
    const double limit = config->launch_timeout_s;
    const int64_t seconds = limit > 0 ? dl_cloud_ceiling(limit) : DAY_S;
    dl_json_object(j, "StoppingCondition");
    dl_json_i64(j, "MaxRuntimeInSeconds", seconds);
    if (config->launch_spot) dl_json_i64(j, "MaxWaitTimeInSeconds", seconds + DAY_S);
    dl_json_end(j);
    if (config->launch_spot) dl_json_bool(j, "EnableManagedSpotTraining", true);
}

/* ContainerEntrypoint replaces the entrypoint of the image. */
static diloco_status put_container(dl_json *j, const dl_launch_spec *spec, const dl_job *job)
{
    char rank[16];
    snprintf(rank, sizeof rank, "%u", job->rank);
    dl_json_object(j, "AlgorithmSpecification");
    dl_json_str(j, "TrainingImage", spec->config->launch_image);
    dl_json_str(j, "TrainingInputMode", "File");
    dl_cloud_put_list(j, "ContainerEntrypoint", spec->program);
    DL_TRY(dl_cloud_argv(j, "ContainerArguments", spec, rank, 1));
    dl_json_end(j);
    return dl_cloud_env(j, "Environment", spec, job, false);
}

/* The members are those of the API page CreateTrainingJob. S3OutputPath is required, though a
 * replica writes nothing there. */
static diloco_status create(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    const dl_config *config = rest->spec->config;
    dl_json *j = &call->json;
    DL_TRY(begin(call, "SageMaker.CreateTrainingJob"));
    dl_json_object(j, NULL);
    dl_json_str(j, "TrainingJobName", job->name);
    dl_json_str(j, "RoleArn", config->launch_role);
    DL_TRY(put_container(j, rest->spec, job));
    dl_json_object(j, "OutputDataConfig");
    dl_json_str(j, "S3OutputPath", config->launch_output);
    dl_json_end(j);
    put_resources(j, config);
    put_limits(j, config);
    dl_json_end(j);
    return DILOCO_OK;
}

/* AWS reports all refusals as 400, with their kind in __type. The kind may have a namespace before
 * it, so its name is searched. */
static bool is_type(const dl_rest_response *response, const char *type)
{
    char text[128];
    return response->status == 400 &&
           strstr(dl_rest_text(text, sizeof text, response->json, "__type"), type);
}

/* Is it the refusal of a name that an earlier launch has used? Two forms of it are known. */
static bool is_taken(const dl_rest_response *response)
{
    return is_type(response, "ResourceInUse") ||
           (is_type(response, "Validation") && strstr(response->why, "already exists"));
}

/* Two kinds of refusal are known for a job that does not exist. */
static bool is_gone(const dl_rest_response *response)
{
    return is_type(response, "ResourceNotFound") ||
           (is_type(response, "Validation") &&
            (strstr(response->why, "not found") || strstr(response->why, "ould not find")));
}

/* StopTrainingJob refuses a job that is not InProgress, and says which status it has. */
static bool is_over(const dl_rest_response *response)
{
    return is_type(response, "Validation") && strstr(response->why, "status");
}

/* A call whose only member is the job's name. */
static diloco_status put_name(dl_rest_call *call, const char *target, const dl_job *job)
{
    DL_TRY(begin(call, target));
    dl_json_object(&call->json, NULL);
    dl_json_str(&call->json, "TrainingJobName", job->id);
    dl_json_end(&call->json);
    return DILOCO_OK;
}

static diloco_status look(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    (void)rest;
    return put_name(call, "SageMaker.DescribeTrainingJob", job);
}

static diloco_status stop(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    (void)rest;
    return put_name(call, "SageMaker.StopTrainingJob", job);
}

/* ---- states */

/* TrainingJobStatus of DescribeTrainingJob. A job that is stopping is still paid for: it counts as
 * running until it has stopped. Only a person deletes a job, after its end. */
static const dl_cloud_state states[] = {{"InProgress", DL_JOB_RUNNING},
                                        {"Stopping", DL_JOB_RUNNING},
                                        {"Completed", DL_JOB_SUCCEEDED},
                                        {"Failed", DL_JOB_FAILED},
                                        {"Stopped", DL_JOB_CANCELLED},
                                        {"Deleting", DL_JOB_CANCELLED},
                                        {NULL, DL_JOB_LOST}};
/* SecondaryStatus of DescribeTrainingJob, of a job InProgress. A spot machine that was taken away
 * is replaced by SageMaker, so its replica is PENDING. */
static const dl_cloud_state secondary[] = {{"Starting", DL_JOB_PENDING},
                                           {"Pending", DL_JOB_PENDING},
                                           {"LaunchingMLInstances", DL_JOB_PENDING},
                                           {"PreparingTrainingStack", DL_JOB_PENDING},
                                           {"Interrupted", DL_JOB_PENDING},
                                           {"Restarting", DL_JOB_PENDING},
                                           {"Downloading", DL_JOB_STARTING},
                                           {"DownloadingTrainingImage", DL_JOB_STARTING},
                                           {"Training", DL_JOB_RUNNING},
                                           {"Updating", DL_JOB_RUNNING},
                                           {"Uploading", DL_JOB_RUNNING},
                                           {NULL, DL_JOB_LOST}};

/* A job has reached one of the limits of put_limits. MaxWaitTimeExceeded is that of spot machines,
 * which the wait for a machine may have used up. */
static void set_late(dl_job *job, const char *step)
{
    if (strcmp(step, "MaxWaitTimeExceeded") == 0)
        dl_job_set(job, DL_JOB_FAILED, -1,
                   "%s: launch.timeout (by default a day) and a day more for spot machines are "
                   "over; it may never have had one",
                   step);
    else
        dl_job_set(job, DL_JOB_FAILED, -1, "%s: launch.timeout (by default a day) is over", step);
}

/* The exit code is only in FailureReason, as a sentence. */
static void seen(dl_job *job, dl_json_value response)
{
    char status[64], step[64], why[512];
    dl_rest_text(status, sizeof status, response, "TrainingJobStatus");
    dl_rest_text(step, sizeof step, response, "SecondaryStatus");
    dl_rest_message(why, sizeof why, response, "FailureReason");
    const int code = dl_cloud_code_at(response, "FailureReason");
    if (!strcmp(status, "Failed") && code > 0)
        dl_cloud_set_ended(job, code);
    else if (!strcmp(status, "InProgress") && *step)
        dl_cloud_set(job, secondary, step, why);
    else if (!strcmp(status, "Stopped") && !strncmp(step, "Max", 3)) /* MaxRuntimeExceeded */
        set_late(job, step);
    else
        dl_cloud_set(job, states, status, why);
}

/* Names are unique in account and region, so the name is the id, and `is_taken` replaces a
 * search. */
static const dl_cloud_rows rows = {.open = open_rest,
                                   .create = create,
                                   .create_method = "POST",
                                   .is_taken = is_taken,
                                   .look = look,
                                   .look_method = "POST",
                                   .seen = seen,
                                   .is_gone = is_gone,
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

/* ---- logs */

/* A position in the log: the stream, "" until it is found, and CloudWatch's token for the next
 * page, NULL at the begin. A stream's name has at most 512 bytes; the length of a token is not
 * documented. */
typedef struct reading {
    char stream[513];
    char *token; /* owned */
    dl_job_line_fn fn;
    void *user;
} reading;

/* The log stream of the job, whose name begins with the job's; "" while it does not exist. A job of
 * one machine has one stream. Before the first job of an account there is no log group. */
static diloco_status find_stream(reading *r, dl_rest *rest, const dl_job *job)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "POST", job->name);
    diloco_status status = begin(&call, "Logs_20140328.DescribeLogStreams");
    dl_json_object(&call.json, NULL);
    dl_json_str(&call.json, "logGroupName", LOG_GROUP);
    dl_json_str(&call.json, "logStreamNamePrefix", job->id);
    dl_json_end(&call.json);
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        if (dl_rest_is_good(&response))
            for (dl_json_iter it = dl_json_each(dl_json_get(response.json, "logStreams"));
                 !r->stream[0] && dl_json_next(&it);)
                dl_rest_text(r->stream, sizeof r->stream, it.value, "logStreamName");
        else if (!is_type(&response, "ResourceNotFound"))
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* An event is one line. */
static diloco_status give_events(const reading *r, dl_json_value events)
{
    for (dl_json_iter it = dl_json_each(events); dl_json_next(&it);)
        DL_TRY(dl_rest_give_line(dl_json_get(it.value, "message"), r->fn, r->user));
    return DILOCO_OK;
}

/* Go to the position after a page. Returns true if there is no later page now. CloudWatch says so
 * by the same token again (API page GetLogEvents). */
static bool move_on(reading *r, dl_json_value page)
{
    char *next = dl_rest_copy(page, "nextForwardToken");
    if (!next || !*next) {
        free(next);
        return true;
    }
    const bool end = r->token && strcmp(next, r->token) == 0;
    free(r->token);
    r->token = next;
    return end;
}

/* One page of events, at most 1 MB; *end: it was the last one there is now. */
static diloco_status read_page(reading *r, dl_rest *rest, const dl_job *job, bool *end)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "POST", job->name);
    diloco_status status = begin(&call, "Logs_20140328.GetLogEvents");
    dl_json_object(&call.json, NULL);
    dl_json_str(&call.json, "logGroupName", LOG_GROUP);
    dl_json_str(&call.json, "logStreamName", r->stream);
    dl_json_bool(&call.json, "startFromHead", true);
    if (r->token) dl_json_str(&call.json, "nextToken", r->token);
    dl_json_end(&call.json);
    if (!status) status = dl_rest_must(rest, &call, &response);
    if (!status) {
        status = give_events(r, dl_json_get(response.json, "events"));
        if (!status) *end = move_on(r, response.json);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* All pages after the position. The stream appears some time after the job, so each read of a log
 * without one searches it again. */
static diloco_status read_pages(void *context, dl_rest *rest, const dl_job *job)
{
    reading *r = context;
    bool end = false;
    if (!r->stream[0]) DL_TRY(find_stream(r, rest, job));
    while (r->stream[0] && !end)
        DL_TRY(read_page(r, rest, job, &end));
    return DILOCO_OK;
}

static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    dl_rest rest = {.name = NULL};
    reading r = {.fn = fn, .user = user};
    const dl_cloud_log log = {.read = read_pages, .renew = renew, .reading = &r};
    diloco_status status = open_service(&rest, spec, "logs", "logs");
    if (!status) status = dl_cloud_follow(&log, &rest, &rows, job, follow);
    dl_rest_deinit(&rest);
    free(r.token);
    return status;
}

static diloco_status check(const dl_launch_spec *spec)
{
    static const char name[] = "sagemaker";
    const dl_config *config = spec->config;
    char region[64];
    DL_TRY(dl_cloud_need(config->launch_image, "launch.image", name,
                         "ACCOUNT.dkr.ecr.REGION.amazonaws.com/diloco:0.2"));
    DL_TRY(dl_cloud_need(config->launch_machine, "launch.machine", name, "ml.g5.xlarge"));
    DL_TRY(
        dl_cloud_need(config->launch_role, "launch.role", name, "arn:aws:iam::ACCOUNT:role/NAME"));
    DL_TRY(dl_cloud_need(config->launch_output, "launch.output", name, "s3://BUCKET/launch"));
    if (config->launch_timeout_s > RUNTIME_MAX_S)
        return dl_fail(DILOCO_EINVAL,
                       "launch.timeout = %.0f: SageMaker ends a job after %d seconds at the latest",
                       ceil(config->launch_timeout_s), RUNTIME_MAX_S);
    return find_region(region, config);
}

/* SageMaker creates a name once, hence exactly_once. It has no channel for secrets, and its time
 * between a stop and a kill is fixed at two minutes: no launch.grace. */
const dl_executor dl_executor_sagemaker = {
    .name = "sagemaker",
    .needs = "AWS credentials as for s3://; launch.image, launch.machine, launch.role, "
             "launch.output and a region; launch.timeout for more than a day",
    .tested = "moto's server and botocore's service model; a fake of this project runs the jobs. "
              "Not run against the real one",
    .options = "|image|machine|role|output|region|disk|spot|endpoint|",
    .without = "|dir|grace|",
    .caps = {.api = "2017-07-24",
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "CloudWatch Logs",
             .price = "an instance and its disk: launch.machine, launch.disk, launch.region, "
                      "launch.spot",
             .restart = "of spot machines that were taken away",
             .max_runtime_s = RUNTIME_MAX_S,
             .spot = true,
             .in_image = true,
             .exactly_once = true},
    .poll_s = 15,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
};
