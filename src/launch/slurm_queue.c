/* slurm_queue.c - see slurm_queue.h. */
#include "launch/slurm_queue.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a list of names or ids, and of squeue's output. */
enum { LIST_MAX = 1 << 20, QUEUE_MAX = 16 << 20 };

/* ---- running Slurm's commands */

/* Does Slurm refuse the request itself? Its commands have one exit code for all errors, so the
 * words of their messages decide. Any other error may be the controller's state, and may pass.
 * First letters are left out, because messages begin with either case. */
static bool is_refusal(const char *err)
{
    static const char *const words[] = {"nvalid",        "ermission",     "denied",
                                        "iolates",       "xceed",         "nrecogni",
                                        "not available", "not permitted", "Unable to open file"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(err, words[i])) return true;
    return false;
}

/* Join the lines of a message of Slurm by "; ". Each of them begins with "sbatch: error: ", and the
 * first one keeps that. */
static void in_one_line(char *out, size_t cap, const char *text, const char *command)
{
    char prefix[32];
    size_t used = 0;
    *out = '\0';
    snprintf(prefix, sizeof prefix, "%.16s: error: ", command);
    while (*text && used < cap) {
        const size_t len = strcspn(text, "\n");
        const size_t skip = used && strncmp(text, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
        if (len > skip)
            used += (size_t)snprintf(out + used, cap - used, "%s%.*s", used ? "; " : "",
                                     (int)(len - skip), text + skip);
        text += len + (text[len] == '\n');
    }
}

/* A command that is killed after its time has not refused anything. */
diloco_status dl_slurm_run(dl_command_result *result, const char *const *argv, const char *in)
{
    const dl_command_run run = {
        .argv = argv, .in = in, .in_len = in ? strlen(in) : 0, .most = QUEUE_MAX};
    char why[2 * sizeof result->err]; /* "; " takes one byte more than a newline */
    diloco_status status = dl_command_do(result, &run);
    if (status == DILOCO_ETIMEDOUT)
        return dl_fail(DILOCO_EUNREACHABLE, "%s: Slurm does not answer", argv[0]);
    if (status || result->exit_code == 0) return status;
    in_one_line(why, sizeof why, result->err, argv[0]);
    status = is_refusal(why) ? dl_fail(DILOCO_EREFUSED, "%s%s", why, dl_slurm_way_out(why))
                             : dl_fail(DILOCO_EUNREACHABLE, "%s: %s", argv[0], why);
    dl_buf_deinit(&result->out);
    return status;
}

/* A byte that is not printable ASCII ends the text. */
void dl_slurm_version(char out[DL_FOUND_MAX + 1])
{
    static const char *const argv[] = {"sbatch", "--version", NULL};
    const dl_command_run run = {.argv = argv, .patience = 10 * DL_SECOND};
    dl_command_result result;
    size_t n = 0;
    *out = '\0';
    if (!dl_command_exists(argv[0]) || dl_command_do(&result, &run)) return;
    const size_t most = dl_size_min(result.out.len, DL_FOUND_MAX);
    while (result.exit_code == 0 && n < most && result.out.data[n] >= ' ' &&
           result.out.data[n] <= '~')
        n++;
    snprintf(out, DL_FOUND_MAX + 1, "%.*s", (int)n, n ? (const char *)result.out.data : "");
    dl_buf_deinit(&result.out);
}

/* ---- the queue */

/* The job names of all generations that occur in jobs, each once, with commas. Quadratic in n; a
 * run has few generations at a time. */
static diloco_status add_names(dl_buf *out, const dl_launch_spec *spec, const dl_job *jobs,
                               size_t n)
{
    char name[DL_JOB_NAME_MAX + 1];
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < i && jobs[k].generation != jobs[i].generation)
            k++;
        if (k < i) continue;
        dl_slurm_job_name(name, spec, jobs[i].generation);
        DL_TRY(dl_buf_addf(out, "%s%s", i ? "," : "", name));
    }
    return DILOCO_OK;
}

/* Read the task at *at into *out, and move *at to the next one. squeue pads a field with blanks,
 * and the last field may itself hold a bar. Returns false at `end`. */
static bool next_task(dl_slurm_task *out, const char **at, const char *end)
{
    if (*at == end) return false;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline ? newline : end;
    for (int i = 0; i < DL_SLURM_FIELDS && *at < stop; i++) {
        const char *bar = memchr(*at, '|', (size_t)(stop - *at));
        size_t len = (size_t)((bar && i < DL_SLURM_FIELDS - 1 ? bar : stop) - *at);
        snprintf(out->field[i], sizeof out->field[i], "%.*s", (int)len, *at);
        for (size_t k = strlen(out->field[i]); k && out->field[i][k - 1] == ' ';)
            out->field[i][--k] = '\0';
        *at += len + (bar && i < DL_SLURM_FIELDS - 1);
    }
    *at = newline ? newline + 1 : end;
    return true;
}

