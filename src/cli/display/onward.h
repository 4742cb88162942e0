/* onward.h - next steps of a user with an existing run: messages for the two surprises
 * of a second `diloco train`. */
#ifndef DL_CLI_DISPLAY_ONWARD_H
#define DL_CLI_DISPLAY_ONWARD_H

#include "base/config.h"

enum { DL_ONWARD_MAX = 3 * DL_PATH_MAX };

/* dl_onward_continue writes how to train on from the complete run in run.store: "to train on from
 * its end, begin a new run: the same command with --store …". `run` has the run's own settings.
 * trainer.init_as of the new run is "extension", else "continuation", else "model": the first that
 * `config` and `run` allow. Nothing is read from a store elsewhere. */
void dl_onward_continue(char out[DL_ONWARD_MAX], const dl_config *config, const dl_config *run);

/* dl_onward_beside returns true if the configuration file `path` is in another folder, and a run of
 * the same name exists in runs/ beside it. The store then was not given, and holds no run yet. The
 * text names both. Returns false otherwise, with `out` unchanged. */
bool dl_onward_beside(char out[DL_ONWARD_MAX], const dl_config *config, const char *path);

/* The run's place for a person: run.store, or its absolute path where it is a folder that follows
 * from a configuration file in another folder. Returns out, or config->store. */
const char *dl_onward_place(dl_config_path out, const dl_config *config, const char *path);

#endif
