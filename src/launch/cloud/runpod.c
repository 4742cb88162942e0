/* runpod.c - replicas as pods of RunPod: POST /v1/pods of its REST API, one pod a replica.
 *
 * A pod is a rented machine. RunPod starts its container again whenever that ends, and charges for
 * it until it is deleted. Exit codes and output are not in the API. So a replica counts as running
 * until its pod is gone, and ships its output to the run's store. The store says when the run is
 * complete, and how often a replica has begun. The launcher then deletes the pods
 * (caps.must_be_stopped).
 *
 * Names are not unique, so a pod is searched by its name before it is created. Secrets are stored
 * in the account under the names of launch.secrets; a request refers to them. */
#include "launch/cloud/jobs.h"
#include "launch/executor_rows.h"

#include <stdlib.h>
#include <string.h>

/* The key is a bearer token. A dry run needs none. */
static diloco_status open_rest(dl_rest *rest, const dl_launch_spec *spec)
{
    const char *key = getenv("RUNPOD_API_KEY");
    DL_TRY(dl_rest_init(rest, spec, "RunPod", "https://rest.runpod.io/v1"));
    if (spec->dry) return DILOCO_OK;
    if (!key || !*key || strlen(key) >= sizeof rest->who.token)
        return dl_fail(DILOCO_EINVAL, "runpod: no API key in RUNPOD_API_KEY: create one in the "
                                      "console under Settings, API Keys");
    strcpy(rest->who.token, key);
    return DILOCO_OK;
}

/* ---- calls */

/* RunPod counts CPUs and memory for each GPU, so the options' amounts are divided by their number
 * and rounded up. The API takes lists of alternatives. One element leaves no choice. */
static void put_machine(dl_json *j, const dl_config *config)
{
    const int64_t gpus = config->launch_gpus;
    dl_json_str(j, "computeType", gpus ? "GPU" : "CPU");
    if (gpus) {
        dl_cloud_put_list(j, "gpuTypeIds", config->launch_gpu_type);
        dl_json_i64(j, "gpuCount", gpus);
        if (config->launch_cpus)
            dl_json_i64(j, "minVCPUPerGPU", (config->launch_cpus + gpus - 1) / gpus);
        if (config->launch_memory_gb > 0)
            dl_json_i64(j, "minRAMPerGPU",
                        dl_cloud_ceiling(config->launch_memory_gb / (double)gpus));
    } else {
        if (config->launch_machine[0]) dl_cloud_put_list(j, "cpuFlavorIds", config->launch_machine);
        if (config->launch_cpus) dl_json_i64(j, "vcpuCount", config->launch_cpus);
    }
    if (config->launch_region[0]) dl_cloud_put_list(j, "dataCenterIds", config->launch_region);
    if (config->launch_spot) dl_json_bool(j, "interruptible", true);
    if (config->launch_disk_gb > 0)
        dl_json_i64(j, "containerDiskInGb", dl_cloud_ceiling(config->launch_disk_gb));
    dl_json_i64(j, "volumeInGb", 0); /* a volume is charged while its pod is stopped, too */
}

/* Values of secrets are in the account: the request names them. */
static void put_env(dl_json *j, const dl_launch_spec *spec, const dl_job *job)
{
    char text[DL_PATH_MAX + 64];
    dl_json_object(j, "env");
    dl_cloud_put_env(j, spec, job, false);
    for (const char *const *s = spec->secrets; *s; s++) {
        snprintf(text, sizeof text, "{{ RUNPOD_SECRET_%s }}", *s);
        dl_json_str(j, *s, text);
    }
    dl_json_end(j);
}

/* The members are those of POST /pods in the reference of the REST API. dockerEntrypoint replaces
 * the image's own, so that the program gets the words as they are. It is the program, and
 * dockerStartCmd its arguments. */
static diloco_status create(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    const dl_launch_spec *spec = rest->spec;
    dl_json *j = &call->json;
    char rank[16];
    snprintf(rank, sizeof rank, "%u", job->rank);
    call->keeps = 500; /* is_full */
    DL_TRY(dl_rest_path(call, "/pods"));
    dl_json_object(j, NULL);
    dl_json_str(j, "name", job->name);
    dl_json_str(j, "imageName", spec->config->launch_image);
    put_machine(j, spec->config);
    put_env(j, spec, job);
    dl_cloud_put_list(j, "dockerEntrypoint", spec->program);
    DL_TRY(dl_cloud_argv(j, "dockerStartCmd", spec, rank, 1));
    dl_json_end(j);
    return DILOCO_OK;
}

