/* backend_rows.h - what each backend's file gives to the table in backend.c. */
#ifndef DL_TENSOR_BACKEND_ROWS_H
#define DL_TENSOR_BACKEND_ROWS_H

#include "tensor/backend.h"

diloco_status dl_backend_cpu(dl_backend **out);
diloco_status dl_backend_trap(dl_backend **out);

#endif
