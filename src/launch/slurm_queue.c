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
diloco_status dl_slurm_run(dl_command_result *result, const char *const *argv, const dl_buf *in)
{
    const dl_command_run run = {
        .argv = argv, .in = in ? in->data : NULL, .in_len = in ? in->len : 0, .most = QUEUE_MAX};
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

/* squeue filters by this name, so that other jobs cost nothing. */
void dl_slurm_job_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec,
                       uint32_t generation)
{
    snprintf(out, DL_JOB_NAME_MAX + 1, "diloco-%.8s-g%u", spec->run, generation);
}

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

/* Run squeue with this filter. --states=all includes ended jobs that Slurm still has. The format is
 * that of dl_slurm_next. */
static diloco_status query(dl_command_result *result, dl_buf *filter)
{
    const char *const argv[] = {
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        dl_buf_str(filter),
        "--Format=JobArrayID:|,Name:|,State:|,exit_code:|,RestartCnt:|,NodeList:|,Reason:80",
        NULL};
    return argv[4] ? dl_slurm_run(result, argv, NULL)
                   : dl_fail(DILOCO_ENOMEM, "out of memory for the words of squeue");
}

diloco_status dl_slurm_queue(dl_command_result *result, const dl_launch_spec *spec,
                             const dl_job *jobs, size_t n)
{
    dl_buf filter;
    dl_buf_init(&filter, LIST_MAX);
    diloco_status status = dl_buf_addf(&filter, "--name=");
    if (!status) status = add_names(&filter, spec, jobs, n);
    if (!status) status = query(result, &filter);
    dl_buf_deinit(&filter);
    return status;
}

/* squeue leaves out ids that Slurm does not have, but fails if the only id is one of them. */
diloco_status dl_slurm_queue_of_ids(dl_command_result *result, const dl_job *jobs, size_t n)
{
    dl_buf filter;
    dl_buf_init(&filter, LIST_MAX);
    diloco_status status = dl_buf_addf(&filter, "--jobs=");
    for (size_t i = 0; !status && i < n; i++)
        status = dl_buf_addf(&filter, "%s%s", i ? "," : "", jobs[i].id);
    if (!status) status = query(result, &filter);
    dl_buf_deinit(&filter);
    if (status != DILOCO_EREFUSED || !strstr(diloco_error_text(), "nvalid job id")) return status;
    *result = (dl_command_result){.exit_code = 0};
    dl_buf_init(&result->out, QUEUE_MAX);
    return DILOCO_OK;
}

/* squeue pads a field with blanks. */
bool dl_slurm_next(dl_slurm_task *out, const char **at, const char *end)
{
    if (*at == end) return false;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline ? newline : end;
    memset(out, 0, sizeof *out);
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
