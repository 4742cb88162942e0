/* launched.h - shared by launch and its subcommands: a run and what was launched for it. */
#ifndef DL_CLI_LAUNCH_LAUNCHED_H
#define DL_CLI_LAUNCH_LAUNCHED_H

#include "cli/cli.h"
#include "launch/supervisor.h"

/* A run and the book of its launches, opened by args->target. */
typedef struct dl_launched {
    dl_config *config; /* owned: of the target */
    dl_book book;
    dl_launch_spec spec; /* as the book has it */
    const dl_executor *executor;
    bool done; /* the run was complete when it was opened */
} dl_launched;

/* DILOCO_ENOENT: no run, or nothing was launched for it. */
DL_MUST_CHECK diloco_status dl_launched_open(dl_launched *out, const dl_args *args);
void dl_launched_close(dl_launched *launched);
dl_control dl_launched_control(dl_launched *launched);

/* "3" or "4..16". DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_launched_numbers(uint32_t *min, uint32_t *max, const char *text);

/* Make a path absolute, by the folder of this process. A replica may run in another folder.
 * DILOCO_EINVAL: it is too long. */
DL_MUST_CHECK diloco_status dl_launched_path(dl_config_path out, const char *path);

/* The run's id, and whether it is complete. DILOCO_ENOENT: no run there. */
DL_MUST_CHECK diloco_status dl_launched_run(char id[33], bool *done, const char *store);

/* The machine time that launch.budget buys by the prices of launch.prices; 0: no limit.
 * DILOCO_EINVAL: a budget without prices, or a table that cannot be read. */
DL_MUST_CHECK diloco_status dl_launched_limit(double *machine_s, const dl_config *options);
/* ", 1.25 EUR (2.50 EUR an hour and replica, prices of 2026-01-31)", or "" without a table that can
 * be read here. Returns out. */
enum { DL_LAUNCHED_COST = 192 };
const char *dl_launched_cost_text(char out[DL_LAUNCHED_COST], const dl_config *options,
                                  double machine_s);

/* From here on the first SIGINT, SIGTERM or SIGHUP sets this to 1, and the second one ends the
 * process. */
const volatile int *dl_launched_stop(void);

#endif
