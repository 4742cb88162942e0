/* run_moves.h - a due point's arithmetic on the device of the trainer's tensors. */
#ifndef DL_RUN_MOVES_H
#define DL_RUN_MOVES_H

#include "exchange/device_moves.h"
#include <diloco/run.h>

/* The run forms movements and adopts by these functions, where all its tensors are. They are
 * copied, and their `user` is borrowed until the run is closed. Call it before the join. */
void dl_run_set_moves(diloco_run *run, const dl_device_moves *moves);

#endif
