/* modal.c - replicas as sandboxes of Modal, by its own command: modal run.
 *
 * Modal's command has no call for sandboxes, but it runs a script: the text below, which makes the
 * calls of one request and prints the answers. A sandbox has its replica's name in the app
 * diloco-<run>, and is searched by that name before it is created. Values of secrets go to `modal`
 * by its environment; the script has the names.
 *
 * A run of the script takes seconds, so all jobs of a call go into one request. `answer` catches
 * the errors of one job, and the others of the request are still answered. */
#include "base/log.h"
#include "base/text.h"
#include "launch/cloud/jobs.h"
#include "launch/command.h"
#include "launch/executor_rows.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a script with its request, and of its output. Modal stops a sandbox after a day at the
 * latest, and reports code 124 for its own time limit. */
enum { SCRIPT_MAX = 16 << 20, ANSWER_MAX = 16 << 20, DAY_S = 86400, CODE_TIMEOUT = 124 };

#define PATIENCE (600 * DL_SECOND) /* the first call may build the image */

/* The only version of the package modal whose calls were compared with those below. Add a later one
 * after tests/launch/fits.py has accepted it. */
#define KNOWN   "1.6"
#define INSTALL "pip install 'modal==" KNOWN ".*'"

/* The end of the sentence with which the script refuses a version. */
#define UNKNOWN " is not known here"

/* The script, line by line, after the request as `asked` (write_script). An entry of the answers is
 * {"id"}, {"error", "again", "full"}, {"id", "code", "stopped", "gone"}, or {"other"}. "unknown" is
 * the version of modal if it is not known here. Such a one creates nothing, but sandboxes that cost
 * money are still seen and stopped. */
static const char *const script[] = {
    "import datetime, re, sys, time",
    "import modal",
    "",
    "numbers = re.match(\"[0-9]+[.][0-9]+\", modal.__version__)",
    ("is_known = numbers is not None and numbers[0] == \"" KNOWN "\""),
    "if asked[\"what\"] == \"create\" and not is_known:",
    ("    sys.exit(\"version \" + modal.__version__ + \" of modal" UNKNOWN "\")"),
    "",
    "app = modal.App(\"diloco-launch\")",
    /* Errors after which another try may succeed. */
    "away = (modal.exception.ConnectionError, modal.exception.ServiceError,",
    "        modal.exception.InternalError, modal.exception.TimeoutError)",
    "",
    /* A sandbox that has ended is found as well, since a name is never started twice. If another
     * launcher creates the name between the search and the creation, its sandbox is used. */
    "def find(job):",
    "    found = modal.Sandbox.from_name(asked[\"app\"], job[\"name\"], include_terminated=True)",
    "    return {\"id\": found.object_id}",
    "",
    "def create(job):",
    "    try:",
    "        return find(job)",
    "    except modal.exception.NotFoundError:",
    "        pass",
    "    image = modal.Image.from_registry(asked[\"image\"], add_python=\"3.12\").entrypoint([])",
    "    secrets = [modal.Secret.from_local_environ(asked[\"secrets\"])]",
    "    try:",
    "        return {\"id\": modal.Sandbox.create(",
    "            *job[\"words\"], app=modal.App.lookup(asked[\"app\"], create_if_missing=True),",
    "            name=job[\"name\"], image=image, env=job[\"env\"], secrets=secrets,",
    "            **asked[\"machine\"]).object_id}",
    "    except modal.exception.AlreadyExistsError:",
    "        return find(job)",
    "",
    /* An id that is not the sandbox of this name may be another one of the same user. */
    "def is_other(job):",
    "    return find(job)[\"id\"] != job[\"id\"]",
    "",
    "def look(job):",
    "    if is_other(job):",
    "        return {\"other\": True}",
    "    sandbox = modal.Sandbox.from_id(job[\"id\"])",
    "    code = sandbox.poll()",
    "    stopped = code is not None and \"diloco-stopped\" in sandbox.get_tags()",
    "    return {\"id\": job[\"id\"], \"code\": code, \"stopped\": stopped}",
    "",
    "def runs(sandbox):",
    "    return not isinstance(sandbox.poll(), int)",
    "",
    /* The tag comes before the end, so that `look` never sees an end on request without it. */
    "def stop(job):",
    "    if is_other(job):",
    "        return {\"other\": True}",
    "    sandbox = modal.Sandbox.from_id(job[\"id\"])",
    "    if runs(sandbox):",
    "        sandbox.set_tags({\"diloco-stopped\": \"1\"})",
    "        sandbox.terminate()",
    "    return {\"id\": job[\"id\"]}",
    "",
    /* Modal permits 35 days from `since` to `until`. Times of output are Modal's, and the clock of
     * this machine may differ by hours or days, in both directions. So the first entry is searched
     * around this machine's time, then in the days after and before. Output is read on from the
     * last entry's own time, of which `seen` entries were printed. */
    "def logs(job, follow):",
    "    sandbox = modal.Sandbox.from_id(job[\"id\"])",
    "    span = datetime.timedelta(days=34)",
    "    last, seen, more = None, 0, True",
    "    while more:",
    "        more = follow and runs(sandbox)",
    "        begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=33)",
    "        for since in [last] if last else [begin, begin + span, begin - span]:",
    "            skip = seen",
    "            for entry in sandbox.logs.fetch(since=since, until=since + span):",
    "                if entry.timestamp != last:",
    "                    last, seen, skip = entry.timestamp, 0, 0",
    "                if skip:",
    "                    skip -= 1",
    "                    continue",
    "                seen += 1",
    "                print(entry.message, end=\"\", flush=True)",
    "            if last:",
    "                break",
    "        if more:",
    "            time.sleep(2)",
    "",
    "def answer(job):",
    "    try:",
    "        calls = {\"create\": create, \"find\": find, \"look\": look, \"stop\": stop}",
    "        return calls[asked[\"what\"]](job)",
    "    except modal.exception.Error as error:",
    "        if \"id\" in job and isinstance(error, modal.exception.NotFoundError):",
    "            return {\"id\": job[\"id\"], \"gone\": True}",
    "        full = isinstance(error, modal.exception.ResourceExhaustedError)",
    "        return {\"error\": str(error), \"again\": isinstance(error, away), \"full\": full}",
    "",
    "@app.local_entrypoint()",
    "def main():",
    "    if asked[\"what\"] == \"logs\":",
    "        logs(asked[\"jobs\"][0], asked[\"follow\"])",
    "    else:",
    "        answers = {\"answers\": [answer(job) for job in asked[\"jobs\"]]}",
    "        if not is_known:",
    "            answers[\"unknown\"] = modal.__version__",
    "        print(\"\\n\" + json.dumps(answers))",
    "",
};

