/* settings.h - the configuration of a command, from where its values come:
 *
 *     default < preset < file < flags
 *
 * and every value remembers its place: "preset diloco", "run.toml:12:8", "--set". */
#ifndef DL_CLI_SETTINGS_SETTINGS_H
#define DL_CLI_SETTINGS_SETTINGS_H

#include "base/config.h"
#include "cli/cli.h"

/* dl_settings_load reads args->target (a TOML file; NULL: none) and the flags into *out. run.store
 * and run.state_dir are filled in where they were not given. Accepted keys without effect are
 * listed in one warning. Two variables of the environment are set: the key and the coordination
 * store that the user has named. Returns DILOCO_EINVAL, with file:line:column or the flag, for a
 * key that is no option; the nearest is named. So it does for a value of another type, out of
 * range, not a choice, or given twice and differently. Returns DILOCO_EREFUSED for a setting of
 * Plato's that is not built here, and DILOCO_EIO if the file cannot be read. */
DL_MUST_CHECK diloco_status dl_settings_load(dl_config *out, const dl_args *args);

/* dl_settings_of_run loads the settings of the run that args->target leads to: a URL, or a TOML
 * file that names one. Options that must agree come from the run, the rest from the file and --set.
 * Values of the file that differ from the run's are reported on stderr. Returns DILOCO_EINVAL for
 * --set of an option that must agree, or of a run.store that is not the URL; other errors are those
 * of diloco_run_config. */
DL_MUST_CHECK diloco_status dl_settings_of_run(dl_config *out, const dl_args *args);

/* dl_settings_of_target loads run.store and run.state_dir of a URL or a TOML file, and the flags
 * over them. Nothing is read from the store. Returns DILOCO_EINVAL for an empty target; otherwise
 * as dl_settings_load. */
DL_MUST_CHECK diloco_status dl_settings_of_target(dl_config *out, const dl_args *args);

/* dl_settings_store writes the store that a URL or a TOML file (by its run.store) names. Returns
 * DILOCO_EINVAL for a file with a mistake. */
DL_MUST_CHECK diloco_status dl_settings_store(dl_config_path out, const char *target);
/* dl_is_config_file returns true if the target is a regular file, or is named *.toml and does not
 * exist. A folder is a store. */
bool dl_is_config_file(const char *target);

/* dl_settings_replicas applies --replicas N: N replicas on this machine, and run.replicas = N
 * unless the file or --set give it. A smaller run.replicas of the file is replaced. Returns
 * DILOCO_EINVAL if a smaller one is in --set, or N is less than 1. */
DL_MUST_CHECK diloco_status dl_settings_replicas(dl_config *config, const char *text);

/* dl_settings_print prints all values with their places: TOML that can be read back, or one JSON
 * object. Returns DILOCO_EINVAL for a choice that does not exist. */
DL_MUST_CHECK diloco_status dl_settings_print(const dl_config *config, bool json);

/* dl_settings_line appends one value as a line of TOML: `name = value`. */
DL_MUST_CHECK diloco_status dl_settings_line(dl_buf *out, const dl_option *row,
                                             const dl_config *config);

/* dl_settings_write appends all values and their places, and dl_settings_read reads them in another
 * process of this program. The format is private to one version and is stored nowhere. */
DL_MUST_CHECK diloco_status dl_settings_write(dl_buf *out, const dl_config *config);
DL_MUST_CHECK diloco_status dl_settings_read(dl_config *out, const void *text, size_t len);

/* dl_settings_fetch fetches the training data of `config` (fetch/fetch_data.h), and the model of
 * trainer.init_from unless the run exists, which has a model of its own. Returns the errors of
 * dl_fetch_data and dl_fetch_model. */
DL_MUST_CHECK diloco_status dl_settings_fetch(dl_config *config);

#endif
