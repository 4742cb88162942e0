/* local_steps.h - how many optimizer steps a logical client takes in a round.
 *
 * With H = trainer.local_steps_per_round above 0 a client takes H steps, whatever its shard is.
 * trainer.epochs is then only an upper bound, which has to reach H. With H = 0 it takes the steps
 * of trainer.epochs passes over its shard, as FedAvg counts.
 *
 * A pass is ceil(samples / batch_size) micro-batches, of which the last one may be short. A step is
 * gradient_accumulation_steps micro-batches, across the ends of passes. */
#ifndef DL_PRESETS_LOCAL_STEPS_H
#define DL_PRESETS_LOCAL_STEPS_H

#include "data/data.h"

/* dl_local_steps returns a client's optimizer steps in a round, for a shard of n samples; 0 for an
 * empty one, which does not train. */
uint64_t dl_local_steps(const dl_config *config, uint64_t samples);
/* Steps of one pass over it, at least 1: the epoch of schedules. */
uint64_t dl_local_steps_epoch(const dl_config *config, uint64_t samples);
/* Likewise, where all shards are the mean: how long a run is, for schedules by a client's steps. */
uint64_t dl_local_steps_run(const dl_config *config, uint64_t samples);

/* DILOCO_EREFUSED: the bound of trainer.epochs keeps a client from H steps; which one. */
DL_MUST_CHECK diloco_status dl_local_steps_check(const dl_config *config, const dl_data *data);

#endif
