/* log.h - one line at a time to the sink the program set; silent without one.
 *
 * A line is lower case, has its units, and no newline:
 * "entry 12: 7 of 8 replicas, 3.1 MB each, 41 s". Any thread. */
#ifndef DL_BASE_LOG_H
#define DL_BASE_LOG_H

#include "base/status.h"
#include <diloco/log.h>

void dl_log(diloco_log_level level, const char *format, ...) DL_PRINTF(2, 3);

#endif
