/* paths.h - this machine's folders: a replica's private state, and data that waits on disk because
 * it does not fit in memory. */
#ifndef DL_STATE_PATHS_H
#define DL_STATE_PATHS_H

#include "log/runfile.h"

/* run.state_dir; or "<folder>.local/<host>" beside a file store. DILOCO_EINVAL: a store of
 * another kind needs it to be set. */
DL_MUST_CHECK diloco_status dl_run_state_dir(dl_config_path out, const dl_config *config);
/* ... where no run.state_dir is set. */
DL_MUST_CHECK diloco_status dl_run_state_dir_of(dl_config_path out, const char *store);

/* Do contributions of so many bytes together wait for the outer step on disk (run.spool)? Where
 * many logical clients are asked they always do, so that memory follows from the workers alone. */
enum { DL_SPOOL_CLIENTS = 64 };
bool dl_run_spools(const dl_config *config, double bytes);
/* Where they wait: NULL for memory. */
const char *dl_run_spool_dir(dl_config_path out, const dl_config *config, const dl_runfile *run);
/* Where the outer state lies while it is not needed: NULL for memory (run.offload). */
const char *dl_run_offload_dir(dl_config_path out, const dl_config *config);

#endif
