/* settings.h - the configuration of a command, from where its values come:
 *
 *     default < preset < file < flags
 *
 * and every value remembers its place: "preset diloco", "run.toml:12:8", "--set". */
#ifndef DL_CLI_SETTINGS_SETTINGS_H
#define DL_CLI_SETTINGS_SETTINGS_H

#include "base/config.h"
#include "cli/cli.h"

/* args->target (a TOML file, or NULL) and the flags. run.store and run.state_dir are filled
 * in where they were not given. DILOCO_EINVAL with file:line:column, or the flag: a key that is
 * no option (the nearest is named), of another type, out of range, not a choice, or said twice and
 * differently. DILOCO_ENOENT, DILOCO_EIO: the file. */
DL_MUST_CHECK diloco_status dl_settings_load(dl_config *out, const dl_args *args);

/* The settings of the run that args->target (a URL, or a TOML file that names one) leads to.
 * Options that must agree come from the run, the rest from the file and --set. DILOCO_EINVAL: --set
 * of an option that must agree, or of a run.store that is not the URL. */
DL_MUST_CHECK diloco_status dl_settings_of_run(dl_config *out, const dl_args *args);

/* run.store and run.state_dir of a URL or a TOML file, with what --set says of them; nothing is
 * read from the store. DILOCO_EINVAL: an empty target; otherwise as dl_settings_load. */
DL_MUST_CHECK diloco_status dl_settings_of_target(dl_config *out, const dl_args *args);

/* dl_settings_store writes the store that a URL or a TOML file (by its run.store) names. Returns
 * DILOCO_EINVAL for a file with a mistake. */
DL_MUST_CHECK diloco_status dl_settings_store(dl_config_path out, const char *target);
/* dl_is_config_file returns true if the target is a regular file, or is named *.toml and does not
 * exist. A folder is a store. */
bool dl_is_config_file(const char *target);

/* --replicas N: N on this machine, and run.replicas = N where the file or --set do not give
 * it. A smaller one in the file gives way; in --set it is a contradiction. */
DL_MUST_CHECK diloco_status dl_settings_replicas(dl_config *config, const char *text);

/* All values with their places, as TOML that reads back, or as one JSON object. */
DL_MUST_CHECK diloco_status dl_settings_print(const dl_config *config, bool json);

/* dl_settings_line appends one value as a line of TOML: `name = value`. */
DL_MUST_CHECK diloco_status dl_settings_line(dl_buf *out, const dl_option *row,
                                             const dl_config *config);

/* dl_settings_write appends all values and their places, and dl_settings_read reads them in another
 * process of this program. The format is private to one version and is stored nowhere. */
DL_MUST_CHECK diloco_status dl_settings_write(dl_buf *out, const dl_config *config);
DL_MUST_CHECK diloco_status dl_settings_read(dl_config *out, const void *text, size_t len);

#endif
