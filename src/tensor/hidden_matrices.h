/* hidden_matrices.h - which matrices of a run are between others. Muon steps these.
 *
 * Every replica decides it from the manifest alone: names, roles and shapes. A hidden matrix is a
 * parameter of two dimensions that is not an end of the model:
 *
 *     a model with an embedding   it is in a numbered block ("model.layers.3.…"), and is no
 *                                 embedding itself
 *     any other model             it is neither the first nor the last tensor of two or more
 *                                 dimensions, frozen ones included and buffers not
 *
 * For the models of src/model this is what dl_model_hidden says (model_test.c). */
#ifndef DL_TENSOR_HIDDEN_MATRICES_H
#define DL_TENSOR_HIDDEN_MATRICES_H

#include "tensor/manifest.h"

/* A manifest, which is borrowed, and its ends. */
typedef struct dl_hidden_matrices {
    const dl_manifest *manifest;
    bool embeds;        /* the model has an embedding */
    size_t first, last; /* tensors of two or more dimensions, no buffers; SIZE_MAX, 0: none */
} dl_hidden_matrices;

dl_hidden_matrices dl_hidden_matrices_of(const dl_manifest *manifest);

/* Returns true if tensor i is a hidden matrix. */
bool dl_is_hidden_matrix(const dl_hidden_matrices *hidden, size_t i);

#endif
