/* backend_rows.h - the row of each backend's file in the table of backend.c. */
#ifndef DL_TENSOR_BACKEND_ROWS_H
#define DL_TENSOR_BACKEND_ROWS_H

#include "tensor/backend.h"

/* Each returns DILOCO_ENOMEM, with *out NULL, if there is no memory. */
diloco_status dl_backend_cpu(dl_backend **out);
diloco_status dl_backend_trap(dl_backend **out);

#endif
