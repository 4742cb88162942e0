/* leaf_avx512.c - AVX-512. */
#if defined(__x86_64__)
#define LEAF_ROW dl_leaf_avx512
#include "tensor/cpu/leaf_body.h"
#endif
