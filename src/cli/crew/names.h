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

/* dl_names_choose chooses n names for replicas of the existing run in config's store. out and
 * is_new are arrays [n]; is_new: the run has never had the name. With `join` names that run on
 * other machines, or in another process here, are not chosen. Without it (train, which the same
 * command resumes) only those of other machines are left out. In a closed roster the names are
 * those of the key here. One that has begun elsewhere is chosen only if its heartbeat does not
 * change, which takes run.patience to see. Returns DILOCO_EREFUSED if the roster has too few names,
 * and the errors of the store. */
DL_MUST_CHECK diloco_status dl_names_choose(dl_replica_name *out, bool *is_new, size_t n,
                                            const dl_config *config, bool join);

/* dl_names_of_rank writes the name that --rank N gives: rN. Returns DILOCO_EINVAL for a number that
 * is no rank. */
DL_MUST_CHECK diloco_status dl_names_of_rank(dl_replica_name *out, const dl_args *args);
/* dl_names_choose_another replaces names[i] by the smallest unused name that is not in names[n].
 * Errors are those of dl_names_choose; names[i] then stays. */
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
