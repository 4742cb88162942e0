/* trial.h - one run of an experiment: train these settings in this folder, once, and return the
 * result. The engine of sweeps and searches.
 *
 *     FOLDER/store/          the run's log
 *     FOLDER/state/          private state of its replicas
 *     FOLDER/record.jsonl    the record of all processes of all replicas
 *     FOLDER/result.json     the result; written last: a trial that has it is done */
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

/* dl_trial_read reads the result in the folder if it is of these settings. Nothing else is done.
 * Returns DILOCO_ENOENT if there is no result, DILOCO_EDIFFERS if it is of other settings, and
 * DILOCO_EPROTO if it is damaged. */
DL_MUST_CHECK diloco_status dl_trial_read(dl_trial_result *out, const dl_config *config,
                                          const char *folder);

/* dl_trial_run reads the result as above. Without one it trains config's run to its end, evaluates,
 * and writes the result. Store, state and record of `config` are set to the folder's. A call that
 * was stopped is continued by the next one. args: --quiet, --verbose, and the command to continue.
 * Returns DILOCO_EINTERRUPTED if it was stopped, DILOCO_EINVAL or DILOCO_EREFUSED for the settings,
 * and the error of a replica or of the folder. */
DL_MUST_CHECK diloco_status dl_trial_run(dl_trial_result *out, dl_config *config,
                                         const char *folder, const dl_args *args);

/* dl_trial_args returns the flags for a trial of a command that runs many. A run's own lines then
 * appear only on a terminal, or with --verbose. The texts are borrowed from args. */
dl_args dl_trial_args(const dl_args *args);

/* dl_trial_add_record adds the lines of a record to the result, and makes its times a mean of
 * `replicas`. It leaves out lines that are not whole and counts that are negative. Returns
 * DILOCO_EIO if the file cannot be read. */
DL_MUST_CHECK diloco_status dl_trial_add_record(dl_trial_result *result, const char *path,
                                                double replicas);

/* dl_trial_json adds the members of the result to the object that is open. */
void dl_trial_json(dl_json *json, const dl_trial_result *result);

#endif
