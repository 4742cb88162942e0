/* slurm_rest.c - the requests to Slurm by its REST API: slurmrestd at launch.endpoint.
 *
 * v0.0.38 takes plain numbers; later versions have {"set":true,"number":5}, and arrays of flags.
 * Answers are read in both forms, whatever the version. */
#include "base/text.h"
#include "launch/cloud/slurm_client.h"
#include "launch/slurm_calls.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the list of all jobs of a cluster, which has 4 KB for each. */
enum { JOBS_MAX = 256 << 20 };

/* ---- submitting */

static void put_number(dl_json *j, const dl_slurm_version *version, const char *key, int64_t value)
{
    if (version->plain) {
        dl_json_i64(j, key, value);
        return;
    }
    dl_json_object(j, key);
    dl_json_bool(j, "set", true);
    dl_json_i64(j, "number", value);
    dl_json_end(j);
}

static void put_flag(dl_json *j, const char *key, const char *flag)
{
    dl_json_array(j, key);
    dl_json_str(j, NULL, flag);
    dl_json_end(j);
}

/* The job's environment: an object, or from v0.0.40 on an array of "NAME=value". */
static diloco_status put_environment(dl_json *j, const dl_slurm_version *version)
{
    dl_buf text;
    dl_buf_init(&text, DL_REST_BODY);
    diloco_status status = DILOCO_OK;
    if (version->plain)
        dl_json_object(j, "environment");
    else
        dl_json_array(j, "environment");
    for (const char *const *name = dl_slurm_variables; *name && !status; name++) {
        const char *value = getenv(*name);
        dl_buf_clear(&text);
        if (value && version->plain) dl_json_str(j, *name, value);
        if (value && !version->plain) status = dl_buf_addf(&text, "%s=%s", *name, value);
        if (!status && text.len) dl_json_str(j, NULL, dl_buf_str(&text));
    }
    dl_json_end(j);
    dl_buf_deinit(&text);
    return status;
}

/* The resources that a person gave. v0.0.38 can signal only the steps of a job, and the replica is
 * in none, so it has no notice before a limit of the partition. */
static void put_resources(dl_json *j, const dl_slurm_version *version, const dl_config *config)
{
    char gpus[32];
    snprintf(gpus, sizeof gpus, "%s%lld",
             version->plain ? "gpu:" : "gres/gpu:", (long long)config->launch_gpus);
    if (config->launch_cpus) dl_json_i64(j, "cpus_per_task", config->launch_cpus);
    if (config->launch_gpus) dl_json_str(j, version->plain ? "gres" : "tres_per_node", gpus);
    if (config->launch_memory_gb > 0)
        put_number(j, version, "memory_per_node", dl_slurm_megabytes(config));
    if (config->launch_queue[0]) dl_json_str(j, "partition", config->launch_queue);
    if (config->launch_account[0]) dl_json_str(j, "account", config->launch_account);
    if (config->launch_timeout_s > 0)
        put_number(j, version, "time_limit", dl_slurm_minutes(config));
    else if (!version->plain) {
        dl_json_str(j, "kill_warning_signal", "TERM");
        put_flag(j, "kill_warning_flags", "BATCH_JOB");
        put_number(j, version, "kill_warning_delay", dl_slurm_notice(config));
    }
}

