/* inner.h - inner optimizers (AdamW, quasi-hyperbolic AdamW, SGD with momentum, RMSprop, Muon)
 * and learning-rate schedules.
 *
 * One step: gradient norm, clip factor, update, over the model's one parameter array.
 * The norm and the factor stay on the backend; the host reads them late. Decay is
 * decoupled and applies to matrices (two or more dimensions) only, or to all
 * (parameters.optimizer.decay_of). Tensors of another role than
 * PARAMETER stay as they are; their gradients are expected to be zero. */
#ifndef DL_NN_INNER_H
#define DL_NN_INNER_H

#include "base/config.h"
#include "base/thread.h"
#include "tensor/backend.h"
#include <diloco/tensor.h>

typedef struct dl_inner dl_inner;

/* The tensors of an optimizer. All but n_tensors is borrowed: the arrays until create returns,
 * backend memory until destroy. */
typedef struct dl_inner_model {
    const diloco_tensor *tensors;
    const bool *hidden; /* [n_tensors] is it a matrix between others? NULL: none is */
    size_t n_tensors;
    float *parameters; /* on the backend, in the order of the tensors */
    float *gradients;  /* on the backend, likewise; only read */
    dl_backend *backend;
    dl_pool *pool;
    /* [2]: the elements [begin, end) that this optimizer updates and has vectors for. NULL: all. A
     * bound within a hidden matrix of an optimizer that takes it whole is a bug (dl_inner_bounds).
     */
    const size_t *range;
} dl_inner_model;

/* Creates the optimizer of trainer.optimizer with parameters.optimizer.*; its vectors are zero.
 * Returns DILOCO_EINVAL for an unknown name, with the known ones. Returns DILOCO_EREFUSED if the
 * backend's device has no functions for it, or DILOCO_ENOMEM. *out is NULL after an error. */
DL_MUST_CHECK diloco_status dl_inner_create(dl_inner **out, const dl_config *config,
                                            const dl_inner_model *model);
void dl_inner_destroy(dl_inner *inner); /* NULL is fine */

/* Queues one optimizer step with learning rate lr. It waits for nothing and allocates nothing. A
 * gradient that is not finite makes the step a no-op, which dl_inner_norm reports. */
DL_MUST_CHECK diloco_status dl_inner_step(dl_inner *inner, double lr);

/* An optimizer that is divided among devices (ZeRO-1): each has the vectors of its own elements.
 * dl_inner_step is dl_inner_judge and then dl_inner_update. A device that has not all gradients
 * gets the verdict of another one: dl_inner_verdict returns its place, *bytes in backend memory, a
 * multiple of 4. The count of steps is part of it.
 *
 * dl_inner_bounds sets bounds[0] = 0 <= ... <= bounds[n], the number of parameters: elements
 * [bounds[i], bounds[i + 1]) for device i. They are of about the same size, and no hidden matrix
 * that the optimizer takes whole is divided. */
void dl_inner_judge(dl_inner *inner);
void dl_inner_update(dl_inner *inner, double lr);
void *dl_inner_verdict(dl_inner *inner, size_t *bytes);
void dl_inner_bounds(size_t *bounds, size_t n, const dl_config *config,
                     const dl_inner_model *model);

/* Waits for the backend, and sets *grad_norm to the norm of the last step's gradient before
 * clipping. Returns DILOCO_ENUMERIC if it was not finite; the text names the first such tensor and
 * element. That step has changed nothing. */
DL_MUST_CHECK diloco_status dl_inner_norm(dl_inner *inner, double *grad_norm);

/* The state that survives: vectors, and the count of steps (bias correction). A vector has an
 * element for each parameter that its rule updates, in the order of the tensors. For saving and
 * loading: names as in PyTorch ("exp_avg", "exp_avg_sq", "momentum_buffer"), backend memory. */
size_t dl_inner_n_vectors(const dl_inner *inner);
const char *dl_inner_vector_name(const dl_inner *inner, size_t i);
float *dl_inner_vector(dl_inner *inner, size_t i, size_t *n); /* n: elements */
uint64_t dl_inner_steps(const dl_inner *inner);               /* steps that changed something */
void dl_inner_set_steps(dl_inner *inner, uint64_t steps);

/* Sizes that the memory depends on, added up tensor by tensor (hidden: only of two dimensions). */
typedef struct dl_inner_sizes {
    size_t parameters, hidden; /* elements in all; those of hidden matrices */
    size_t shorter, longer;    /* largest shorter side of a hidden matrix, largest longer one */
} dl_inner_sizes;
void dl_inner_sizes_add(dl_inner_sizes *sizes, size_t rows, size_t columns, bool hidden);

/* Returns the bytes of the vectors, and those that a step needs meanwhile; both are 0 for an
 * unknown optimizer. */
typedef struct dl_inner_bytes {
    size_t vectors, scratch;
} dl_inner_bytes;
dl_inner_bytes dl_inner_plan(const dl_config *config, const dl_inner_sizes *sizes, int n_threads);
const char *dl_inner_name_at(size_t i); /* known optimizers; NULL after the last */

/* trainer.lr_scheduler: lr of step number `step` (from 0) of `total` in the run. The schedule
 * begins trainer.first_step before the run, and is that much longer. `epoch` steps are one pass
 * over the data, for warm-ups and milestones in epochs (0: not in epochs).
 *   warm-up: lr * (step + 1) / warmup_steps while step < warmup_steps;
 *   constant: lr after the warm-up;
 *   linear, cosine: to min_ratio at `total`;
 *   wsd: constant, then over the last decay_steps 1 - sqrt(x) (2412.01152) down to min_ratio;
 *   LambdaLR, as Plato's: lr * min(1, step / warmup_steps) * gamma^(milestone_steps <= step);
 *   MultiStepLR, as PyTorch's: lr * gamma^(milestone_steps <= step), gamma 0.1 where it is 0;
 *   StepLR, as PyTorch's: lr * gamma^floor(step / step_size), gamma 0.1 where it is 0.
 * DILOCO_EINVAL for an unknown name. Pure. */
DL_MUST_CHECK diloco_status dl_schedule_lr(double *lr, const dl_config *config, uint64_t step,
                                           uint64_t total, uint64_t epoch);
const char *dl_schedule_name_at(size_t i);
/* Returns false for a schedule that ignores warm-ups, and for an unknown one. */
bool dl_schedule_warms_up(const dl_config *config);
/* Returns DILOCO_EINVAL if parameters.learning_rate.milestone_steps is no list of steps, step_size
 * is no number of steps above 0, or the one that the schedule needs is missing. Also if one of
 * them, or a warm-up, counts epochs in a run without logical clients, whose data defines an epoch.
 */
DL_MUST_CHECK diloco_status dl_schedule_check(const dl_config *config);

#endif