/* ---- requests */

/* Memory is in MiB, and launch.memory in GB of 1000^3 bytes. A time limit is always given, because
 * Modal's own default is minutes. A GPU is "TYPE:NUMBER". */
static void put_machine(dl_json *j, const dl_config *config)
{
    char gpu[160];
    dl_json_object(j, "machine");
    dl_json_i64(j, "timeout",
                config->launch_timeout_s > 0 ? dl_cloud_ceiling(config->launch_timeout_s) : DAY_S);
    if (config->launch_cpus) dl_json_f64(j, "cpu", (double)config->launch_cpus);
    if (config->launch_memory_gb > 0)
        dl_json_i64(j, "memory", (int64_t)(config->launch_memory_gb * 1000 / 1.048576));
    if (config->launch_region[0]) dl_json_str(j, "region", config->launch_region);
    if (config->launch_gpus) {
        snprintf(gpu, sizeof gpu, "%.127s:%lld", config->launch_gpu_type,
                 (long long)config->launch_gpus);
        dl_json_str(j, "gpu", gpu);
    }
    dl_json_end(j);
}

/* The app that has all sandboxes of a run. */
static void put_app(dl_json *j, const dl_launch_spec *spec)
{
    char app[32];
    snprintf(app, sizeof app, "diloco-%.8s", spec->run);
    dl_json_str(j, "app", app);
}

/* The parts of a request to create sandboxes that are the same for all jobs. */
static void put_spec(dl_json *j, const dl_launch_spec *spec)
{
    dl_json_str(j, "image", spec->config->launch_image);
    put_machine(j, spec->config);
    dl_json_array(j, "secrets");
    for (const char *const *s = spec->secrets; *s; s++)
        dl_json_str(j, NULL, *s);
    dl_json_end(j);
}

