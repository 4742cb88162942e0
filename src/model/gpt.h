/* gpt.h - the sizes of a `gpt` from its options, with defaults filled in, for code
 * that computes with its parameters or exports them. */
#ifndef DL_MODEL_GPT_H
#define DL_MODEL_GPT_H

#include "base/config.h"
#include "nn/rope.h"

typedef struct dl_gpt_shape {
    size_t layers, heads, kv_heads;
    size_t dim; /* of a head */
    size_t channels, ffn, vocab;
    float eps, z_loss;
    dl_rope rope;
    bool tied, qk_norm;
} dl_gpt_shape;

/* vocab: tokens that the data has, which the model's own may be more than. DILOCO_EINVAL names the
 * option that does not fit the others. */
DL_MUST_CHECK diloco_status dl_gpt_shape_read(dl_gpt_shape *out, const dl_config *config,
                                              size_t vocab);

#endif
