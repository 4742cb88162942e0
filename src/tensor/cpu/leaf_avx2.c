/* leaf_avx2.c - AVX2. */
#if defined(__x86_64__)
#define LEAF_ROW dl_leaf_avx2
#include "tensor/cpu/leaf_body.h"
#endif
