/* leaf.h - XXH3-128 once per instruction set: libxxhash's inline form, compiled with the
 * flags that src/tensor/folder.cmake gives each leaf_*.c. The state has one layout in all. */
#ifndef DL_TENSOR_CPU_LEAF_H
#define DL_TENSOR_CPU_LEAF_H

#include "tensor/kernels.h"

typedef struct dl_leaf_row {
    void (*begin)(dl_leaf_hash *h);
    void (*add)(dl_leaf_hash *h, const void *data, size_t n);
    dl_hash (*end)(dl_leaf_hash *h);
} dl_leaf_row;

extern const dl_leaf_row dl_leaf_c, dl_leaf_avx2, dl_leaf_avx512;

#endif
