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

/* Reads the text of a config.json, which is untrusted, into parameters.model.*. It leaves context
 * alone, which is the trainer's choice: rotary positions do not depend on it. Returns DILOCO_EPROTO
 * if it is not JSON, or if a required key is missing or has the wrong type. Returns DILOCO_EREFUSED
 * with the name of an architecture, key or value that this model does not support. Returns
 * DILOCO_EINVAL if a value is beyond an option's range. After an error some options have changed.
 */
DL_MUST_CHECK diloco_status dl_hf_config_read(dl_config *config, dl_hf_facts *facts,
                                              const void *text, size_t len);

/* Appends the config.json of a `gpt` to *out. dtype is that of the weights: "F32", "BF16" or "F16".
 * end_token < 0: no token ends a text. Returns DILOCO_EINVAL if options contradict each other, or
 * DILOCO_EREFUSED for a shape that transformers does not load. */
DL_MUST_CHECK diloco_status dl_hf_config_write(dl_buf *out, const dl_config *config,
                                               const char *dtype, int64_t end_token);
/* Appends the generation_config.json of the same model. */
DL_MUST_CHECK diloco_status dl_hf_generation_write(dl_buf *out, int64_t end_token);

/* ---- the weights */

typedef struct dl_hf_tensor {
    const dl_st_tensor *tensor; /* in its shard's header */
    const unsigned char *data;  /* mapped; aligned to nothing */
    size_t shard;               /* index into the shards */
} dl_hf_tensor;

/* One safetensors file. */
typedef struct dl_hf_shard {
    char name[256]; /* in the folder */
    dl_map map;     /* owned; the whole file, read-only */
    dl_st st;       /* owned; its header */
} dl_hf_shard;

typedef struct dl_hf_weights {
    dl_hf_shard *shards; /* owned */
    size_t n_shards;
    dl_hf_tensor *tensors; /* owned; by name */
    size_t n;
} dl_hf_weights;

/* Maps a folder's weights. Returns DILOCO_ENOENT if the folder has none, and DILOCO_EPROTO if a
 * file is damaged or a tensor exists twice. Also if the index names a file outside the folder, or a
 * tensor that its file does not have. Returns DILOCO_EIO or DILOCO_ENOMEM as well. After an error
 * there is nothing to close. */
DL_MUST_CHECK diloco_status dl_hf_weights_open(dl_hf_weights *out, const char *folder);
void dl_hf_weights_close(dl_hf_weights *weights); /* zeroed is fine */
/* Returns the tensor of this name, or NULL. O(log n). */
const dl_hf_tensor *dl_hf_weights_find(const dl_hf_weights *weights, const char *name);

/* ---- for the fuzz target */

/* Receives each tensor and the name of its file, in the order of the index. An error ends the
 * reading. */
typedef diloco_status (*dl_hf_index_fn)(void *user, const char *tensor, const char *file);
DL_MUST_CHECK diloco_status dl_hf_index_read(const void *text, size_t len, dl_hf_index_fn fn,
                                             void *user);

#endif
