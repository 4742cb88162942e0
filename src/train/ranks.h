/* ranks.h - the devices that train one replica together, by data parallelism.
 *
 * Rank 0 is the device, the model and the gradient of the setup. The run reads and writes its
 * parameters alone. Rank 0 has the optimizer, unless trainer.zero_stage divides it among the ranks.
 * Each other rank has a device and a copy of the model:
 *
 *     rank 0's parameters -> all ranks        so an exchange, a resume or a load needs nothing more
 *     micro-batch i       -> rank i mod n     the samples of a step are those of one device
 *     rank 0's gradient   += the others', in the order of the ranks
 *
 * With trainer.gradient_bucket_bytes the gradients are added in parts while the backward pass
 * computes the rest. This changes no bit.
 *
 * One thread uses the ranks: it queues the work of each device in turn, and devices work meanwhile.
 */
#ifndef DL_TRAIN_RANKS_H
#define DL_TRAIN_RANKS_H

#include "train/setup.h"

typedef struct dl_ranks dl_ranks;

/* dl_ranks_open opens the other devices of trainer.device with their models. *out is NULL if it
 * names one device. The setup is borrowed until close. Returns DILOCO_EREFUSED for a model with
 * buffers, which each rank would change on its own, and if the devices' names differ. Also returns
 * the errors of dl_device_open, dl_model_create and dl_group_create. *out is NULL after an error.
 */
DL_MUST_CHECK diloco_status dl_ranks_open(dl_ranks **out, const dl_setup *setup);
void dl_ranks_close(dl_ranks *ranks); /* NULL is fine */

/* Returns the number of ranks; 1 if ranks is NULL. */
size_t dl_ranks_count(const dl_ranks *ranks);

/* Returns the backend of a rank, borrowed. Rank 0's is the setup's. */
dl_backend *dl_ranks_backend(const dl_ranks *ranks, size_t rank);

/* dl_ranks_spread queues rank 0's parameters to all others, before the micro-batches of a step.
 * dl_ranks_sum queues the sum of all gradients to rank 0's, after them. */
void dl_ranks_spread(const dl_ranks *ranks);
void dl_ranks_sum(const dl_ranks *ranks);

/* dl_ranks_make_room precedes a micro-batch of `rows` samples on a rank. Its copy to the device may
 * wait for that device alone. After dl_ranks_spread that wait would never end if another device
 * failed, so dl_ranks_make_room waits for all devices instead. If the copy need not wait, it
 * returns at once. Returns DILOCO_EIO if it has waited and a device has failed. */
DL_MUST_CHECK diloco_status dl_ranks_make_room(const dl_ranks *ranks, size_t rank, size_t rows);

/* dl_ranks_train queues micro-batch i of a step on its rank, whose gradient is `scale` times that
 * of the mean loss. Micro-batches of a step are queued in order, dl_ranks_make_room before each.
 * Returns the errors of dl_model_train. */
DL_MUST_CHECK diloco_status dl_ranks_train(const dl_ranks *ranks, int64_t i, const void *inputs,
                                           const int32_t *targets, size_t rows, float scale);

/* trainer.zero_stage = 1 divides the optimizer among the ranks. dl_ranks_divide creates one for
 * each rank, with the vectors of its elements; *first is rank 0's, owned by the caller. Returns the
 * errors of dl_inner_create; *first is then NULL. dl_ranks_inner returns that of another rank,
 * borrowed.
 * dl_ranks_update replaces dl_inner_step of *first: it queues the verdict of rank 0's gradient, the
 * gradients to the ranks that update their elements, the updates, and the parameters to rank 0. */
DL_MUST_CHECK diloco_status dl_ranks_divide(dl_ranks *ranks, dl_inner **first,
                                            const dl_setup *setup);
dl_inner *dl_ranks_inner(const dl_ranks *ranks, size_t rank);
void dl_ranks_update(const dl_ranks *ranks, dl_inner *first, double lr);

/* dl_ranks_wait waits for all devices. A caller that waits for rank 0 alone calls it before: else a
 * failed device would leave it waiting. Returns DILOCO_EIO if a device has failed. */
DL_MUST_CHECK diloco_status dl_ranks_wait(const dl_ranks *ranks);

/* dl_ranks_add_loss adds the losses of all ranks but 0 since the last call to *loss. Returns the
 * errors of the backends. */
DL_MUST_CHECK diloco_status dl_ranks_add_loss(const dl_ranks *ranks, dl_model_loss *loss);

#endif
