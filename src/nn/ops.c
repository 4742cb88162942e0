/* ops.c - the table of operations. The list is in op_rows.h. */
#include "nn/op_rows.h"

#define ROW(name) &dl_op_##name,
static const dl_op *const rows[] = {DL_OPS(ROW)};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
/* A profile has a place for each row. */
_Static_assert(sizeof rows / sizeof rows[0] <= DL_MAX_OPS, "grow dl_profile");

const dl_op *dl_op_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}
