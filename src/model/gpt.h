/* gpt.h - the sizes of a `gpt` from its options, with defaults filled in, for code
 * that computes with its parameters or exports them. */
#ifndef DL_MODEL_GPT_H
#define DL_MODEL_GPT_H

#include "base/config.h"
#include "nn/rope.h"

/* No size is 0. */
typedef struct dl_gpt_shape {
    size_t layers, heads, kv_heads; /* heads is a multiple of kv_heads */
    size_t dim;                     /* of a head; even */
    size_t channels, ffn, vocab;    /* ffn: channels between gate, up and down */
    float eps, z_loss;              /* of RMSNorm; factor of logsumexp^2 in the loss */
    dl_rope rope;
    bool tied, qk_norm; /* the head is the embedding's table; queries and keys are normalized */
} dl_gpt_shape;

/* Reads the shape from the options. vocab is the number of tokens of the data; the model may have
 * more. Returns DILOCO_EINVAL with the option that contradicts the others; then *out is unchanged.
 */
DL_MUST_CHECK diloco_status dl_gpt_shape_read(dl_gpt_shape *out, const dl_config *config,
                                              size_t vocab);

#endif
