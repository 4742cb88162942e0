/* cmd_train.c - start a run or resume it: check everything first, then create, then train.
 *
 * The order is from cheap to final. Settings and store are checked first, then the data is fetched
 * and everything is checked that can be known wrong before training. Only then is a run created,
 * since most of its settings are fixed from then on. crew/crew.h starts the replicas. */
#include "cli/crew/crew.h"
#include "cli/crew/names.h"
#include "cli/display/onward.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <string.h>

/* Refuse a store in memory. Replicas are processes, and memory is not shared between them. */
static diloco_status check_store(const dl_config *config)
{
    if (strncmp(config->store, "mem://", 6) != 0) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "run.store = \"%s\" (%s): a mem:// store exists in one process only, and "
                   "every replica is a process; name a folder",
                   config->store, dl_config_origin(config, "run.store"));
}

/* Refuse state of the replicas of an earlier run, which one that is created now cannot use. It
 * is said before anything is created. */
static diloco_status check_leftover(const dl_config *config)
{
    static dl_config run; /* too large for some stacks */
    char word[DL_PATH_MAX + 8];
    if (dl_swarm_is(config) || !dl_names_any_state(config->state_dir)) return DILOCO_OK;
    dl_config_init(&run);
    if (diloco_run_config(&run, config->store) != DILOCO_ENOENT) return DILOCO_OK;
    if (strcmp(dl_config_origin(config, "run.state_dir"), "chosen") != 0)
        return dl_fail(DILOCO_EDIFFERS,
                       "%s holds no run, and run.state_dir = \"%s\" holds the state of replicas of "
                       "an earlier one: remove that folder, or name another",
                       config->store, config->state_dir);
    return dl_fail(DILOCO_EDIFFERS,
                   "%s holds no run, and %s holds the state of replicas of an earlier one: remove "
                   "it with  diloco rm %s  or name another run.store",
                   config->store, config->state_dir,
                   dl_shell_word(word, sizeof word, config->store));
}

/* Warn of a run beside the configuration file before another is begun here. */
static void warn_of_another(const dl_config *config, const dl_args *args)
{
    char words[DL_ONWARD_MAX];
    if (!dl_args_has(args, DL_FLAG_QUIET) && dl_onward_beside(words, config, args->target))
        fprintf(stderr, "diloco: warning: %s\n", words);
}

/* Return true if the run in the store is complete, and shorter than is asked for. Its settings are
 * read. */
static bool is_to_be_longer(dl_config *settings, const dl_config *config)
{
    diloco_run_status run;
    dl_config_init(settings);
    if (diloco_run_config(settings, config->store) || config->rounds <= settings->rounds)
        return false;
    const bool is = !diloco_run_status_read(&run, config->store, 0) && run.done;
    diloco_run_status_free(&run);
    return is;
}

/* A run with other settings is refused (EDIFFERS). If only its length differs, the error says
 * how to train on. */
static diloco_status create_and_train(dl_config *config, const dl_args *args)
{
    static dl_config settings; /* too large for some stacks */
    char why[1024], words[DL_ONWARD_MAX];
    const diloco_status status = dl_crew_create_and_run(config, args);
    if (status != DILOCO_EDIFFERS) return status;
    snprintf(why, sizeof why, "%s", diloco_error_text());
    if (!is_to_be_longer(&settings, config)) return dl_fail(status, "%s", why);
    dl_onward_continue(words, config, &settings);
    return dl_fail(status, "%s; %s", why, words);
}

/* A file to copy for a new command: load the settings, check them, act. --print-config stops
 * before the checks of the run, to show values that they would refuse. */
static diloco_status cmd_train(const dl_args *args)
{
    dl_config config;
    DL_TRY(dl_settings_load(&config, args));
    if (dl_args_has(args, DL_FLAG_PRINT_CONFIG))
        return dl_settings_print(&config, dl_args_has(args, DL_FLAG_JSON));
    DL_TRY(check_store(&config));
    DL_TRY(dl_settings_fetch(&config));
    DL_TRY(diloco_train_check(&config));
    DL_TRY(check_leftover(&config));
    warn_of_another(&config, args);
    return create_and_train(&config, args);
}

const dl_command dl_command_train = {
    .name = "train",
    .target = "[CONFIG]",
    .summary = "start a run, or resume it with the same command",
    .details = "CONFIG is a TOML file; values come from the defaults, the preset, the file and\n"
               "the flags, later ones winning. Without run.store the log is kept in runs/<name\n"
               "of CONFIG>. A terminal of 72 columns and 18 lines shows the screen of diloco\n"
               "watch; --quiet does not. Ctrl-C stops after the current step, and the same\n"
               "command resumes, to equal bits.",
    .flags = DL_FLAGS(DL_FLAG_REPLICAS, DL_FLAG_ROLE, DL_FLAG_STORE, DL_FLAG_COORD, DL_FLAG_SEED,
                      DL_FLAG_PRESET, DL_FLAG_RECORD, DL_FLAG_RUN_LINK, DL_FLAG_SET,
                      DL_FLAG_PRINT_CONFIG, DL_FLAG_JSON, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .sets = DL_SETS_ALL,
    .run = cmd_train,
};
