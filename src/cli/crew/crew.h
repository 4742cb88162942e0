/* crew.h - the replicas of one machine, from their settings to the last line: the part of train
 * and join after the run exists. One call at a time in a process: it takes over the signals. */
#ifndef DL_CLI_CREW_CREW_H
#define DL_CLI_CREW_CREW_H

#include "base/config.h"
#include "cli/cli.h"

/* dl_crew_run runs run.local_replicas (0: all of run.replicas) replicas of the run in config->store
 * to their end, each in a process. Progress, summary and --json are printed as args say. It fills
 * in run.local_replicas and run.threads. `join`: names of other machines and processes are not
 * used. Returns DILOCO_EINTERRUPTED if it was stopped on request, with how to resume; otherwise the
 * first error of a replica. */
DL_MUST_CHECK diloco_status dl_crew_run(dl_config *config, const dl_args *args, bool join);

/* dl_crew_create_and_run creates the run in this process unless it exists, then runs its replicas
 * here as dl_crew_run does. In a run that it creates they use no name that another replica took
 * meanwhile. Returns DILOCO_EDIFFERS if the store has a run with other settings. */
DL_MUST_CHECK diloco_status dl_crew_create_and_run(dl_config *config, const dl_args *args);

/* Check what concerns the replicas of one machine together, before anything is created or started.
 * DILOCO_EREFUSED: run.notify in a run without a log. DILOCO_EINVAL: several replicas with one
 * fixed port in run.peers_listen, or a malformed value. Both functions above call it. */
DL_MUST_CHECK diloco_status dl_crew_check(const dl_config *config);

/* dl_crew_fill_in sets run.local_replicas and run.threads where they are 0, as training will use
 * them. Cores are divided evenly among the local replicas; a replica has at least one thread. */
DL_MUST_CHECK diloco_status dl_crew_fill_in(dl_config *config);

#endif
