/* report_pdf.h - an HTML report on paper, printed by a browser of this machine.
 *
 * PDF is the HTML report printed by Chromium or Chrome without a window, so both show the same
 * page. */
#ifndef DL_CLI_DISPLAY_REPORT_PDF_H
#define DL_CLI_DISPLAY_REPORT_PDF_H

#include "base/file.h"

/* DILOCO_EREFUSED: there is no browser. The program is DILOCO_BROWSER, or Chromium or Chrome under
 * one of their names. */
DL_MUST_CHECK diloco_status dl_report_pdf_check(void);

/* Print the page to a new file. DILOCO_EREFUSED: as above. DILOCO_EIO: the browser failed, with
 * what it said. DILOCO_ETIMEDOUT: it took more than two minutes. DILOCO_EFULL: the disk. */
DL_MUST_CHECK diloco_status dl_report_pdf_write(const char *path, dl_span html);

#endif
