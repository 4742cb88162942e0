/* onward.h - next steps of a user with an existing run: messages for the two surprises
 * of a second `diloco train`. */
#ifndef DL_CLI_ONWARD_H
#define DL_CLI_ONWARD_H

#include "base/config.h"

enum { DL_ONWARD_MAX = 3 * DL_PATH_MAX };

/* "To train on from its end, begin a new run: the same command with --store …". The run in `store`
 * is complete; of a folder the words name its newest state. */
void dl_onward_continue(char out[DL_ONWARD_MAX], const char *store);

/* Where the configuration file `path` is in another folder, and a run of that name is in
 * runs/ beside it: words that name both, and return true. The store was chosen, not given, and
 * holds no run yet. */
bool dl_onward_beside(char out[DL_ONWARD_MAX], const dl_config *config, const char *path);

/* The run's place for a person: run.store, or its absolute path where it is a folder that follows
 * from a configuration file in another folder. Returns out, or config->store. */
const char *dl_onward_place(dl_config_path out, const dl_config *config, const char *path);

#endif
