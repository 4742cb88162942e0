/* report_pdf.h - an HTML report on paper, printed by a browser of this machine.
 *
 * PDF is the HTML report printed by Chromium or Chrome without a window, so both show the same
 * page. */
#ifndef DL_CLI_DISPLAY_REPORT_PDF_H
#define DL_CLI_DISPLAY_REPORT_PDF_H

#include "base/file.h"

/* dl_report_pdf_check returns DILOCO_EREFUSED if there is no browser. The program is
 * DILOCO_BROWSER, or Chromium or Chrome under one of their names. */
DL_MUST_CHECK diloco_status dl_report_pdf_check(void);

/* dl_report_pdf_write prints the page `html` to the file `path`, which is replaced as a whole.
 * Returns DILOCO_EREFUSED as above, DILOCO_EIO if the browser failed, with its output,
 * DILOCO_ETIMEDOUT after two minutes, and DILOCO_EFULL for a full disk. */
DL_MUST_CHECK diloco_status dl_report_pdf_write(const char *path, dl_span html);

#endif
