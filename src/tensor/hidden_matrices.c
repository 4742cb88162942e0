/* hidden_matrices.c - see hidden_matrices.h. */
#include "tensor/hidden_matrices.h"

dl_hidden_matrices dl_hidden_matrices_of(const dl_manifest *manifest)
{
    dl_hidden_matrices h = {.manifest = manifest, .first = SIZE_MAX};
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &manifest->tensors[i];
        if (t->n_dims < 2 || t->role == DILOCO_BUFFER) continue;
        h.embeds |= dl_manifest_is_embedding(t);
        if (h.first == SIZE_MAX) h.first = i;
        h.last = i;
    }
    return h;
}

bool dl_is_hidden_matrix(const dl_hidden_matrices *hidden, size_t i)
{
    const dl_manifest_tensor *t = &hidden->manifest->tensors[i];
    if (t->n_dims != 2 || t->role != DILOCO_PARAMETER) return false;
    if (!hidden->embeds) return i != hidden->first && i != hidden->last;
    return dl_manifest_block_len(t->name) > 0 && !dl_manifest_is_embedding(t);
}
