/* enter.h - around each operation of a backend. Only the operations of this folder run between the
 * two: they are a backend's own code. Everything else reads and writes backend memory by copies. */
#ifndef DL_NN_ENTER_H
#define DL_NN_ENTER_H

#include "tensor/backend.h"

/* They nest. On the trap backend they open and close the memory; on others they do nothing. */
static inline void dl_backend_enter(dl_backend *b)
{
    b->ops->enter(b);
}
static inline void dl_backend_leave(dl_backend *b)
{
    b->ops->leave(b);
}

#endif
