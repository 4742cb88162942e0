/* report_page.h - one file that shows a run, or several: the page with its data in it
 * (FILE.html), the same printed by a browser (FILE.pdf), or text (FILE.md). */
#ifndef DL_CLI_DISPLAY_REPORT_PAGE_H
#define DL_CLI_DISPLAY_REPORT_PAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* dl_report_page_takes returns true if the ending of the name is one that dl_report_page_write
 * writes. */
bool dl_report_page_takes(const char *path);

/* dl_report_page_write reads the n runs at `stores` (URLs) and writes one report of them to `path`,
 * which is replaced as a whole. Returns DILOCO_ENOENT if one of them has no run, and DILOCO_EIO or
 * DILOCO_EFULL for the file. Returns DILOCO_EREFUSED if the program was built without its page, or
 * FILE.pdf needs a browser. */
DL_MUST_CHECK diloco_status dl_report_page_write(const char *path, const char *const *stores,
                                                 size_t n);

#endif
