/* decode.h - a language model token by token: each step computes one position and keeps its
 * keys and values for later ones. So a token costs one reading of the parameters. */
#ifndef DL_MODEL_DECODE_H
#define DL_MODEL_DECODE_H

#include "model/model.h"

typedef struct dl_decoder dl_decoder;

/* Creates a decoder of a `gpt` on this machine's processors, with room for parameters.model.context
 * positions. tensors[n] are those of the model (dl_model_tensors), with data in host memory. It is
 * read in place, so it has to stay as it is; tensors and pool are borrowed until destroy. Returns
 * DILOCO_EREFUSED for another model, or DILOCO_ENOMEM; then *out is NULL. One thread at a time may
 * use a decoder. */
DL_MUST_CHECK diloco_status dl_decoder_create(dl_decoder **out, const diloco_tensor *tensors,
                                              size_t n, const dl_config *config, dl_pool *pool);
void dl_decoder_destroy(dl_decoder *decoder); /* NULL is fine */

/* Appends a token to the text, 0 <= token < vocab. The caller ensures that a position is free. If
 * logits is not NULL, it receives f32[vocab], the logits of the token that follows. They differ
 * from those of dl_model_logits by the order of sums only. */
void dl_decoder_step(dl_decoder *decoder, float *logits, int32_t token);
size_t dl_decoder_length(const dl_decoder *decoder); /* positions taken */
void dl_decoder_reset(dl_decoder *decoder);          /* forget all of them */

#endif
