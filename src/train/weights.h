/* weights.h - a model's tensors from safetensors: the shared model of a run, or a file to begin
 * from. */
#ifndef DL_TRAIN_WEIGHTS_H
#define DL_TRAIN_WEIGHTS_H

#include "base/safetensors.h"
#include "train/setup.h"

/* Copies each tensor of the model from st, which must have it with the same type and shape. Returns
 * DILOCO_EINVAL with its name, and both shapes, if one is missing or differs. The model is
 * unspecified then. */
DL_MUST_CHECK diloco_status dl_weights_load(const dl_setup *setup, const dl_st *st);

/* trainer.init_from: copies the file's tensors to the model. The file may be a run's theta0 or a
 * snapshot, whose outer vectors (diloco.*) are skipped, or have exactly the model's tensors.
 * Returns DILOCO_ENOENT or DILOCO_EIO of the file, and DILOCO_EPROTO if it is not safetensors.
 * Returns DILOCO_EINVAL as above, or if it has a tensor that the model does not. */
DL_MUST_CHECK diloco_status dl_weights_init(const dl_setup *setup, const char *path);

/* Does the same with trainer.init_as = "continuation", for the tensors that match the model's by
 * name, type and shape. The others stay unchanged, and are logged. Returns DILOCO_EINVAL if no
 * tensor matches. */
DL_MUST_CHECK diloco_status dl_weights_continue(const dl_setup *setup, const char *path);

#endif
