/* trial.h - one run of an experiment: train these settings in this folder, once, and say what came
 * of it. The engine of sweeps.
 *
 *     FOLDER/store/          the run's log
 *     FOLDER/state/          private state of its replicas
 *     FOLDER/record.jsonl    the record of all processes of all replicas
 *     FOLDER/result.json     the result; written last, so where it is, the trial is done */
#ifndef DL_CLI_SWEEP_TRIAL_H
#define DL_CLI_SWEEP_TRIAL_H

#include "base/config.h"
#include "cli/cli.h"

/* The numbers of a finished trial. */
typedef struct dl_trial_result {
    uint64_t entries, parameters;        /* of the run; of the model */
    uint64_t steps, tokens;              /* of all replicas */
    uint64_t bytes_sent, bytes_received; /* of all replicas, about entries; framing included */
    double data_parallel_bytes;          /* bytes of a float32 all-reduce of the same steps */
    double train_s, wait_s, exchange_s;  /* a replica's mean: in steps, for others, the rest */
    double loss, perplexity;             /* of the shared model on all validation data */
    char digest[40];                     /* of the state after the last entry */
} dl_trial_result;

/* Is there a result in the folder? It is read, and nothing else is done, if it is of these
 * settings. DILOCO_ENOENT: none. DILOCO_EDIFFERS: of other ones. DILOCO_EPROTO: damaged. */
DL_MUST_CHECK diloco_status dl_trial_read(dl_trial_result *out, const dl_config *config,
                                          const char *folder);

/* As above; without a result, train config's run to its end, evaluate, and write the result.
 * Its store, state and record are set to the folder's. It continues where an earlier call was
 * stopped. args: flags --quiet, --verbose, and the command to continue. DILOCO_EINTERRUPTED: the
 * same call continues. DILOCO_EINVAL, DILOCO_EREFUSED: the settings; DILOCO_EIO, …: the folder, or
 * a replica's error. */
DL_MUST_CHECK diloco_status dl_trial_run(dl_trial_result *out, dl_config *config,
                                         const char *folder, const dl_args *args);

/* dl_trial_args returns the flags for a trial of a command that runs many. A run's own lines then
 * appear only on a terminal, or with --verbose. The texts are borrowed from args. */
dl_args dl_trial_args(const dl_args *args);

/* dl_trial_json adds the result's members to the object that is open. */
void dl_trial_json(dl_json *json, const dl_trial_result *result);

#endif
