/* manifest.h - the tensors of a run in order, and where each is in its fragment.
 *
 * A fragment's state is four regions, each the concatenation of its tensors in manifest
 * order:
 *
 *     trained   f32[n_trained]    moved by the outer optimizer; momentum covers these
 *     averaged  f32[n_averaged]   frozen parameters and float buffers: weighted mean
 *     integers  i64[n_integers]   mean, rounded half up
 *     booleans  u8 [n_booleans]   majority, ties true
 *
 * trained and averaged are one f32 array, trained first, so the pseudo-gradient of a
 * fragment is one vector. */
#ifndef DL_TENSOR_MANIFEST_H
#define DL_TENSOR_MANIFEST_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include <diloco/tensor.h>

/* Bounds of a run, and of the memory that a manifest of an untrusted peer can claim. */
enum { DL_MAX_TENSORS = 65536, DL_MAX_FRAGMENTS = 4096 };

/* In the order in which a fragment's state keeps them. */
typedef enum dl_region {
    DL_TRAINED,
    DL_AVERAGED,
    DL_INTEGERS,
    DL_BOOLEANS,
    DL_N_REGIONS
} dl_region;

typedef struct dl_manifest_tensor {
    char name[DILOCO_NAME_MAX + 1];
    diloco_dtype dtype;
    diloco_role role;
    int n_dims;
    size_t shape[DILOCO_MAX_DIMS];
    size_t count; /* elements */
    int fragment;
    dl_region region;
    size_t offset; /* elements from the region's start; f32: from the f32 array's start */
} dl_manifest_tensor;

typedef struct dl_fragment_shape {
    size_t n_trained, n_averaged, n_integers, n_booleans; /* elements */
} dl_fragment_shape;

typedef struct dl_manifest {
    dl_manifest_tensor *tensors; /* owned */
    size_t n_tensors;
    dl_fragment_shape *fragments; /* owned */
    int n_fragments;
    size_t n_parameters; /* elements of role PARAMETER */
    dl_hash digest;      /* of names, types, shapes, roles, fragments, in order */
} dl_manifest;

/* Copies the tensors' descriptions (it does not read data pointers) and assigns their offsets.
 * all_floating: every f32 tensor counts as trained. Returns DILOCO_EINVAL if there are no tensors,
 * or if a name is empty, too long, not printable or used twice. Also if a type, shape or fragment
 * is out of range, the fragments have a gap, or a parameter is of whole numbers. DILOCO_ENOMEM.
 * *out is zeroed on error. */
DL_MUST_CHECK diloco_status dl_manifest_init(dl_manifest *out, const diloco_tensor *tensors,
                                             size_t n, bool all_floating);
void dl_manifest_deinit(dl_manifest *manifest); /* zeroed is fine */

/* As the value of `key`: [{"name":…,"dtype":"F32","role":"parameter","shape":[…],"fragment":0},…]
 */
void dl_manifest_write(dl_json *j, const char *key, const dl_manifest *manifest);
/* From bytes of an untrusted peer: DILOCO_EPROTO. Equal manifests have equal digests. */
DL_MUST_CHECK diloco_status dl_manifest_read(dl_manifest *out, dl_json_value array,
                                             bool all_floating);

/* Returns true for a table with a row for each token or position. It is decided by the name, which
 * has "embed" in any case ("model.embed_tokens.weight", "tok_embeddings"), or a component "wte" or
 * "wpe". */
bool dl_manifest_is_embedding(const dl_manifest_tensor *tensor);

/* Returns the length of a tensor's name up to its first number between dots, as of
 * "model.layers.3". Tensors of one block have equal names up to there. 0: it has no number. */
size_t dl_manifest_block_len(const char *name);

size_t dl_dtype_size(diloco_dtype dtype);      /* 4, 8, 1, 2, 2 */
const char *dl_dtype_name(diloco_dtype dtype); /* "F32", "I64", …, as in safetensors */
/* The type in which the run keeps such a tensor: F32 for the narrower ones. */
diloco_dtype dl_dtype_stored(diloco_dtype dtype);
const char *dl_role_name(diloco_role role); /* "parameter", "frozen", "buffer" */

/* Returns the tensor that element i of a fragment's f32 array belongs to, and the element's index
 * in it. For error messages: it searches all tensors. i has to be in the array. */
const dl_manifest_tensor *dl_manifest_locate(const dl_manifest *manifest, int fragment, size_t i,
                                             size_t *index_in_tensor);

#endif