/* Creating needs the words and variables; everything else the id. */
static diloco_status put_job(dl_json *j, const dl_launch_spec *spec, const dl_job *job, bool create)
{
    char rank[16];
    diloco_status status = DILOCO_OK;
    dl_json_object(j, NULL);
    dl_json_str(j, "name", job->name);
    if (create) {
        snprintf(rank, sizeof rank, "%u", job->rank);
        status = dl_cloud_argv(j, "words", spec, rank, 0);
        if (!status) status = dl_cloud_env(j, "env", spec, job, false);
    } else {
        dl_json_str(j, "id", job->id);
    }
    dl_json_end(j);
    return status;
}

/* {"what","follow","app", the parts of the spec when creating, "jobs"}. */
static diloco_status put_request(dl_buf *out, const dl_launch_spec *spec, const char *what,
                                 const dl_job *jobs, size_t n, bool follow)
{
    dl_json j;
    const bool create = strcmp(what, "create") == 0;
    diloco_status status = DILOCO_OK;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "what", what);
    dl_json_bool(&j, "follow", follow);
    put_app(&j, spec);
    if (create) put_spec(&j, spec);
    dl_json_array(&j, "jobs");
    for (size_t i = 0; !status && i < n; i++)
        status = put_job(&j, spec, &jobs[i], create);
    dl_json_end(&j);
    dl_json_end(&j);
    DL_TRY(status);
    return dl_json_done(&j);
}

/* Append the request and the script. The request is JSON in a string of Python. Escapes of a JSON
 * string mean the same there, except "\/" and pairs of surrogates, which the writer does not use.
 */
static diloco_status write_script(dl_buf *out, const dl_launch_spec *spec, const char *what,
                                  const dl_job *jobs, size_t n, bool follow)
{
    dl_buf request, quoted;
    dl_json j;
    dl_buf_init(&request, SCRIPT_MAX);
    dl_buf_init(&quoted, SCRIPT_MAX);
    diloco_status status = put_request(&request, spec, what, jobs, n, follow);
    if (!status) {
        dl_json_init(&j, &quoted);
        dl_json_strn(&j, NULL, (const char *)request.data, request.len);
        status = dl_json_done(&j);
    }
    if (!status)
        status = dl_buf_addf(out, "import json\nasked = json.loads(%.*s)\n", (int)quoted.len,
                             (const char *)quoted.data);
    for (size_t i = 0; !status && i < sizeof script / sizeof *script; i++)
        status = dl_buf_addf(out, "%s\n", script[i]);
    dl_buf_deinit(&request);
    dl_buf_deinit(&quoted);
    return status;
}

/* ---- calls */

static const char *const command[] = {"modal", "run", "--quiet", "-", NULL};

/* Warn once of a version that is not known here. */
static void warn_of_version(dl_json_value whole)
{
    static atomic_bool warned;
    char version[64];
    dl_rest_message(version, sizeof version, whole, "unknown");
    if (*version && !atomic_exchange(&warned, true))
        dl_log(DILOCO_LOG_WARN,
               "version %s of modal" UNKNOWN ": it starts no replica. Those that run are still "
               "shown and stopped by the calls of " KNOWN ": " INSTALL,
               version);
}

/* Find the array of answers, one for each job. It is in the last line that begins with a brace:
 * `modal` and the image may print other lines. */
static diloco_status find_answers(dl_json_value *answers, dl_buf *text, size_t n)
{
    const char *at = dl_buf_str(text), *last = NULL;
    dl_json_value whole;
    for (; at; at = (at = strchr(at, '\n')) ? at + 1 : NULL)
        if (*at == '{') last = at;
    if (last && !dl_json_parse(&whole, last, strcspn(last, "\n"))) {
        *answers = dl_json_get(whole, "answers");
        warn_of_version(whole);
        if (dl_json_count(*answers) == n) return DILOCO_OK;
    }
    return dl_fail(DILOCO_EPROTO, "modal: its script printed no answers; Modal " KNOWN " does");
}

/* The error of a script that fails as a whole. It counts as an outage, since `answer` catches the
 * errors of single jobs. Only a missing token (modal/client.py) and an unknown version are known to
 * be none. */
static diloco_status refuse(const dl_command_result *result)
{
    if (strstr(result->err, UNKNOWN))
        return dl_fail(DILOCO_EREFUSED, "modal run: %.300s: " INSTALL, result->err);
    if (strstr(result->err, "Token missing"))
        return dl_fail(DILOCO_EREFUSED, "modal run: %.300s; modal setup  makes a token",
                       result->err);
    return dl_fail(DILOCO_EUNREACHABLE, "modal run ended with exit code %d: %.300s",
                   result->exit_code, result->err);
}

