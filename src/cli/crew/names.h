/* names.h - names of the replicas on this machine: r0, r1, … (s0, s1, … where run.role is
 * server: src/fed counts workers by the letter).
 *
 * A name's private state is in run.state_dir/<name>/, so the names found there come first: they
 * resume. Then the smallest free ones. */
#ifndef DL_CLI_CREW_NAMES_H
#define DL_CLI_CREW_NAMES_H

#include "base/config.h"
#include "cli/cli.h"
#include "cli/crew/processes.h"

/* n names for the run in config's store, which is there already. `join`: names that live on
 * other machines, or in another process here, are passed over; otherwise (train, the same
 * command again) only those of other machines are. is_new: no process has used it yet.
 * Of a closed roster, the names of the key here; one that has begun elsewhere only if its heartbeat
 * does not change. DILOCO_EREFUSED: the roster has too few. DILOCO_EUNREACHABLE, …: the store. */
DL_MUST_CHECK diloco_status dl_names_choose(dl_replica_name *out, bool *is_new, size_t n,
                                            const dl_config *config, bool join);

/* The name of the replica that --rank N numbers: rN. DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_names_of_rank(dl_replica_name *out, const dl_args *args);
/* Replace names[i] by the smallest name that is unused, and not one of names. Errors as above. */
DL_MUST_CHECK diloco_status dl_names_choose_another(dl_replica_name *names, size_t n, size_t i,
                                                    const dl_config *config);

/* dl_name_runs_here returns true if a process on this machine runs as this name. That process holds
 * the lock in the name's folder; the answer may be outdated when the caller reads it. */
bool dl_name_runs_here(const char *state_dir, const char *name);

/* dl_names_any_state returns true if the state folder has saved state of any replica. */
bool dl_names_any_state(const char *state_dir);

/* dl_names_idle lists at most n names in a state folder that no process uses now. Returns their
 * number. The order is that of the folder. */
size_t dl_names_idle(dl_replica_name *out, size_t n, const char *state_dir);

#endif
