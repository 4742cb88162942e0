/* log.h - a sink for the library's own log lines. The library never prints. */
#ifndef DILOCO_LOG_H
#define DILOCO_LOG_H

#include <diloco/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum diloco_log_level {
    DILOCO_LOG_ERROR,
    DILOCO_LOG_WARN,
    DILOCO_LOG_INFO,
    DILOCO_LOG_DEBUG
} diloco_log_level;

/* diloco_log_fn receives one line without its newline, valid during the call. It is called on the
 * thread that logs, with no lock held. */
typedef void (*diloco_log_fn)(void *user, diloco_log_level level, const char *line);

/* diloco_log_set sets the process's sink and the most verbose level that it receives. NULL silences
 * the library. Call it before other threads use the library. */
DILOCO_API void diloco_log_set(diloco_log_fn fn, void *user, diloco_log_level level);

#ifdef __cplusplus
}
#endif
#endif