/* Append the tasks that squeue or sacct prints. */
static diloco_status read_tasks(dl_slurm_tasks *out, const char *const *argv)
{
    dl_command_result result;
    diloco_status status = DILOCO_OK;
    DL_TRY(dl_slurm_run(&result, argv, NULL));
    const char *at = (const char *)result.out.data, *end = at ? at + result.out.len : NULL;
    while (!status && at != end) {
        dl_slurm_task *task = dl_slurm_add(out);
        if (task)
            (void)next_task(task, &at, end);
        else
            status = dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
    }
    dl_buf_deinit(&result.out);
    return status;
}

/* Run squeue with this filter. --states=all includes ended jobs that Slurm still has. The format is
 * that of next_task. */
static diloco_status query(dl_slurm_tasks *out, dl_buf *filter)
{
    const char *const argv[] = {
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        dl_buf_str(filter),
        "--Format=JobArrayID:|,Name:|,State:|,exit_code:|,RestartCnt:|,NodeList:|,Reason:80",
        NULL};
    if (!argv[4]) return dl_fail(DILOCO_ENOMEM, "out of memory for the words of squeue");
    return read_tasks(out, argv);
}

/* "--jobs=17_0,17_2" */
static diloco_status add_ids(dl_buf *out, const char *const *ids, size_t n)
{
    DL_TRY(dl_buf_addf(out, "--jobs="));
    for (size_t i = 0; i < n; i++)
        DL_TRY(dl_buf_addf(out, "%s%s", i ? "," : "", ids[i]));
    return DILOCO_OK;
}

diloco_status dl_slurm_queue_find(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                  const dl_job *jobs, size_t n)
{
    dl_buf filter;
    dl_buf_init(&filter, LIST_MAX);
    diloco_status status = dl_buf_addf(&filter, "--name=");
    if (!status) status = add_names(&filter, spec, jobs, n);
    if (!status) status = query(out, &filter);
    dl_buf_deinit(&filter);
    return status;
}

/* squeue leaves out ids that Slurm does not have, but fails if the only id is one of them. */
diloco_status dl_slurm_queue_look(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                  const dl_job *jobs, size_t n)
{
    dl_buf filter;
    (void)spec;
    dl_buf_init(&filter, LIST_MAX);
    diloco_status status = dl_buf_addf(&filter, "--jobs=");
    for (size_t i = 0; !status && i < n; i++)
        status = dl_buf_addf(&filter, "%s%s", i ? "," : "", jobs[i].id);
    if (!status) status = query(out, &filter);
    dl_buf_deinit(&filter);
    return status == DILOCO_EREFUSED && strstr(diloco_error_text(), "nvalid job id") ? DILOCO_OK
                                                                                     : status;
}

/* ---- the accounting database */

/* Rewrite what sacct prints in another form than squeue: the state "CANCELLED by 1000", and the
 * wait status "0:15", exit code and signal. */
static void read_accounted(dl_slurm_task *task)
{
    char *state = task->field[DL_SLURM_STATE], *status = task->field[DL_SLURM_STATUS];
    const char *colon = strchr(status, ':');
    const long code = strtol(status, NULL, 10), signal = colon ? strtol(colon + 1, NULL, 10) : 0;
    state[strcspn(state, " ")] = '\0';
    snprintf(status, sizeof task->field[0], "%ld", (code & 255) << 8 | (signal & 127));
    snprintf(task->field[DL_SLURM_RESTARTS], sizeof task->field[0], "-1");
}

/* sacct of Slurm 22.05 has no number of restarts, so the partition is in its place until
 * read_accounted. A requeued job is listed by its last record. */
diloco_status dl_slurm_queue_recall(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                    const char *const *ids, size_t n)
{
    dl_buf filter;
    const size_t before = out->n;
    (void)spec;
    if (!dl_command_exists("sacct")) return DILOCO_OK;
    dl_buf_init(&filter, LIST_MAX);
    diloco_status status = add_ids(&filter, ids, n);
    const char *const argv[] = {"sacct",
                                "--allocations",
                                "--noheader",
                                "--parsable2",
                                dl_buf_str(&filter),
                                "--format=JobID,JobName,State,ExitCode,Partition,NodeList,Reason",
                                NULL};
    if (!status && !argv[4])
        status = dl_fail(DILOCO_ENOMEM, "out of memory for the words of sacct");
    if (!status) status = read_tasks(out, argv);
    dl_buf_deinit(&filter);
    for (size_t i = before; i < out->n; i++)
        read_accounted(&out->at[i]);
    return status == DILOCO_EUNREACHABLE && strstr(diloco_error_text(), "storage is disabled")
               ? DILOCO_OK
               : status;
}
