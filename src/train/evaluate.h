/* evaluate.h - the loss of the model as it is, on held-out text. */
#ifndef DL_TRAIN_EVALUATE_H
#define DL_TRAIN_EVALUATE_H

#include "train/setup.h"

/* Mean loss in nats over the targets of the first n_batches validation batches (0: all of
 * them). DILOCO_EINVAL: there is no validation data. Allocates nothing. */
DL_MUST_CHECK diloco_status dl_evaluate(double *loss, uint64_t *n_targets, const dl_setup *setup,
                                        uint64_t n_batches);

/* Mean loss on training samples first … first + rows - 1 of a shard; nothing is learnt. */
DL_MUST_CHECK diloco_status dl_evaluate_samples(double *loss, const dl_setup *setup, size_t shard,
                                                uint64_t first, size_t rows);

#endif
