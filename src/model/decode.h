/* decode.h - a language model token by token: each step computes one position and keeps its
 * keys and values for later ones. So a token costs one reading of the parameters. */
#ifndef DL_MODEL_DECODE_H
#define DL_MODEL_DECODE_H

#include "model/model.h"

typedef struct dl_decoder dl_decoder;

/* Of a `gpt` on this machine's processors, with room for parameters.model.context positions.
 * tensors[n]: those of the model (dl_model_tensors), with data in host memory, which is read in
 * place; they and the pool are borrowed. DILOCO_EREFUSED: another model. DILOCO_ENOMEM. One thread
 * at a time. */
DL_MUST_CHECK diloco_status dl_decoder_create(dl_decoder **out, const diloco_tensor *tensors,
                                              size_t n, const dl_config *config, dl_pool *pool);
void dl_decoder_destroy(dl_decoder *decoder); /* NULL is fine */

/* The next token of the text, 0 <= token < vocab, at a position that is free. logits: f32[vocab] of
 * what follows, or NULL. Those of dl_model_logits but for the order of their sums. */
void dl_decoder_step(dl_decoder *decoder, float *logits, int32_t token);
size_t dl_decoder_length(const dl_decoder *decoder); /* positions taken */
void dl_decoder_reset(dl_decoder *decoder);          /* forget all of them */

#endif
