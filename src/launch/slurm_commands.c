/* slurm_commands.c - the requests to Slurm by its own commands: sbatch, squeue, scancel,
 * sacct. */
#include "launch/slurm_queue.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Words of sbatch, bytes of a word and of a printed request. The path of the output is the longest
 * word: each '%' of launch.dir is written twice. */
enum { ARGS_MAX = 32, ARG_BYTES = 2 * DL_PATH_MAX + 128, PRINT_MAX = 2 << 20 };

/* The words of one command, with their memory. */
typedef struct arguments {
    char text[ARGS_MAX][ARG_BYTES];
    const char *argv[ARGS_MAX + 1];
    size_t n;
} arguments;

/* Append a word. ARGS_MAX is more than make_arguments adds. */
static void add_arg(arguments *a, const char *format, ...) DL_PRINTF(2, 3);
static void add_arg(arguments *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DL_ASSERT(a->n < ARGS_MAX);
    vsnprintf(a->text[a->n], ARG_BYTES, format, args);
    va_end(args);
    a->argv[a->n] = a->text[a->n];
    a->argv[++a->n] = NULL;
}

/* Options that a person gave. The cluster has defaults for the others. */
static void add_resources(arguments *a, const dl_config *config)
{
    if (config->launch_cpus) add_arg(a, "--cpus-per-task=%lld", (long long)config->launch_cpus);
    if (config->launch_gpus) add_arg(a, "--gres=gpu:%lld", (long long)config->launch_gpus);
    if (config->launch_memory_gb > 0)
        add_arg(a, "--mem=%lldM", (long long)dl_slurm_megabytes(config));
    if (config->launch_queue[0]) add_arg(a, "--partition=%s", config->launch_queue);
    if (config->launch_account[0]) add_arg(a, "--account=%s", config->launch_account);
    if (config->launch_timeout_s > 0)
        add_arg(a, "--time=%lld", (long long)dl_slurm_minutes(config));
    else /* a limit of the partition: the replica saves, ends, and is submitted again */
        add_arg(a, "--signal=B:TERM@%lld", (long long)dl_slurm_notice(config));
}

/* "--export=HOME,PATH,LANG": only these variables go from this environment into the job, so that no
 * secret is in its description. */
static void add_export(arguments *a)
{
    char list[ARG_BYTES] = "";
    for (const char *const *name = dl_slurm_variables; *name; name++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? "," : "", *name);
    }
    add_arg(a, "--export=%s", list);
}

/* Output is appended, since a requeued task writes to the same file. The list of ranks may be
 * longer than a word of `arguments`, so the caller owns it. */
static void make_arguments(arguments *a, const dl_launch_spec *spec,
                           const dl_slurm_submission *submission, const char *array)
{
    add_arg(a, "sbatch");
    add_arg(a, "--parsable");
    add_arg(a, "--job-name=%s", submission->name);
    add_arg(a, "--ntasks=1");
    add_arg(a, "--requeue");
    add_arg(a, "--open-mode=append");
    add_export(a);
    add_arg(a, "--chdir=%s", spec->dir);
    add_arg(a, "--output=%s", submission->output);
    add_resources(a, spec->config);
    a->argv[a->n++] = array;
    a->argv[a->n] = NULL;
}

/* For --dry-run: the command with the script as its input. */
static diloco_status print_request(const dl_launch_spec *spec, const arguments *a,
                                   const char *script)
{
    dl_buf line;
    dl_buf_init(&line, PRINT_MAX);
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; !status && i < a->n; i++) {
        if (i) status = dl_buf_addf(&line, " ");
        if (!status) status = dl_shell_quote(&line, a->argv[i]);
    }
    if (!status) fprintf(spec->dry, "%s <<'SCRIPT'\n%sSCRIPT\n", dl_buf_str(&line), script);
    dl_buf_deinit(&line);
    return status;
}

/* sbatch --parsable prints "17" or, in a federation, "17;cluster". */
static diloco_status run_sbatch(char number[32], const arguments *a, const char *script)
{
    dl_command_result result;
    DL_TRY(dl_slurm_run(&result, a->argv, script));
    const char *said = dl_buf_str(&result.out);
    snprintf(number, 32, "%.*s", said ? (int)strspn(said, "0123456789") : 0, said ? said : "");
    dl_buf_deinit(&result.out);
    return *number ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "sbatch did not print a job's number");
}

static diloco_status submit(char number[32], const dl_launch_spec *spec,
                            const dl_slurm_submission *submission)
{
    dl_buf array;
    dl_buf_init(&array, PRINT_MAX);
    arguments *a = calloc(1, sizeof *a);
    diloco_status status = dl_buf_addf(&array, "--array=%s", submission->array);
    if (!status && !(a && dl_buf_str(&array)))
        status = dl_fail(DILOCO_ENOMEM, "not enough memory to submit a job");
    if (!status) {
        make_arguments(a, spec, submission, dl_buf_str(&array));
        status = spec->dry ? print_request(spec, a, submission->script)
                           : run_sbatch(number, a, submission->script);
    }
    free(a);
    dl_buf_deinit(&array);
    return status;
}

static diloco_status cancel(const dl_launch_spec *spec, const char *const *ids, size_t n)
{
    dl_command_result result;
    (void)spec;
    const char **argv = calloc(n + 2, sizeof *argv);
    if (!argv) return dl_fail(DILOCO_ENOMEM, "not enough memory to stop jobs");
    argv[0] = "scancel";
    memcpy(argv + 1, ids, n * sizeof *ids);
    const diloco_status status = dl_slurm_run(&result, argv, NULL);
    if (!status) dl_buf_deinit(&result.out);
    free(argv);
    return status;
}

static diloco_status check(const dl_launch_spec *spec)
{
    static const char *const programs[] = {"sbatch", "squeue", "scancel"};
    (void)spec;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!dl_command_exists(programs[i]))
            return dl_fail(
                DILOCO_EINVAL,
                "there is no program %s here: run diloco launch where jobs are "
                "submitted to Slurm, or set launch.endpoint to the address of slurmrestd",
                programs[i]);
    return DILOCO_OK;
}

const dl_slurm_calls dl_slurm_commands = {.check = check,
                                          .find = dl_slurm_queue_find,
                                          .look = dl_slurm_queue_look,
                                          .recall = dl_slurm_queue_recall,
                                          .submit = submit,
                                          .cancel = cancel};
