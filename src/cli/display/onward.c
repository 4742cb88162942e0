/* onward.c - see onward.h. Only folders are looked at; nothing is asked of a store elsewhere,
 * since these words are printed where a store may be out of reach.
 *
 * Two situations surprise a user of a second `diloco train`. The run is complete, so nothing would
 * train; or the command was given in another folder, so it would begin a second run. */
#include "cli/display/onward.h"

#include "base/file.h"
#include "base/run_kind.h"
#include "cli/display/units.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return the path of a folder store, or NULL for a store elsewhere. */
static const char *folder_of(const char *store)
{
    const char *folder = strncmp(store, "file://", 7) ? store : store + 7;
    return strstr(folder, "://") ? NULL : folder;
}

/* ---- continuing from a complete run */

/* Write the first of "<store>-2", "<store>-3", … that is not there. Write STORE if none is free
 * or fits. */
static bool free_name(dl_config_path out, const char *store)
{
    const char *folder = folder_of(store);
    for (int i = 2; i < 1000; i++) {
        char path[DL_PATH_MAX + 16];
        const int n = snprintf(out, sizeof(dl_config_path), "%s-%d", store, i);
        snprintf(path, sizeof path, "%s-%d", folder ? folder : "", i);
        if (n < 0 || (size_t)n >= sizeof(dl_config_path)) break;
        if (!folder || !dl_file_exists(path)) return true;
    }
    snprintf(out, sizeof(dl_config_path), "STORE");
    return false;
}

/* Options that are not given are the run's, and defaults in the new one. So both are asked. */
static const char *init_as(const dl_config *config, const dl_config *run)
{
    if (dl_run_counts_commits(config) || dl_run_counts_commits(run)) return "model";
    if (dl_run_no_extension(config) || dl_run_no_common_step(run) ||
        dl_run_samples_differ(config, run))
        return "continuation";
    return "extension";
}

void dl_onward_continue(char out[DL_ONWARD_MAX], const dl_config *config, const dl_config *run)
{
    dl_config_path next;
    char from[DL_PATH_MAX + 32], word[2][DL_PATH_MAX + 64];
    const bool is_free = free_name(next, config->store);
    snprintf(from, sizeof from, "trainer.init_from=%s", config->store);
    snprintf(
        out, DL_ONWARD_MAX,
        "to train on from its end, begin a new run: the same command with  --store %s --set %s "
        "--set trainer.init_as=%s%s",
        dl_shell_word(word[0], sizeof word[0], next), dl_shell_word(word[1], sizeof word[1], from),
        init_as(config, run),
        is_free ? "" : "  where STORE is a new name, as the next 998 are taken");
}

/* ---- a run beside the configuration file */

/* The store's place follows from the name of the configuration, so a command from another folder
 * would begin a second run there. */
bool dl_onward_beside(char out[DL_ONWARD_MAX], const dl_config *config, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    dl_config_path beside;
    char file[DL_PATH_MAX + 16], here[DL_PATH_MAX + 16];
    char word[2][DL_PATH_MAX + 64];
    if (!slash || config->store[0] == '/') return false;
    if (strcmp(dl_config_origin(config, "run.store"), "chosen") != 0) return false;
    const int n =
        snprintf(beside, sizeof beside, "%.*s/%s", (int)(slash - path), path, config->store);
    if (n < 0 || (size_t)n >= sizeof beside) return false;
    snprintf(here, sizeof here, "%s/run.json", config->store);
    snprintf(file, sizeof file, "%s/run.json", beside);
    if (dl_file_exists(here) || !dl_file_exists(file)) return false;
    snprintf(
        out, DL_ONWARD_MAX,
        "%s holds a run of the same configuration; this command begins another in %s: to resume "
        "the first, add  --store %s",
        beside, config->store, dl_shell_word(word[0], sizeof word[0], beside));
    return true;
}

const char *dl_onward_place(dl_config_path out, const dl_config *config, const char *path)
{
    char whole[PATH_MAX];
    const char *store = config->store;
    const bool chosen = strcmp(dl_config_origin(config, "run.store"), "chosen") == 0;
    if (!chosen || !path || !strchr(path, '/') || !realpath(store, whole)) return store;
    const int n = snprintf(out, sizeof(dl_config_path), "%s", whole);
    return n > 0 && (size_t)n < sizeof(dl_config_path) ? out : store;
}
