/* cmd_launch_job.c - run a command once for each rank, on the machines of an executor.
 *
 * A batch (launch/batch.h) has no log: it is complete when every rank has ended with exit code 0.
 * If its ranks are replicas of a run (job.run), that run has to be complete as well. All else is as
 * for the replicas of a run (launching.h). */
#include "cli/launch/launching.h"
#include "launch/batch.h"

#include <string.h>

/* ---- configurations that are no batch, each refused by name */

/* Options that a batch has a use for, beside those of [launch] and [job]. run.key is the key that
 * this machine shows to stores. */
static bool has_use(const char *name)
{
    static const char *const names[] = {"run.store", "run.replicas", "general.base_path"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return strncmp(name, "launch.", 7) == 0 || strncmp(name, "job.", 4) == 0;
}

/* An option of training is a mistake: the file is probably that of a run. */
static diloco_status check_options(const dl_config *config)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *name = dl_config_table.rows[i].name, *origin = dl_config_origin(config, name);
        if (!dl_config_given(config, name) || strcmp(origin, "chosen") == 0 || has_use(name))
            continue;
        return dl_fail(DILOCO_EREFUSED,
                       "%s (%s) has no meaning in a batch: omit it, or start a run with diloco "
                       "launch",
                       name, origin);
    }
    return DILOCO_OK;
}

/* A backend that starts every job again whenever it ends never completes a batch. */
static diloco_status check_executor(const dl_launching *l)
{
    if (!l->executor->caps.must_be_stopped) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "%s starts each job again when it ends, and reports no exit code, so a batch "
                   "would never end there: use another executor",
                   l->executor->name);
}

/* ---- the settings of a batch */

/* The store keeps the record and the book. Ranks do not see it. */
static diloco_status place_store(dl_launching *l)
{
    bool done;
    char run[33];
    const char *store = l->config->store;
    if (strncmp(store, "mem://", 6) == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "run.store = \"%s\": a mem:// store exists in one process only", store);
    if (strncmp(store, "http", 4) == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "run.store = \"%s\": a hub holds runs, and no batches: use "
                       "a folder, s3://, gs:// or az://",
                       store);
    const diloco_status status = dl_launched_run(run, &done, store);
    if (!status && strcmp(store, l->config->job_run) == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "job.run = \"%s\" is the store of the batch, too: name another one for the "
                       "batch (--store)",
                       store);
    if (!status)
        return dl_fail(DILOCO_EREFUSED,
                       "%s holds a run: name another store for the batch (--store)", store);
    if (status != DILOCO_ENOENT) return status;
    if (strncmp(store, "file://", 7) == 0) store += 7;
    if (!strstr(store, "://")) return dl_launched_path(l->store, store);
    memcpy(l->store, store, sizeof l->store);
    return DILOCO_OK;
}

/* Ranks find their run by DILOCO_STORE. The first one creates it. */
static diloco_status add_run(dl_launching *l)
{
    char text[DL_PATH_MAX + 32];
    if (!l->config->job_run[0]) return DILOCO_OK;
    DL_TRY(dl_launching_place(l->trained, l, "job.run", l->config->job_run));
    const int n = snprintf(text, sizeof text, "DILOCO_STORE=%s", l->trained);
    return dl_launching_add(l->env, DL_LAUNCHING_NAMES, text, (size_t)n);
}

/* The number of ranks is fixed: commands divide work by it. */
static diloco_status choose_number(dl_launching *l)
{
    const char *text = l->args->flags[DL_FLAG_LAUNCH_REPLICAS];
    if (text)
        DL_TRY(dl_launched_numbers(&l->min, &l->max, text));
    else if (l->config->replicas <= DL_JOBS_MAX)
        l->min = l->max = (uint32_t)l->config->replicas;
    if (l->min && l->min == l->max) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "a batch has a fixed number of ranks, from 1 to %d: add --replicas N",
                   DL_JOBS_MAX);
}

/* Where this program starts the command, it needs a folder: that of this process if the machines
 * have the same files, else the one that the executor starts it in. */
static diloco_status add_exec(dl_launching *l)
{
    dl_config_path here = ".";
    DL_TRY(dl_launched_program(l->program, l->executor, l->config));
    if (l->executor->caps.same_files) DL_TRY(dl_launched_path(here, "./"));
    DL_TRY(dl_launching_add_word(l, "exec"));
    DL_TRY(dl_launching_add_word(l, here));
    return dl_launching_add_word(l, "--");
}

