/* op_rows.h - the list of operations. A new one is a file op_<name>.c that defines dl_op_<name>,
 * and its line here. */
#ifndef DL_NN_OP_ROWS_H
#define DL_NN_OP_ROWS_H

#include "nn/op.h"

// clang-format off
#define DL_OPS(X) \
    X(embedding) \
    X(linear) \
    X(add_norm) \
    X(attention) \
    X(swiglu) \
    X(head_loss) \
    X(image) \
    X(conv2d) \
    X(batch_norm) \
    X(relu) \
    X(max_pool) \
    X(average_pool) \
    X(fork) \
    X(add) \
    X(flatten) \
    X(class_loss) \
    X(qk_norm)
// clang-format on

#define DL_DECLARE(name) extern const dl_op dl_op_##name;
DL_OPS(DL_DECLARE)
#undef DL_DECLARE

#endif
