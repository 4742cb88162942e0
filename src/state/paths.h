/* paths.h - this machine's folders: a replica's private state, and data that waits on disk because
 * it does not fit in memory. */
#ifndef DL_STATE_PATHS_H
#define DL_STATE_PATHS_H

#include "log/runfile.h"

/* Writes run.state_dir, or "<folder>.local/<host>" beside a file store. Returns DILOCO_EINVAL if
 * the store is of another kind and the option is not set. */
DL_MUST_CHECK diloco_status dl_run_state_dir(dl_config_path out, const dl_config *config);
/* Does the same for a run without run.state_dir. */
DL_MUST_CHECK diloco_status dl_run_state_dir_of(dl_config_path out, const char *store);
/* Returns whether an earlier process of this replica has joined the run on this machine. So the run
 * exists, and a store that fails to show it may recover. */
bool dl_run_was_here(const dl_config *config, const char *replica);

/* Returns whether contributions of that many bytes in total wait for the outer step on disk
 * (run.spool). With more sampled clients than this, they always do, so that the workers alone
 * determine the memory. */
enum { DL_SPOOL_CLIENTS = 64 };
bool dl_run_spools(const dl_config *config, double bytes);
/* Returns the folder in which they wait, or NULL for memory. */
const char *dl_run_spool_dir(dl_config_path out, const dl_config *config, const dl_runfile *run);
/* Returns the folder of the outer state while it is not needed, or NULL for memory (run.offload).
 */
const char *dl_run_offload_dir(dl_config_path out, const dl_config *config);

#endif
