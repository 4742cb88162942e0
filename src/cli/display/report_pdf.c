/* report_pdf.c - see report_pdf.h. The browser gets a folder of its own for its profile, the
 * page and the result. So it neither reads nor changes what a person's browser has. */
#include "cli/display/report_pdf.h"

#include "launch/command.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of the PDF, and of a path. */
enum { LONGEST = 256 << 20, PATH_ROOM = 512 };

#define PATIENCE (120 * DL_SECOND)

/* ---- the browser */

/* DILOCO_BROWSER names the program; a wrong name is not replaced by another browser. */
static const char *find_browser(void)
{
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome",
                                        "google-chrome-stable"};
    const char *given = getenv("DILOCO_BROWSER");
    if (given && *given) return dl_command_exists(given) ? given : NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (dl_command_exists(names[i])) return names[i];
    return NULL;
}

/* Called before a run is read as well, so that a missing browser is reported at once. */
diloco_status dl_report_pdf_check(void)
{
    const char *given = getenv("DILOCO_BROWSER");
    if (find_browser()) return DILOCO_OK;
    if (given && *given)
        return dl_fail(DILOCO_EREFUSED,
                       "DILOCO_BROWSER = \"%.200s\" is no program; a report as PDF is printed by "
                       "Chromium or Chrome",
                       given);
    return dl_fail(DILOCO_EREFUSED,
                   "a report as PDF is printed by Chromium or Chrome, and neither is installed: "
                   "install one, name it in DILOCO_BROWSER, or write FILE.html");
}

/* ---- printing */

/* Called for each file of the folder, and then for the folder. */
static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

/* Run the browser without a window. It prints the page to report.pdf in the folder. */
static diloco_status print(dl_command_result *result, const char *folder)
{
    char profile[PATH_ROOM], output[PATH_ROOM], page[PATH_ROOM];
    snprintf(profile, sizeof profile, "--user-data-dir=%s/profile", folder);
    snprintf(output, sizeof output, "--print-to-pdf=%s/report.pdf", folder);
    snprintf(page, sizeof page, "file://%s/report.html", folder);
    const char *argv[] = {find_browser(),
                          "--headless",
                          "--disable-gpu",
                          "--no-first-run",
                          "--no-pdf-header-footer",
                          profile,
                          output,
                          page,
                          NULL,
                          NULL};
    if (geteuid() == 0) { /* its sandbox refuses root; the page is ours and asks for nothing */
        argv[7] = "--no-sandbox";
        argv[8] = page;
    }
    return dl_command_do(result,
                         &(dl_command_run){.argv = argv, .most = 1 << 20, .patience = PATIENCE});
}

/* Copy the PDF to its place. Chromium ends with 0 also when it wrote nothing, so the first bytes
 * are checked. */
static diloco_status take(const char *path, const char *from, const dl_command_result *result)
{
    dl_buf pdf;
    dl_buf_init(&pdf, LONGEST);
    diloco_status status = dl_file_read(&pdf, from);
    /* The signature of a PDF file, by ISO 32000. */
    const bool printed = !status && pdf.len > 5 && !memcmp(pdf.data, "%PDF-", 5);
    if (printed)
        status = dl_file_write(path, &(dl_span){pdf.data, pdf.len}, 1);
    else
        status = dl_fail(DILOCO_EIO, "%.200s printed no PDF (exit code %d): %s", find_browser(),
                         result->exit_code, result->err);
    dl_buf_deinit(&pdf);
    return status;
}

/* The folder is removed in any case, with the profile in it. */
diloco_status dl_report_pdf_write(const char *path, dl_span html)
{
    /* The system's folder for temporary files, or the user's own. */
    const char *base = getenv("TMPDIR");
    char folder[PATH_ROOM / 2], file[PATH_ROOM];
    dl_command_result result = {0};
    /* Looked for again, since a run may have taken a while to read. */
    DL_TRY(dl_report_pdf_check());
    const int n =
        snprintf(folder, sizeof folder, "%s/diloco-XXXXXX", base && *base ? base : "/tmp");
    if (n >= (int)sizeof folder) return dl_fail(DILOCO_EINVAL, "TMPDIR is too long");
    if (!mkdtemp(folder)) return dl_fail(DILOCO_EIO, "%s cannot be made", folder);
    snprintf(file, sizeof file, "%s/report.html", folder);
    diloco_status status = dl_file_write(file, &html, 1);
    if (!status) status = print(&result, folder);
    snprintf(file, sizeof file, "%s/report.pdf", folder);
    if (!status) status = take(path, file, &result);
    dl_buf_deinit(&result.out);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}
