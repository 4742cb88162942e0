/* lines.h - lines out of bytes that come in pieces of any size, as a pipe or a connection gives
 * them. */
#ifndef DL_LAUNCH_LINES_H
#define DL_LAUNCH_LINES_H

#include "launch/executor.h"

/* The bytes of an unfinished line. Init and end belong together; one thread at a time. */
typedef struct dl_lines {
    dl_buf line;       /* begun, and not yet whole; at most 64 KiB */
    dl_job_line_fn fn; /* receives each line */
    void *user;        /* borrowed; the first argument of fn */
} dl_lines;

/* Lines are given to `fn` with `user`. */
void dl_lines_init(dl_lines *lines, dl_job_line_fn fn, void *user);
/* dl_lines_add gives each whole line to fn. A line of more than 64 KiB comes in pieces, so that
 * memory is bounded. Returns the error of fn, or DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_lines_add(dl_lines *lines, const char *bytes, size_t n);
/* dl_lines_end gives the last line if it has no newline, and frees the memory. `status` is that of
 * the reading before: if it is an error, the line is dropped and the error returned. */
DL_MUST_CHECK diloco_status dl_lines_end(dl_lines *lines, diloco_status status);

#endif
