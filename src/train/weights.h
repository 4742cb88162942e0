/* weights.h - a model's tensors from safetensors: the shared model of a run, or a file to begin
 * from. */
#ifndef DL_TRAIN_WEIGHTS_H
#define DL_TRAIN_WEIGHTS_H

#include "base/safetensors.h"
#include "train/setup.h"

/* Copy each tensor of the model from st, which holds at least these, of the same types and shapes.
 * DILOCO_EINVAL: one is missing or another; its name, and both shapes. The model is unspecified
 * then. */
DL_MUST_CHECK diloco_status dl_weights_load(const dl_setup *setup, const dl_st *st);

/* trainer.init_from: the file's tensors become the model's. A run's theta0 and snapshots,
 * whose outer vectors (diloco.*) are passed over, and whatever else has exactly the model's
 * tensors. DILOCO_ENOENT, DILOCO_EIO: the file; DILOCO_EPROTO: it is not safetensors;
 * DILOCO_EINVAL: as above, or it has a tensor that the model does not. */
DL_MUST_CHECK diloco_status dl_weights_init(const dl_setup *setup, const char *path);

/* … with trainer.init_as = "continuation": those that are the model's by name, type and shape; the
 * others stay as they are, and are logged. DILOCO_EINVAL: there is none. */
DL_MUST_CHECK diloco_status dl_weights_continue(const dl_setup *setup, const char *path);

#endif
