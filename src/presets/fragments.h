/* fragments.h - which tensors of a model are synchronised together (2501.18512 section 2.1).
 *
 * A block is all tensors whose names are the same up to their first number ("model.layers.3.…",
 * "layer1.0.…"), or, in a model without numbers, those of one module ("conv1.…"). Blocks are never
 * cut. Tensors in no block (embedding, last norm, head) are one more fragment, the last.
 *
 *     strided     block l to fragment l mod F                        (the paper's default)
 *     sequential  neighbours together
 *     balanced    tensor by tensor, the largest first, each to the smallest fragment; tables of
 *                 the vocabulary are a fragment of their own (2604.21428) */
#ifndef DL_PRESETS_FRAGMENTS_H
#define DL_PRESETS_FRAGMENTS_H

#include "base/config.h"
#include "base/sample.h"
#include "tensor/manifest.h"

/* fragment[n] of the tensors, by server.diloco.fragments, fragment_layers and fragment_pattern;
 * *n_fragments of them, none empty. DILOCO_EINVAL: more fragments than there are blocks (or, if
 * balanced, tensors) for; DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_fragments_assign(int *fragment, int *n_fragments,
                                                const diloco_tensor *tensors, size_t n,
                                                const dl_config *config);

/* The run's manifest, fragments assigned, from the configuration's model (sketched, no arrays) on
 * data of this shape. Errors of dl_model_sketch, dl_fragments_assign, dl_manifest_init. */
DL_MUST_CHECK diloco_status dl_fragments_manifest(dl_manifest *out, const dl_config *config,
                                                  const dl_sample *sample);

#endif
