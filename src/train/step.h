/* step.h - one optimizer step of a replica: micro-batches, gradient, update. Knows no run.
 *
 * H counts these steps, never micro-batches: a step is gradient_accumulation_steps micro-batches
 * of batch_size samples, whose mean gradient is applied once. */
#ifndef DL_TRAIN_STEP_H
#define DL_TRAIN_STEP_H

#include "nn/gradient.h"
#include "nn/inner.h"
#include "state/private_state.h"
#include "train/ranks.h"

typedef struct dl_step {
    const dl_setup *setup; /* borrowed */
    bool whole_epochs; /* a micro-batch ends where its epoch does, short, as PyTorch's loaders do */
    void *memory;      /* owned, of the setup's backend: anchor, and what `gradient` needs */
    float *anchor;     /* trainer.proximal_mu pulls towards it; NULL: the option is off */
    dl_gradient gradient;
    dl_ranks *ranks;    /* owned; NULL: one device */
    dl_staging vectors; /* the optimizer's in host places, once dl_step_list made these */
    dl_inner *inner; /* NULL: the clipped gradient is left in the model, for preset data_parallel */
} dl_step;

typedef struct dl_step_facts {
    uint64_t samples, tokens; /* tokens: targets, so of images one each */
    double loss;              /* mean over the step's targets, nats */
    double grad_norm;         /* before clipping; NaN when it was not finite */
    double seconds;
    /* false: the gradient was not finite, the parameters are unchanged, and the error text says
     * where */
    bool applied;
} dl_step_facts;

/* Makes the step's memory and, unless data_parallel, the inner optimizer. Also opens the other
 * devices of trainer.device. The setup is borrowed until dl_step_deinit. Returns DILOCO_ENOMEM and
 * the errors of the optimizer and of dl_ranks_open. */
DL_MUST_CHECK diloco_status dl_step_init(dl_step *out, const dl_setup *setup, bool data_parallel);
void dl_step_deinit(dl_step *step); /* zeroed is fine */

/* dl_step_list lists the optimizer's vectors as private pieces in host places, at most `cap`; *n 0
 * if there is no optimizer; piece i is step->vectors.all[i]. Once. Pull step->vectors before they
 * are saved, or save each by dl_staging_fill. Push it after they were loaded. Returns
 * DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_step_list(dl_step *step, dl_private *out, size_t cap, size_t *n,
                                         bool f32);

/* Sets the anchor to the current parameters: from here on trainer.proximal_mu pulls towards them.
 */
void dl_step_anchor(dl_step *step);

/* PROTOCOL P14: a replica that joined without moments of its own warms up again, wherever the
 * schedule is. Returns the learning rate if to_come of those steps remain. */
double dl_step_rewarmed(const dl_config *config, uint64_t to_come, double lr);

/* Takes a step on samples first, first + 1, … of a shard, with learning rate lr. A gradient that is
 * not finite is no error: out->applied is false then. The host waits for the backend once, at the
 * end. Allocates nothing. Returns the errors of the backend. */
DL_MUST_CHECK diloco_status dl_step_take(dl_step_facts *out, dl_step *step, size_t shard,
                                         uint64_t first, double lr);

#endif
