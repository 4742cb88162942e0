/* leaf_c.c - the baseline of the architecture: SSE2 on x86-64, NEON on aarch64. */
#define LEAF_ROW dl_leaf_c
#include "tensor/cpu/leaf_body.h"
