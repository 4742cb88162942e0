/* run_names.h - short names for the runs that a page shows, by their URLs. */
#ifndef DL_CLI_RUN_NAMES_H
#define DL_CLI_RUN_NAMES_H

#include "view/view.h"

/* The runs of one page. Adding may move the texts, so pointers into them are valid until the
 * next one is added. */
typedef struct dl_run_names {
    dl_buf names, urls; /* of each run, with its zero byte, in the same order */
} dl_run_names;

void dl_run_names_init(dl_run_names *names);
void dl_run_names_deinit(dl_run_names *names);
/* dl_run_names_add names a run by the last component of its URL. A name that is taken gets a number
 * after it: "run-2". Returns DILOCO_ENOMEM, or DILOCO_EPROTO for too many runs. */
DL_MUST_CHECK diloco_status dl_run_names_add(dl_run_names *names, const char *url);
/* dl_run_names_url writes the URL of the run that has this name. Returns false if none has it. */
bool dl_run_names_url(const dl_run_names *names, char url[DL_VIEW_URL], const char *name);

#endif
