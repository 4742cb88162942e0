/* evaluate.h - the loss of the current model on held-out data. */
#ifndef DL_TRAIN_EVALUATE_H
#define DL_TRAIN_EVALUATE_H

#include "train/setup.h"
#include <diloco/run.h>

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

/* Score the run's shared model. It is scored on the validation data as trainer.eval_batches
 * says, and (next not NULL) on the batch of a shard that this replica trains on next. The
 * parameters are restored. Between steps; overwrites the gradients. */
DL_MUST_CHECK diloco_status dl_evaluate_shared(dl_score *held_out, dl_score *next,
                                               const dl_setup *setup, const diloco_run *run,
                                               size_t shard);

/* Does the same for another model on the validation data; data[i] is host memory for each tensor in
 * order. It is for diloco_run_on_probe, so the caller enters the backend before the call and leaves
 * it afterwards. */
DL_MUST_CHECK diloco_status dl_evaluate_other(dl_score *held_out, const dl_setup *setup,
                                              const void *const *data);

#endif
