/* op_rows.h - what each operation's file gives to the table in ops.c. */
#ifndef DL_NN_OP_ROWS_H
#define DL_NN_OP_ROWS_H

#include "nn/op.h"

extern const dl_op dl_op_embedding, dl_op_linear, dl_op_add_norm, dl_op_attention, dl_op_swiglu,
    dl_op_head_loss, dl_op_qk_norm, dl_op_image, dl_op_conv2d, dl_op_batch_norm, dl_op_relu,
    dl_op_max_pool, dl_op_average_pool, dl_op_fork, dl_op_add, dl_op_flatten, dl_op_class_loss;

#endif
