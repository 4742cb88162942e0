/* continuation.h - a run that goes on where another one ended (trainer.init_as = "continuation"):
 * its first state has the outer optimizer's vectors of that run's last one. */
#ifndef DL_RUN_CONTINUATION_H
#define DL_RUN_CONTINUATION_H

#include "base/safetensors.h"
#include "run/state.h"

/* Is a tensor of a file what a model has under its name: of the same type and shape? */
bool dl_continues(const dl_st_tensor *found, const char *dtype, const size_t *shape, int n_dims);

/* Fill state's outer vectors from a state's image (theta0, a snapshot, what diloco_theta_read
 * gives): of each trained tensor that the image has with the same type and shape, all of them or
 * none. What is not taken up stays zero: its momentum begins anew. What the model does not have any
 * more is left behind. Both are logged, a line a tensor. Not rehashed. DILOCO_ENOENT, DILOCO_EIO:
 * the file; DILOCO_EPROTO: it is not safetensors. */
DL_MUST_CHECK diloco_status dl_continue_outer(dl_state *state, const char *path);

/* Does the step of this outer optimizer follow from theta and its vectors alone? Those that count
 * commits (a bias correction, a buffer's turn) cannot go on from vectors. */
bool dl_continue_can(const char *outer);

#endif
