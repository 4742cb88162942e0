/* executor_rows.h - the executors, one file each. */
#ifndef DL_LAUNCH_EXECUTOR_ROWS_H
#define DL_LAUNCH_EXECUTOR_ROWS_H

#include "launch/executor.h"

extern const dl_executor dl_executor_local;
extern const dl_executor dl_executor_ssh;
extern const dl_executor dl_executor_slurm;

#endif
