/* ops.c - the table of operations. An operation is a file and a row. */
#include "nn/op_rows.h"

static const dl_op *const rows[] = {
    &dl_op_embedding,  &dl_op_linear,       &dl_op_add_norm, &dl_op_attention,  &dl_op_swiglu,
    &dl_op_head_loss,  &dl_op_image,        &dl_op_conv2d,   &dl_op_batch_norm, &dl_op_relu,
    &dl_op_max_pool,   &dl_op_average_pool, &dl_op_fork,     &dl_op_add,        &dl_op_flatten,
    &dl_op_class_loss, &dl_op_qk_norm,
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
_Static_assert(sizeof rows / sizeof rows[0] <= DL_MAX_OPS, "grow dl_profile");

const dl_op *dl_op_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}
