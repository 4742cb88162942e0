/* onward.c - see onward.h. Only folders are looked at; nothing is asked of a store elsewhere,
 * since these words are printed where a store may be out of reach.
 *
 * Two situations surprise a user of a second `diloco train`. The run is complete, so nothing would
 * train; or the command was given in another folder, so it would begin a second run. */
#include "cli/onward.h"

#include "base/file.h"
#include "cli/display/units.h"

#include <dirent.h>
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

/* Write the last name in a folder, in the order of bytes. Returns false if it has none. Entries
 * and generations have a fixed number of digits, so that is the newest one. */
static bool last_name(char out[256], const char *path)
{
    DIR *dir = opendir(path);
    *out = '\0';
    if (!dir) return false;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, out) > 0)
            snprintf(out, 256, "%s", entry->d_name);
    closedir(dir);
    return *out != '\0';
}

/* The newest snapshot is the largest entry below snap/. The words only name it, and check
 * nothing. */
static bool newest_state(dl_config_path out, const char *folder)
{
    char entry[256], generation[256];
    dl_config_path path;
    snprintf(path, sizeof path, "%s/snap", folder);
    if (!last_name(entry, path)) return false;
    snprintf(path, sizeof path, "%s/snap/%s", folder, entry);
    if (!last_name(generation, path)) return false;
    const int n = snprintf(out, sizeof(dl_config_path), "%s/snap/%s/%s/state.safetensors", folder,
                           entry, generation);
    return n > 0 && (size_t)n < sizeof(dl_config_path) && dl_file_exists(out);
}

/* Write the first of "<store>-2", "<store>-3", … that is not there, or STORE if none is free. */
static bool free_name(dl_config_path out, const char *store)
{
    const char *folder = folder_of(store);
    dl_config_path path;
    for (int i = 2; i < 1000; i++) {
        snprintf(out, sizeof(dl_config_path), "%s-%d", store, i);
        snprintf(path, sizeof path, "%s-%d", folder ? folder : "", i);
        if (!folder || !dl_file_exists(path)) return true;
    }
    snprintf(out, sizeof(dl_config_path), "STORE");
    return false;
}

void dl_onward_continue(char out[DL_ONWARD_MAX], const char *store)
{
    dl_config_path state, next;
    char from[DL_PATH_MAX + 32], word[2][DL_PATH_MAX + 64];
    const char *folder = folder_of(store);
    const bool found = folder && newest_state(state, folder);
    const bool is_free = free_name(next, store);
    snprintf(from, sizeof from, "trainer.init_from=%s", found ? state : "FILE");
    snprintf(
        out, DL_ONWARD_MAX,
        "to train on from its end, begin a new run: the same command with  --store %s --set %s "
        "--set trainer.init_as=continuation%s%s",
        dl_shell_word(word[0], sizeof word[0], next), dl_shell_word(word[1], sizeof word[1], from),
        found ? "" : "  where FILE is a copy of its newest snap/*/*/state.safetensors",
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