/* Run the script, and find its answers. The caller frees *text after success. */
static diloco_status ask(dl_json_value *answers, dl_buf *text, const dl_launch_spec *spec,
                         const char *what, const dl_job *jobs, size_t n)
{
    dl_command_result result;
    dl_buf in;
    dl_buf_init(&in, SCRIPT_MAX);
    diloco_status status = write_script(&in, spec, what, jobs, n, false);
    const dl_command_run run = {
        .argv = command, .in = in.data, .in_len = in.len, .most = ANSWER_MAX, .patience = PATIENCE};
    if (!status) status = dl_command_do(&result, &run);
    dl_buf_deinit(&in);
    DL_TRY(status);
    *text = result.out;
    if (result.exit_code)
        status = refuse(&result);
    else
        status = find_answers(answers, text, n);
    if (status) dl_buf_deinit(text);
    return status;
}

/* Is the job's id that of another sandbox? Its name is not in the answer. */
static bool is_other(dl_json_value response)
{
    return dl_json_get(response, "other").type != DL_JSON_MISSING;
}

/* Returns the error that the answer holds. `again`: another try may succeed. `full`: the workspace
 * has reached a limit. */
static diloco_status check_answer(dl_json_value response, const dl_job *job,
                                  const dl_config *config)
{
    char why[400];
    bool again, full;
    if (is_other(response)) return dl_job_refuse_other(job, NULL);
    if (dl_json_get(response, "error").type == DL_JSON_MISSING) return DILOCO_OK;
    dl_rest_message(why, sizeof why, response, "error");
    if (dl_json_read_bool(&again, response, "again")) again = true;
    if (dl_json_read_bool(&full, response, "full")) full = false;
    const char *option = again || full ? NULL : dl_cloud_blamed(config, why);
    return dl_fail(again ? DILOCO_EUNREACHABLE : DILOCO_EREFUSED, "%s: modal: %s%s%s%s", job->name,
                   dl_text_clause(why), full ? DL_CLOUD_QUOTA : "", option ? "; check " : "",
                   option ? option : "");
}

static void set_id(dl_job *job, dl_json_value response)
{
    dl_rest_text(job->id, sizeof job->id, response, "id");
}

/* Set the state of a job. A sandbox without a code runs. The tag distinguishes a stop on request
 * from other ends. */
static void see(dl_job *job, dl_json_value response, const dl_config *config)
{
    bool gone, stopped;
    uint64_t code;
    job->silent = false;
    if (dl_json_read_bool(&gone, response, "gone")) gone = false;
    if (dl_json_read_bool(&stopped, response, "stopped")) stopped = false;
    if (gone)
        dl_job_set(job, DL_JOB_LOST, -1, "Modal no longer knows this sandbox");
    else if (dl_json_read_u64(&code, response, "code", 255))
        dl_job_set(job, DL_JOB_RUNNING, -1, "%s", "");
    else if (stopped)
        dl_job_set(job, DL_JOB_CANCELLED, (int)code, "stopped on request");
    else if (code == CODE_TIMEOUT && config->launch_timeout_s > 0)
        dl_job_set(job, DL_JOB_FAILED, -1, "launch.timeout is over");
    else if (code == CODE_TIMEOUT)
        dl_job_set(job, DL_JOB_LOST, -1, "stopped by Modal after a day, the longest time it has");
    else
        dl_cloud_set_ended(job, (int)code);
}

/* Use one answer for its job. */
static diloco_status use_answer(dl_job *job, dl_json_value response, const char *what,
                                const dl_config *config)
{
    const bool look = strcmp(what, "look") == 0;
    if (look && is_other(response)) {
        dl_job_set_other(job, NULL);
        return DILOCO_OK;
    }
    DL_TRY(check_answer(response, job, config));
    if (look) see(job, response, config);
    if (strcmp(what, "create") == 0 || strcmp(what, "find") == 0) set_id(job, response);
    return DILOCO_OK;
}

/* Give each answer to its job. One error is returned after the others have been used. */
static diloco_status ask_all(const dl_launch_spec *spec, const char *what, dl_job *jobs, size_t n)
{
    dl_json_value answers;
    dl_buf text;
    size_t i = 0;
    diloco_status status = DILOCO_OK;
    if (!n) return DILOCO_OK;
    DL_TRY(ask(&answers, &text, spec, what, jobs, n));
    for (dl_json_iter it = dl_json_each(answers); dl_json_next(&it); i++) {
        const diloco_status one = use_answer(&jobs[i], it.value, what, spec->config);
        if (one && !status) status = one;
    }
    dl_buf_deinit(&text);
    return status;
}

