/* evaluate.h - the loss of a model on held-out data: of the replica's own parameters, of the shared
 * model, or of any other values. A function that evaluates other values keeps the own parameters in
 * the gradients' memory meanwhile. So call them between steps only, on the thread that trains. */
#ifndef DL_TRAIN_EVALUATE_H
#define DL_TRAIN_EVALUATE_H

#include "train/setup.h"
#include <diloco/run.h>

/* Means over all targets; NaN without a target. */
typedef struct dl_score {
    double loss;     /* mean over the targets, nats */
    double accuracy; /* share of the targets that were the likeliest */
    uint64_t n_targets;
} dl_score;

/* Evaluates the first n_batches validation batches (0: all). Returns DILOCO_EINVAL if there is no
 * validation data. Allocates nothing. */
DL_MUST_CHECK diloco_status dl_evaluate(dl_score *out, const dl_setup *setup, uint64_t n_batches);

/* Evaluates training samples first … first + rows - 1 of a shard, without training. */
DL_MUST_CHECK diloco_status dl_evaluate_samples(dl_score *out, const dl_setup *setup, size_t shard,
                                                uint64_t first, size_t rows);

/* Evaluates the run's shared model on trainer.eval_batches validation batches, and, if next is not
 * NULL, on the batch of a shard that this replica trains on next. The parameters are restored, also
 * after an error. Overwrites the gradients. */
DL_MUST_CHECK diloco_status dl_evaluate_shared(dl_score *held_out, dl_score *next,
                                               const dl_setup *setup, const diloco_run *run,
                                               size_t shard);

/* Does the same for another model on the validation data; data[i] is host memory for each tensor in
 * order. It is for diloco_run_on_probe, so the caller enters the backend before the call and leaves
 * it afterwards. */
DL_MUST_CHECK diloco_status dl_evaluate_other(dl_score *held_out, const dl_setup *setup,
                                              const void *const *data);

#endif
