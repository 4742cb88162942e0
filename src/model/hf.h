/* hf.h - language models as Hugging Face's transformers keep them: a folder of config.json,
 * model.safetensors (or several, with model.safetensors.index.json) and more.
 *
 * LlamaForCausalLM is `gpt`, tensor for tensor and name for name; Qwen3ForCausalLM is `gpt` with
 * parameters.model.qk_norm. Any other request of config.json is refused by name. */
#ifndef DL_MODEL_HF_H
#define DL_MODEL_HF_H

#include "base/config.h"
#include "base/safetensors.h"

/* ---- config.json */

/* Facts of config.json beside the options. */
typedef struct dl_hf_facts {
    int64_t positions; /* max_position_embeddings */
} dl_hf_facts;

/* The text of a config.json into parameters.model.* (but for context, which is the trainer's
 * choice: rotary positions do not depend on it). DILOCO_EPROTO: it is not JSON, a key that is
 * needed is missing or of another type. DILOCO_EREFUSED: an architecture, a key or a value
 * that this model has no place for, named. DILOCO_EINVAL: beyond an option's range. */
DL_MUST_CHECK diloco_status dl_hf_config_read(dl_config *config, dl_hf_facts *facts,
                                              const void *text, size_t len);

/* The other way, for a model that is `gpt`. `dtype`: of the weights beside it, "F32", "BF16",
 * "F16". end_token < 0: none ends a text. DILOCO_EINVAL: options that do not fit each other.
 * DILOCO_EREFUSED: a shape that transformers does not load. */
DL_MUST_CHECK diloco_status dl_hf_config_write(dl_buf *out, const dl_config *config,
                                               const char *dtype, int64_t end_token);
/* generation_config.json */
DL_MUST_CHECK diloco_status dl_hf_generation_write(dl_buf *out, int64_t end_token);

/* ---- the weights */

typedef struct dl_hf_tensor {
    const dl_st_tensor *tensor;
    const unsigned char *data; /* mapped */
    size_t shard;
} dl_hf_tensor;

typedef struct dl_hf_shard {
    char name[256];
    dl_map map;
    dl_st st;
} dl_hf_shard;

typedef struct dl_hf_weights {
    dl_hf_shard *shards; /* owned */
    size_t n_shards;
    dl_hf_tensor *tensors; /* owned; by name */
    size_t n;
} dl_hf_weights;

/* Map a folder's weights. DILOCO_ENOENT, DILOCO_EIO; DILOCO_EPROTO: a file is damaged, the index
 * names a file outside the folder or a tensor that its file does not have, or a tensor is there
 * twice. DILOCO_ENOMEM. On error there is nothing to close. */
DL_MUST_CHECK diloco_status dl_hf_weights_open(dl_hf_weights *out, const char *folder);
void dl_hf_weights_close(dl_hf_weights *weights); /* zeroed is fine */
const dl_hf_tensor *dl_hf_weights_find(const dl_hf_weights *weights, const char *name);

/* ---- for the fuzz target */

/* Called with every tensor and its file that an index names, in order. */
typedef diloco_status (*dl_hf_index_fn)(void *user, const char *tensor, const char *file);
DL_MUST_CHECK diloco_status dl_hf_index_read(const void *text, size_t len, dl_hf_index_fn fn,
                                             void *user);

#endif