static diloco_status put_job(dl_json *j, const dl_slurm_version *version,
                             const dl_launch_spec *spec, const dl_slurm_submission *submission)
{
    dl_json_object(j, NULL);
    dl_json_str(j, "script", submission->script);
    dl_json_object(j, "job");
    dl_json_str(j, "name", submission->name);
    dl_json_str(j, "array", submission->array);
    dl_json_i64(j, "tasks", 1);
    dl_json_bool(j, "requeue", true);
    if (version->plain)
        dl_json_str(j, "open_mode", "append");
    else
        put_flag(j, "open_mode", "APPEND");
    DL_TRY(put_environment(j, version));
    dl_json_str(j, "current_working_directory", spec->dir);
    dl_json_str(j, "standard_output", submission->output);
    put_resources(j, version, spec->config);
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* The request is made once. If its answer is lost, the next launch finds the job by its name. */
static diloco_status post_job(char number[32], dl_slurm_client *c, dl_rest_call *call)
{
    dl_rest_response response;
    uint64_t id = 0;
    DL_TRY(dl_rest_do(&c->rest, call, &response));
    diloco_status status = DILOCO_OK;
    if (!dl_rest_is_good(&response))
        status = dl_slurm_failed(c, call, &response);
    else if (!dl_slurm_number(&id, response.json, "job_id") || !id)
        status = dl_fail(DILOCO_EPROTO, "%s: slurmrestd gave no job's number", call->what);
    else
        snprintf(number, 32, "%llu", (unsigned long long)id);
    dl_buf_deinit(&response.text);
    return status;
}

static diloco_status submit(char number[32], const dl_launch_spec *spec,
                            const dl_slurm_submission *submission)
{
    dl_slurm_client c;
    dl_rest_call call;
    dl_slurm_begin(&call, "POST", submission->name);
    call.once = true;
    diloco_status status = dl_slurm_open(&c, spec);
    if (!status) status = dl_rest_path(&call, "/slurm/%s/job/submit", c.version->name);
    if (!status) status = put_job(&call.json, c.version, spec, submission);
    if (!status) status = spec->dry ? dl_rest_print(&c.rest, &call) : post_job(number, &c, &call);
    dl_rest_call_deinit(&call);
    dl_rest_deinit(&c.rest);
    return status;
}

/* ---- listing */

/* The tasks that are wanted: those of jobs [n] by their ids, or by name. */
typedef struct wanted {
    const dl_launch_spec *spec;
    const dl_job *jobs;
    size_t n;
    bool by_name;
} wanted;

/* Is the rank in a list such as "0,2,6-8,10-20:2%4"? Slurm cuts a long list, which then ends in
 * "...": later ranks count as in it. */
static bool has_rank(const char *list, uint64_t rank)
{
    uint64_t last = 0;
    while (*list >= '0' && *list <= '9') {
        char *at;
        const uint64_t first = strtoull(list, &at, 10);
        uint64_t step = 1;
        last = *at == '-' ? strtoull(at + 1, &at, 10) : first;
        if (*at == ':') step = strtoull(at + 1, &at, 10);
        if (rank >= first && rank <= last && step && (rank - first) % step == 0) return true;
        list = *at == ',' ? at + 1 : at;
    }
    return strncmp(list, "...", 3) == 0 && rank > last;
}

/* The state as squeue names it. From v0.0.40 on it is an array: the state, then flags. squeue shows
 * the first of these flags that is set in the place of the state (job_state_string of Slurm 24.11).
 * It never shows the others, such as POWER_UP_NODE and LAUNCH_FAILED. */
static void read_state(char out[128], dl_json_value record)
{
    static const char *const shown[] = {
        "COMPLETING",   "STAGE_OUT",    "CONFIGURING", "RESIZING", "REQUEUED",      "REQUEUE_FED",
        "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED",     "REVOKED",  "RESV_DEL_HOLD", "SIGNALING"};
    enum { N_SHOWN = sizeof shown / sizeof *shown };
    char word[64];
    size_t best = N_SHOWN;
    const dl_json_value state = dl_json_get(record, "job_state");
    dl_rest_text(out, 128, record, "job_state");
    for (dl_json_iter it = dl_json_each(state); dl_json_next(&it);) {
        size_t k = 0;
        if (dl_json_as_str(word, sizeof word, it.value)) continue;
        while (k < best && strcmp(shown[k], word) != 0)
            k++;
        if (!it.index || k < best) snprintf(out, 128, "%s", word);
        best = k;
    }
}

/* The wait status (wait(2)): a number, or from v0.0.40 on its two parts. */
static void read_status(char out[128], dl_json_value record)
{
    uint64_t status = 0, part = 0;
    if (!dl_slurm_number(&status, record, "exit_code")) {
        if (dl_slurm_number(&part, record, "exit_code.return_code")) status = part << 8;
        if (dl_slurm_number(&part, record, "exit_code.signal.id")) status |= part & 127;
    }
    snprintf(out, 128, "%llu", (unsigned long long)status);
}

/* Append one task. */
static diloco_status add_task(dl_slurm_tasks *out, dl_json_value record, uint64_t number,
                              uint32_t rank)
{
    uint64_t restarts = 0;
    dl_slurm_task *task = dl_slurm_add(out);
    if (!task) return dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
    (void)dl_slurm_number(&restarts, record, "restart_cnt");
    snprintf(task->field[DL_SLURM_ID], sizeof task->field[0], "%llu_%u", (unsigned long long)number,
             rank);
    dl_rest_message(task->field[DL_SLURM_NAME], sizeof task->field[0], record, "name");
    read_state(task->field[DL_SLURM_STATE], record);
    read_status(task->field[DL_SLURM_STATUS], record);
    snprintf(task->field[DL_SLURM_RESTARTS], sizeof task->field[0], "%llu",
             (unsigned long long)restarts);
    dl_rest_message(task->field[DL_SLURM_NODES], sizeof task->field[0], record, "nodes");
    dl_rest_message(task->field[DL_SLURM_REASON], sizeof task->field[0], record, "state_reason");
    return DILOCO_OK;
}

/* Append the record of an array whose tasks were all cancelled. Its id is the array's number. */
static diloco_status add_rest(dl_slurm_tasks *out, dl_json_value record, uint64_t number)
{
    DL_TRY(add_task(out, record, number, 0));
    snprintf(out->at[out->n - 1].field[DL_SLURM_ID], sizeof out->at->field[0], "%llu",
             (unsigned long long)number);
    return DILOCO_OK;
}

/* Is this job wanted, by the number in its id or by the name of its array? */
static bool is_wanted(const wanted *w, const dl_job *job, uint64_t number, const char *name)
{
    char own[DL_JOB_NAME_MAX + 1];
    if (!w->by_name) return strtoull(job->id, NULL, 10) == number;
    dl_slurm_job_name(own, w->spec, job->generation);
    return strcmp(own, name) == 0;
}

/* Append the wanted tasks of a record. Tasks that have not begun share one record with a list of
 * ranks; each other task has one of its own. */
static diloco_status add_record(dl_slurm_tasks *out, const wanted *w, dl_json_value record)
{
    char name[DL_JOB_NAME_MAX + 1], prefix[32];
    uint64_t number = 0, rank = 0;
    if (!dl_slurm_number(&number, record, "array_job_id") || !number) return DILOCO_OK;
    snprintf(prefix, sizeof prefix, "diloco-%.8s-", w->spec->run);
    dl_rest_text(name, sizeof name, record, "name");
    if (w->by_name && strncmp(name, prefix, strlen(prefix)) != 0) return DILOCO_OK;
    const bool alone = dl_slurm_number(&rank, record, "array_task_id");
    char *list = alone ? NULL : dl_rest_copy(record, "array_task_string");
    diloco_status status = DILOCO_OK;
    if (w->by_name && !alone && !(list && *list)) status = add_rest(out, record, number);
    for (size_t i = 0; !status && i < w->n; i++) {
        const dl_job *job = &w->jobs[i];
        const bool in = alone ? job->rank == rank : list && has_rank(list, job->rank);
        if (in && is_wanted(w, job, number, name))
            status = add_task(out, record, number, job->rank);
    }
    free(list);
    return status;
}

/* Append the wanted tasks of an answer. Records of lists come first: a list that was cut may seem
 * to hold a task that has a record of its own, and the later one counts. An answer without jobs
 * would make every replica lost, so it has to be one of Slurm. */
static diloco_status add_records(dl_slurm_tasks *out, const wanted *w, dl_json_value response)
{
    uint64_t rank;
    const dl_json_value list = dl_json_get(response, "jobs");
    if (list.type != DL_JSON_ARRAY)
        return dl_fail(DILOCO_EUNREACHABLE, "slurmrestd gave no list of jobs");
    for (int alone = 0; alone < 2; alone++)
        for (dl_json_iter it = dl_json_each(list); dl_json_next(&it);)
            if (dl_slurm_number(&rank, it.value, "array_task_id") == (alone == 1))
                DL_TRY(add_record(out, w, it.value));
    return DILOCO_OK;
}

/* Append the wanted tasks of one list: of all jobs, or of the array with this number. A job that
 * Slurm does not have has none. */
static diloco_status list_jobs(dl_slurm_tasks *out, dl_slurm_client *c, const wanted *w,
                               uint64_t number)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_slurm_begin(&call, "GET", "the jobs of Slurm");
    call.most = JOBS_MAX;
    diloco_status status = number ? dl_rest_path(&call, "/slurm/%s/job/%llu", c->version->name,
                                                 (unsigned long long)number)
                                  : dl_rest_path(&call, "/slurm/%s/jobs", c->version->name);
    if (!status) status = dl_rest_do(&c->rest, &call, &response);
    if (!status) {
        const bool gone = number && dl_slurm_error(&response) == DL_SLURM_INVALID_JOB_ID;
        if (dl_rest_is_good(&response))
            status = add_records(out, w, response.json);
        else if (!gone)
            status = dl_slurm_failed(c, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Append the wanted tasks: by one request for each array or, since the API has no filter by name,
 * from the list of all jobs of the cluster. That text is in memory once: its JSON is read in place.
 * Quadratic in n, which DL_JOBS_MAX bounds. */
static diloco_status list_wanted(dl_slurm_tasks *out, const wanted *w)
{
    dl_slurm_client c;
    diloco_status status = dl_slurm_open(&c, w->spec);
    if (!status && w->by_name) status = list_jobs(out, &c, w, 0);
    for (size_t i = 0; !status && !w->by_name && i < w->n; i++) {
        const uint64_t number = strtoull(w->jobs[i].id, NULL, 10);
        size_t k = 0;
        while (k < i && strtoull(w->jobs[k].id, NULL, 10) != number)
            k++;
        if (k == i && number) status = list_jobs(out, &c, w, number);
    }
    dl_rest_deinit(&c.rest);
    return status;
}

static diloco_status find(dl_slurm_tasks *out, const dl_launch_spec *spec, const dl_job *jobs,
                          size_t n)
{
    return list_wanted(out, &(wanted){.spec = spec, .jobs = jobs, .n = n, .by_name = true});
}

static diloco_status look(dl_slurm_tasks *out, const dl_launch_spec *spec, const dl_job *jobs,
                          size_t n)
{
    return list_wanted(out, &(wanted){.spec = spec, .jobs = jobs, .n = n});
}

/* ---- stopping */

/* A task that is over or gone is no error. */
static bool is_over(uint64_t code)
{
    return code == DL_SLURM_INVALID_JOB_ID || code == DL_SLURM_ALREADY_DONE;
}

/* The answer to a list has an error for each task, also if it is 200: `status[].error.code`.
 * Returns the error of the first task that was not stopped. */
static diloco_status check_each(const char *what, dl_json_value response)
{
    for (dl_json_iter it = dl_json_each(dl_json_get(response, "status")); dl_json_next(&it);) {
        char id[32], why[256];
        uint64_t code = 0;
        if (!dl_slurm_number(&code, it.value, "error.code") || !code || is_over(code)) continue;
        dl_rest_message(id, sizeof id, it.value, "step_id");
        dl_rest_message(why, sizeof why, it.value, "error.string");
        return dl_fail(DILOCO_EREFUSED, "%s: slurmrestd did not stop %s: error %llu %s", what, id,
                       (unsigned long long)code, dl_text_clause(why));
    }
    return DILOCO_OK;
}

/* Make a call that stops tasks. */
static diloco_status stop(dl_slurm_client *c, dl_rest_call *call)
{
    dl_rest_response response;
    DL_TRY(dl_rest_do(&c->rest, call, &response));
    diloco_status status = DILOCO_OK;
    if (dl_rest_is_good(&response))
        status = check_each(call->what, response.json);
    else if (!is_over(dl_slurm_error(&response)))
        status = dl_slurm_failed(c, call, &response);
    dl_buf_deinit(&response.text);
    return status;
}

static diloco_status stop_one(dl_slurm_client *c, const char *id)
{
    dl_rest_call call;
    dl_slurm_begin(&call, "DELETE", id);
    diloco_status status = dl_rest_path(&call, "/slurm/%s/job/%s", c->version->name, id);
    if (!status) status = stop(c, &call);
    dl_rest_call_deinit(&call);
    return status;
}

static diloco_status stop_list(dl_slurm_client *c, const char *const *ids, size_t n)
{
    dl_rest_call call;
    dl_slurm_begin(&call, "DELETE", "the jobs of Slurm");
    diloco_status status = dl_rest_path(&call, "/slurm/%s/jobs/", c->version->name);
    dl_json_object(&call.json, NULL);
    dl_json_array(&call.json, "jobs");
    for (size_t i = 0; i < n; i++)
        dl_json_str(&call.json, NULL, ids[i]);
    dl_json_end(&call.json);
    dl_json_str(&call.json, "signal", "KILL");
    dl_json_end(&call.json);
    if (!status) status = stop(c, &call);
    dl_rest_call_deinit(&call);
    return status;
}

/* Every task is asked to stop, also after one that could not be. `why` keeps the first error. */
static diloco_status cancel(const dl_launch_spec *spec, const char *const *ids, size_t n)
{
    dl_slurm_client c;
    char why[1024] = "";
    diloco_status first = dl_slurm_open(&c, spec);
    if (!first && !c.version->plain) {
        first = stop_list(&c, ids, n);
        n = 0;
    }
    if (first) n = 0, snprintf(why, sizeof why, "%s", diloco_error_text());
    for (size_t i = 0; i < n; i++) {
        const diloco_status status = stop_one(&c, ids[i]);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    dl_rest_deinit(&c.rest);
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

const dl_slurm_calls dl_slurm_rest = {
    .check = dl_slurm_check, .find = find, .look = look, .submit = submit, .cancel = cancel};
