/* sweep.h - the trials of a sweep: every combination of the values given, for every seed.
 *
 *     --set-values outer_lr=0.4,0.7 --set-values preset=diloco,muloco --seeds 3
 *
 * are 4 arms of 3 trials. Trials of one seed have the same initial parameters and the same order
 * of samples, so arms are compared seed by seed. */
#ifndef DL_CLI_SWEEP_SWEEP_H
#define DL_CLI_SWEEP_SWEEP_H

#include "base/config.h"
#include "cli/cli.h"

/* Bounds: swept options, values of one, bytes of a value, and trials in all. They keep a sweep's
 * memory fixed; a command line that exceeds one is refused. */
enum { DL_SWEEP_KEYS = 8, DL_SWEEP_VALUES = 64, DL_SWEEP_TEXT = 256, DL_SWEEP_TRIALS = 4096 };

/* A swept option and its values. */
typedef struct dl_sweep_key {
    char name[128]; /* as it was given */
    char values[DL_SWEEP_VALUES][DL_SWEEP_TEXT];
    size_t n_values;
} dl_sweep_key;

/* A sweep. It is large, so it is on the heap. */
typedef struct dl_sweep {
    dl_sweep_key keys[DL_SWEEP_KEYS]; /* in the order of the command line */
    size_t n_keys, n_arms;            /* n_arms: the product of n_values */
    uint64_t first_seed, n_seeds;
    uint64_t steps; /* of a replica in every trial; 0: as the settings say */
} dl_sweep;

/* dl_sweep_read reads --set-values, --seeds, --equal-steps and the settings of the target. Returns
 * DILOCO_EINVAL for an unknown option, a value or option that is given twice, or too many trials.
 * So it does for an option that a sweep itself sets (run.seed, the store, the record), and for
 * --equal-steps with swept trainer.rounds. Values are checked later, by dl_sweep_config. */
DL_MUST_CHECK diloco_status dl_sweep_read(dl_sweep *out, const dl_args *args);

/* dl_sweep_value returns the value of key k < n_keys in an arm < n_arms. The first key changes
 * slowest. */
const char *dl_sweep_value(const dl_sweep *sweep, size_t arm, size_t k);

/* dl_sweep_arm_text writes the values of an arm, "outer_lr=0.4 preset=diloco", cut to `cap` bytes.
 * A sweep without swept options has one arm, whose text is "". */
void dl_sweep_arm_text(char *out, size_t cap, const dl_sweep *sweep, size_t arm);

/* dl_sweep_config loads the settings of a trial. trainer.rounds is set so that all trials take
 * equally many steps, if that is asked for or H differs from the target's. Returns DILOCO_EINVAL as
 * dl_settings_load does, or if the steps are no multiple of H. */
DL_MUST_CHECK diloco_status dl_sweep_config(dl_config *out, const dl_sweep *sweep,
                                            const dl_args *args, size_t arm, uint64_t seed);

/* dl_sweep_folder writes the name of a trial's folder: the values, then the seed, in characters
 * that every file system takes. The same values give the same name. Returns DILOCO_EINVAL if the
 * name is longer than file systems take. */
DL_MUST_CHECK diloco_status dl_sweep_folder(char *out, size_t cap, const dl_sweep *sweep,
                                            size_t arm, uint64_t seed);

#endif
