/* settings_file.h - a TOML file of settings, and the one it may include, which may include another:
 *
 *     [data]
 *     include = "mnist_iid.toml"     a file beside it; its keys may leave out "data."
 *
 * Values of the including file win. */
#ifndef DL_CLI_SETTINGS_SETTINGS_FILE_H
#define DL_CLI_SETTINGS_SETTINGS_FILE_H

#include "base/config.h"
#include "cli/settings/plato.h"

/* A file that is open. The caller closes it. */
typedef struct dl_settings_file dl_settings_file;

/* dl_settings_file_open reads the file and all that it includes into memory. The caller closes
 * *out. Returns DILOCO_EINVAL with file:line:column if a file does not exist, is a folder, is not
 * TOML or includes itself. A chain of more than 8 files is DILOCO_EINVAL, too. Otherwise it returns
 * DILOCO_EIO or DILOCO_ENOMEM. After an error *out is NULL. */
DL_MUST_CHECK diloco_status dl_settings_file_open(dl_settings_file **out, const char *path);
void dl_settings_file_close(dl_settings_file *file); /* NULL is fine */

/* Values that are needed before the others are taken; "" or false: not in the file. */
typedef struct dl_settings_names {
    char preset[DL_OPTION_NAME_MAX + 1], server_type[DL_OPTION_NAME_MAX + 1];
    char at[DL_PATH_MAX + 32]; /* of the preset */
    bool clients;              /* clients.total_clients is there */
} dl_settings_names;
DL_MUST_CHECK diloco_status dl_settings_file_names(dl_settings_names *out,
                                                   const dl_settings_file *file);

/* dl_settings_file_take sets all values of the file but the preset, with their places as origins.
 * It notes Plato's keys in *plato. Returns DILOCO_EINVAL or DILOCO_EREFUSED as dl_settings_load
 * does; the values before the mistake are then set. */
DL_MUST_CHECK diloco_status dl_settings_file_take(dl_config *config, dl_plato *plato,
                                                  const dl_settings_file *file);

#endif