/* RunPod answers 500 when it has no machine of this kind now; a later look may find one. It also
 * answers so to a pod that it has created, which the next launch finds by its name. */
static bool is_full(const dl_rest_response *response)
{
    return strcasestr(response->why, "no longer any instances") != NULL;
}

/* The filter may match parts of names. */
static diloco_status search(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    (void)rest;
    DL_TRY(dl_rest_path(call, "/pods?name="));
    return dl_rest_segment(call, job->name);
}

/* The path of `look` (GET) and of `stop` (DELETE): they differ in the method alone. */
static diloco_status path_to(dl_rest_call *call, const dl_rest *rest, const dl_job *job)
{
    (void)rest;
    DL_TRY(dl_rest_path(call, "/pods/"));
    return dl_rest_segment(call, job->id);
}

/* The states of a pod (desiredStatus of RunPod's REST API). A pod that is EXITED was interrupted:
 * launch itself only deletes pods. */
static const dl_cloud_state states[] = {{"RUNNING", DL_JOB_RUNNING},
                                        {"EXITED", DL_JOB_LOST},
                                        {"TERMINATED", DL_JOB_CANCELLED},
                                        {NULL, DL_JOB_LOST}};

/* desiredStatus is the only state that the API has. */
static void seen(dl_job *job, dl_json_value response)
{
    char status[64], change[256];
    dl_rest_text(status, sizeof status, response, "desiredStatus");
    dl_rest_message(change, sizeof change, response, "lastStatusChange");
    dl_cloud_set(job, states, status, change);
}

/* Names are not unique, so there is a `search`. A stop is a DELETE. */
static const dl_cloud_rows rows = {.open = open_rest,
                                   .id_at = "id",
                                   .name_at = "name",
                                   .list_at = "",
                                   .create = create,
                                   .create_method = "POST",
                                   .is_full = is_full,
                                   .search = search,
                                   .search_method = "GET",
                                   .look = path_to,
                                   .look_method = "GET",
                                   .seen = seen,
                                   .stop = path_to,
                                   .stop_method = "DELETE",
                                   .stop_deletes = true};

/* ---- the executor: jobs.c with the row above */

/* Ids are letters and digits today. That is not promised, so an id is only kept from being a
 * path. */
static bool is_id(const dl_job *job)
{
    return dl_id_is_plain(job->id, "-_");
}

DL_CLOUD_CALLS(rows)

/* A flavor of a CPU pod and a type of GPU exclude each other in RunPod's API. */
static diloco_status check(const dl_launch_spec *spec)
{
    const dl_config *config = spec->config;
    DL_TRY(
        dl_cloud_need(config->launch_image, "launch.image", "runpod", "docker.io/you/diloco:0.2"));
    if (!config->launch_gpus != !config->launch_gpu_type[0])
        return dl_fail(DILOCO_EINVAL, "runpod needs launch.gpus and launch.gpu_type together, such "
                                      "as launch.gpus=1 and launch.gpu_type=\"NVIDIA L4\"");
    if (config->launch_gpus && config->launch_machine[0])
        return dl_fail(
            DILOCO_EINVAL,
            "launch.machine is the flavor of a RunPod CPU pod: omit it with launch.gpus");
    if (!config->launch_gpus && config->launch_memory_gb > 0)
        return dl_fail(DILOCO_EINVAL, "launch.memory: the flavor of a RunPod CPU pod decides its "
                                      "memory: set launch.machine and launch.cpus");
    return DILOCO_OK;
}

/* A pod has no time limit of its own, hence no launch.timeout. A search and a creation are two
 * requests: not exactly_once. */
const dl_executor dl_executor_runpod = {
    .name = "runpod",
    .needs = "an API key in RUNPOD_API_KEY; launch.image; launch.gpu_type with launch.gpus; "
             "secrets stored in the account under the same names",
    .tested =
        "a fake of this project; pods fit models of a third party, mcparmory-runpod 1.0.1, of the "
        "published API. Not run against the real one",
    .options = "|image|machine|cpus|gpus|gpu_type|memory|disk|spot|region|endpoint|",
    .without = "|dir|grace|timeout|",
    .caps = {.api = "v1",
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "none: the replica ships it to the store",
             .restart = "of a container that ends, until its pod is deleted",
             .secrets = "secrets of the account",
             .price = "a pod until it is deleted: launch.machine, launch.gpu_type, launch.gpus, "
                      "launch.cpus, launch.memory, launch.disk, launch.region, launch.spot",
             .spot = true,
             .in_image = true,
             .must_be_stopped = true},
    .poll_s = 15,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .cancel = cancel,
};