/* ---- the row */

/* Ids are "sb-" with letters and digits today. That is not promised. */
static bool is_id(const dl_job *job)
{
    return dl_id_is_plain(job->id, "-_");
}

/* For --dry-run: the script that creates the sandboxes, which has no value of a secret. */
static diloco_status print_script(const dl_launch_spec *spec, const dl_job *jobs, size_t n)
{
    dl_buf text;
    dl_buf_init(&text, SCRIPT_MAX);
    const diloco_status status = write_script(&text, spec, "create", jobs, n, false);
    if (!status)
        fprintf(spec->dry, "modal run --quiet - <<'END'\n%.*sEND\n", (int)text.len,
                (const char *)text.data);
    dl_buf_deinit(&text);
    return status;
}

static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return spec->dry ? print_script(spec, jobs, n) : ask_all(spec, "create", jobs, n);
}

/* A sandbox that does not exist is "gone", with the id "". */
static diloco_status find_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return ask_all(spec, "find", jobs, n);
}

static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return ask_all(spec, "look", jobs, n);
}

static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return ask_all(spec, "stop", jobs, n);
}

/* Returns DILOCO_EREFUSED if the id is that of another sandbox. One that is gone passes. */
static diloco_status check_name(const dl_launch_spec *spec, const dl_job *job)
{
    dl_json_value answers;
    dl_buf text;
    DL_TRY(ask(&answers, &text, spec, "look", job, 1));
    dl_json_iter it = dl_json_each(answers);
    const diloco_status status =
        dl_json_next(&it) ? check_answer(it.value, job, spec->config) : DILOCO_OK;
    dl_buf_deinit(&text);
    return status;
}

/* The script prints the output itself, so stdout of `modal` is the log, and a refusal cannot come
 * from it: the name is checked by a call of its own. */
static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    dl_buf in;
    int exit_code = 0;
    DL_TRY(check_name(spec, job));
    dl_buf_init(&in, SCRIPT_MAX);
    diloco_status status = write_script(&in, spec, "logs", job, 1, follow);
    if (!status) status = dl_command_lines(&exit_code, command, in.data, in.len, fn, user);
    dl_buf_deinit(&in);
    DL_TRY(status);
    return exit_code ? dl_fail(DILOCO_EUNREACHABLE, "%s: modal run ended with exit code %d",
                               job->name, exit_code)
                     : DILOCO_OK;
}

/* A longer limit than Modal's own would have no effect. */
static diloco_status check(const dl_launch_spec *spec)
{
    const dl_config *config = spec->config;
    DL_TRY(
        dl_cloud_need(config->launch_image, "launch.image", "modal", "docker.io/you/diloco:0.2"));
    if (!config->launch_gpus != !config->launch_gpu_type[0])
        return dl_fail(DILOCO_EINVAL, "modal needs launch.gpus and launch.gpu_type together, such "
                                      "as launch.gpus=1 and launch.gpu_type=L4");
    if (config->launch_timeout_s > DAY_S)
        return dl_fail(DILOCO_EINVAL,
                       "launch.timeout = %.0f: Modal stops a sandbox after %d seconds "
                       "at the latest",
                       ceil(config->launch_timeout_s), DAY_S);
    if (dl_command_exists("modal")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "modal: there is no program modal here: " INSTALL
                                  ", and  modal setup  makes a token");
}

/* The script searches and creates in two steps. Modal refuses a second sandbox of a name, which the
 * script then finds. */
const dl_executor dl_executor_modal = {
    .name = "modal",
    .needs = "Modal's command modal, version 1.6, with a token; launch.image",
    .tested = "a recorder in place of modal; its calls fit the package modal 1.6.4. Not run "
              "against the real one",
    .options = "|image|cpus|gpus|gpu_type|memory|region|",
    .without = "|dir|grace|",
    .caps = {.api = "the client modal " KNOWN,
             .net = "none",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "logs of the sandbox",
             .restart = "no",
             .secrets = "secrets of the sandbox",
             .price = "cores, memory and GPUs: launch.cpus, launch.memory, launch.gpus, "
                      "launch.gpu_type, launch.region",
             .max_runtime_s = DAY_S,
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
