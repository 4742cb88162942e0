/* slurm_queue.c - see slurm_queue.h. */
#include "launch/slurm_queue.h"

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

/* Slurm's messages may have several lines; an error text has one. */
static void in_one_line(char *text)
{
    for (; *text; text++)
        if (*text == '\n') *text = ' ';
}

/* A command that is killed after its time has not refused anything. */
diloco_status dl_slurm_run(dl_command_result *result, const char *const *argv, const char *in)
{
    const dl_command_run run = {
        .argv = argv, .in = in, .in_len = in ? strlen(in) : 0, .most = QUEUE_MAX};
    diloco_status status = dl_command_do(result, &run);
    if (status == DILOCO_ETIMEDOUT)
        return dl_fail(DILOCO_EUNREACHABLE, "%s: Slurm does not answer", argv[0]);
    if (status || result->exit_code == 0) return status;
    in_one_line(result->err);
    status = is_refusal(result->err) ? dl_fail(DILOCO_EREFUSED, "%s", result->err)
                                     : dl_fail(DILOCO_EUNREACHABLE, "%s: %s", argv[0], result->err);
    dl_buf_deinit(&result->out);
    return status;
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

/* Append the tasks of squeue's output. */
static diloco_status read_tasks(dl_slurm_tasks *out, const dl_buf *text)
{
    const char *at = (const char *)text->data, *end = at ? at + text->len : NULL;
    while (at != end) {
        dl_slurm_task *task = dl_slurm_add(out);
        if (!task) return dl_fail(DILOCO_ENOMEM, "out of memory for the queue");
        (void)next_task(task, &at, end);
    }
    return DILOCO_OK;
}

/* Run squeue with this filter. --states=all includes ended jobs that Slurm still has. The format is
 * that of next_task. */
static diloco_status query(dl_slurm_tasks *out, dl_buf *filter)
{
    dl_command_result result;
    const char *const argv[] = {
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        dl_buf_str(filter),
        "--Format=JobArrayID:|,Name:|,State:|,exit_code:|,RestartCnt:|,NodeList:|,Reason:80",
        NULL};
    if (!argv[4]) return dl_fail(DILOCO_ENOMEM, "out of memory for the words of squeue");
    DL_TRY(dl_slurm_run(&result, argv, NULL));
    const diloco_status status = read_tasks(out, &result.out);
    dl_buf_deinit(&result.out);
    return status;
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
