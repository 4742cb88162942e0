/* lines.h - lines out of bytes that come in pieces. */
#ifndef DL_LAUNCH_LINES_H
#define DL_LAUNCH_LINES_H

#include "launch/executor.h"

typedef struct dl_lines {
    dl_buf line; /* begun, and not yet whole */
    dl_job_line_fn fn;
    void *user;
} dl_lines;

void dl_lines_init(dl_lines *lines, dl_job_line_fn fn, void *user);
/* Give each whole line to fn. A line of more than 64 KiB comes in pieces. */
DL_MUST_CHECK diloco_status dl_lines_add(dl_lines *lines, const char *bytes, size_t n);
/* Give the last line, which has no newline, and free the memory. `status`: of what came before; an
 * error is returned, and the line is dropped. */
DL_MUST_CHECK diloco_status dl_lines_end(dl_lines *lines, diloco_status status);

#endif