/* In an image the command is the program itself, so the image need not hold this one. */
static diloco_status make_words(dl_launching *l, char *const *words)
{
    if (!l->executor->caps.in_image) {
        DL_TRY(add_exec(l));
    } else if (l->config->launch_binary[0]) {
        return dl_fail(DILOCO_EREFUSED,
                       "launch.binary (%s) has no meaning for a batch in an image: "
                       "job.command names the program",
                       dl_config_origin(l->config, "launch.binary"));
    } else {
        snprintf(l->program, sizeof l->program, "%s", *words++);
    }
    for (; *words; words++)
        DL_TRY(dl_launching_add_word(l, *words));
    return DILOCO_OK;
}

/* DILOCO_RANK comes from the executor. */
static diloco_status add_number(dl_launching *l)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "DILOCO_RANKS=%u", l->max);
    return dl_launching_add(l->env, DL_LAUNCHING_NAMES, text, (size_t)n);
}

/* ---- running */

static diloco_status is_done(void *user, bool *done)
{
    const dl_launching *l = user;
    return dl_launched_batch(done, &l->book, l->trained);
}

/* A batch that does not exist has no id to name its ranks by, so an invented id is used. */
static diloco_status dry_run(dl_launching *l)
{
    dl_batch batch = {.id = "newjobid"};
    const diloco_status status = dl_batch_read(&batch, l->config->store);
    if (status && status != DILOCO_ENOENT) return status;
    if (status)
        printf("# %s holds no batch: it would be created, and its id would replace newjobid\n",
               l->config->store);
    memcpy(l->run, batch.id, sizeof l->run);
    return dl_launching_print(l);
}

/* The batch is in the store before its first rank is started. */
static diloco_status create_and_run(dl_launching *l, char *const *words)
{
    dl_batch batch;
    DL_TRY(dl_batch_open(&batch, l->config->store, l->max, words, l->trained));
    memcpy(l->run, batch.id, sizeof l->run);
    return dl_args_has(l->args, DL_FLAG_PREPARE) ? dl_launching_prepare(l) : dl_launching_follow(l);
}

static diloco_status launch_words(dl_launching *l, char *const *words)
{
    DL_TRY(make_words(l, words));
    DL_TRY(dl_launching_lists(l));
    DL_TRY(add_number(l));
    DL_TRY(add_run(l));
    DL_TRY(dl_launching_spec(l));
    return dl_args_has(l->args, DL_FLAG_DRY_RUN) ? dry_run(l) : create_and_run(l, words);
}

/* Everything is checked before the store is written. */
static diloco_status launch(dl_launching *l)
{
    char **words;
    l->is_done = is_done;
    DL_TRY(dl_launching_settings(l));
    DL_TRY(check_options(l->config));
    DL_TRY(check_executor(l));
    DL_TRY(choose_number(l));
    DL_TRY(dl_batch_words(&words, l->config->job_command));
    diloco_status status = place_store(l);
    if (!status) status = launch_words(l, words);
    dl_argv_free(words);
    return status;
}

static diloco_status cmd_launch_job(const dl_args *args)
{
    return dl_launching_call(args, "batch", launch);
}

const dl_command dl_command_launch_job = {
    .name = "launch job",
    .target = "CONFIG",
    .summary = "run any command once for each rank, as launch runs replicas",
    .details =
        "Starts job.command as N ranks with the executor --on, restarts those that are lost,\n"
        "and ends with exit code 0 when each rank has ended so. If the ranks are the replicas\n"
        "of a run (job.run), the run has to be complete, too. {rank} in the command and\n"
        "DILOCO_RANK in the environment are the rank, DILOCO_RANKS is N. Ctrl-C leaves the\n"
        "ranks running; the same command finds them again, and starts those that failed once\n"
        "more.\n"
        "  diloco launch job batch.toml --on slurm --replicas 8",
    .flags = DL_FLAGS(DL_FLAG_ON, DL_FLAG_LAUNCH_REPLICAS, DL_FLAG_STORE, DL_FLAG_BUDGET,
                      DL_FLAG_DRY_RUN, DL_FLAG_DETACH, DL_FLAG_PREPARE, DL_FLAG_SET, DL_FLAG_QUIET,
                      DL_FLAG_VERBOSE),
    .sets = DL_SETS_ALL,
    .run = cmd_launch_job,
};
