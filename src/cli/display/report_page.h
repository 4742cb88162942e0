/* report_page.h - one file that stands for a run, or for several: the page with its data in it
 * (FILE.html), the same printed by a browser (FILE.pdf), or text (FILE.md). */
#ifndef DL_CLI_DISPLAY_REPORT_PAGE_H
#define DL_CLI_DISPLAY_REPORT_PAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Does the file's name end so that this writes it? */
bool dl_report_page_takes(const char *path);

/* `stores`: URLs of n runs. DILOCO_ENOENT: one of them has no run; DILOCO_EIO, DILOCO_EFULL: the
 * file; DILOCO_EREFUSED: the program was built without its page, or FILE.pdf needs a browser. */
DL_MUST_CHECK diloco_status dl_report_page_write(const char *path, const char *const *stores,
                                                 size_t n);

#endif
