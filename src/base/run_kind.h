/* run_kind.h - the properties in which the kinds of runs with a log differ, one row a kind. A
 * question about a property is answered by the row, so that a further kind is a further row. The
 * protocol and the exchange have tables of functions (protocol/mode.h, exchange/exec_mode.c). */
#ifndef DL_BASE_RUN_KIND_H
#define DL_BASE_RUN_KIND_H

#include "base/config.h"

typedef struct dl_run_kind {
    bool one_by_one; /* each contribution is an entry of its own, and no replica waits for others */
    bool processes;  /* a member is a process, with a heartbeat and a private state */
    bool has_epochs; /* a member passes over its own data, and trainer.epochs counts the passes */
    /* Why an option does not go with this kind; NULL: it does. */
    const char *no_checks;   /* check.*, the whole message */
    const char *no_deal;     /* data.deal = "log", the whole message */
    const char *no_exchange; /* another server.diloco.exchange than allgather; the end of a message
                                that begins with its value */
    const char *no_drop;     /* run.drop: why its contributions are not waited for together */
    const char *no_common_step; /* trainer.first_step: why no step of the run is all members' */
} dl_run_kind;

const dl_run_kind *dl_run_kind_of(const dl_config *config);

/* Returns why no other run can continue such a run's schedule and data (trainer.init_as =
 * "extension"), as the end of a sentence that begins "… do not go with"; NULL: one can. */
const char *dl_run_no_extension(const dl_config *config);

/* Returns why the replicas of such a run stop at no common step, so that it cannot be extended;
 * NULL: they do. */
const char *dl_run_no_common_step(const dl_config *config);

/* Returns the first option that decides a replica's sample n and differs between both runs. NULL:
 * with equal data, step n has the same samples in both. */
const dl_option *dl_run_samples_differ(const dl_config *a, const dl_config *b);

/* Returns whether the run's outer optimizer counts its commits, so that its vectors alone cannot be
 * continued (the rows of src/outer with `counts`). */
bool dl_run_counts_commits(const dl_config *config);

#endif
