/* launched.h - shared by launch and its subcommands: a run or a batch, and its launches.
 *
 * A subcommand opens the book with dl_launched_open, takes a control of it with
 * dl_launched_control, and closes it. launch itself uses the helpers below: numbers, paths, the
 * run's id, money and signals. */
#ifndef DL_CLI_LAUNCH_LAUNCHED_H
#define DL_CLI_LAUNCH_LAUNCHED_H

#include "cli/cli.h"
#include "launch/supervisor.h"
#include "plan/forecast.h"

/* A run or a batch and the book of its launches, opened by args->target. */
typedef struct dl_launched {
    dl_config *config;  /* owned: of the target */
    dl_config *options; /* owned: those of the launch, as trusted at opening */
    dl_book book;
    dl_launch_spec spec; /* as the book has it */
    const dl_executor *executor;
    dl_config_path program; /* as dl_launched_program places it */
    dl_config_path dir;     /* as dl_launched_dir chooses it */
    bool is_batch;          /* launch/batch.h */
    dl_config_path trained; /* of a batch: the run whose replicas its ranks are; "": none */
    bool is_far;            /* `trained` was not read: the store of the batch is elsewhere */
    bool done;              /* it was complete at dl_launched_open or dl_launched_look */
} dl_launched;

/* dl_launched_open opens the run and the book that args->target leads to. The caller closes *out;
 * after an error there is nothing to close. Returns DILOCO_ENOENT if there is no run and no
 * batch, or nothing was launched for it. Returns DILOCO_EREFUSED as dl_launched_trust does, and
 * errors of the settings and of the store. */
DL_MUST_CHECK diloco_status dl_launched_open(dl_launched *out, const dl_args *args);
/* dl_launched_look sets launched->done by the store, and of a batch by the book. Returns errors of
 * the store. */
DL_MUST_CHECK diloco_status dl_launched_look(dl_launched *launched);
/* dl_launched_close frees everything in *launched. Replicas that were launched run on. */
void dl_launched_close(dl_launched *launched);
/* dl_launched_control returns a control of the opened book (launch/supervisor.h). It borrows from
 * *launched, which must not move or be closed while the control is in use. */
dl_control dl_launched_control(dl_launched *launched);

/* dl_launched_trust decides which options of a launch's book apply on this machine. Anyone who can
 * write to the store may have written the book. So its launch.endpoint, which would get this
 * machine's credentials, has to be on this machine, or be the same in `own`. Its launch.ssh_config,
 * whose commands would run here, has to be the same in `own`. A value of `own` replaces one of the
 * book, also of launch.prices and launch.poll, and one of --set that of launch.context. Returns
 * DILOCO_EREFUSED, and names the flag that allows it. */
DL_MUST_CHECK diloco_status dl_launched_trust(dl_config *book, const dl_config *own);
/* dl_launched_check returns DILOCO_EREFUSED, with the name, if --set gives an option that has no
 * effect on a launch that was made. `command` is the name of the subcommand, such as "launch
 * status". */
DL_MUST_CHECK diloco_status dl_launched_check(const dl_config *own, const char *command);

/* The same for the options that a subcommand takes from this machine, if `executor`, which has the
 * launch's replicas, does not use one, or the subcommand does not. */
DL_MUST_CHECK diloco_status dl_launched_check_for(const dl_config *own, const dl_executor *executor,
                                                  const char *command);

/* dl_launched_dir writes the folder of a launch's files as its subcommands use it. `theirs` is that
 * of the book, and `run` the id of the run. Replicas in an image have no files here, and the folder
 * is only where a cancel on this machine keeps output. So it is launch.dir of `own`, or the default
 * of the run: the book must not name a folder that this machine writes to. */
void dl_launched_dir(dl_config_path out, const dl_executor *executor, const char *theirs,
                     const dl_config *own, const char *run);

/* dl_launched_numbers reads "3" as 3 and 3, and "4..16" as 4 and 16. Returns DILOCO_EINVAL for any
 * other text, and for a number above DL_JOBS_MAX. */
DL_MUST_CHECK diloco_status dl_launched_numbers(uint32_t *min, uint32_t *max, const char *text);

/* dl_launched_path makes a path absolute, by the folder of this process, as a replica may run in
 * another one. Returns DILOCO_EINVAL if the result is too long, and DILOCO_EIO if this process's
 * folder has no path. */
DL_MUST_CHECK diloco_status dl_launched_path(dl_config_path out, const char *path);

/* dl_launched_program writes the program of the replicas: launch.binary, or this process's own
 * file. In an image it is found by its name. Returns DILOCO_EIO if the file of this process is not
 * known, and the errors of dl_launched_path. */
DL_MUST_CHECK diloco_status dl_launched_program(dl_config_path out, const dl_executor *executor,
                                                const dl_config *config);

/* dl_launched_run writes the run's id, and whether the run is complete. Both stay as they were
 * after an error. Returns DILOCO_ENOENT if the store has no run. */
DL_MUST_CHECK diloco_status dl_launched_run(char id[33], bool *done, const char *store);

/* dl_launched_batch writes whether a batch is complete: every rank of the book has succeeded, and
 * the run at `trained` ("": none) is complete. A run that does not exist is not complete. Returns
 * the other errors of dl_launched_run. */
DL_MUST_CHECK diloco_status dl_launched_batch(bool *done, const dl_book *book, const char *trained);

/* dl_launched_count writes whether the run is complete, and for each rank of the book the number of
 * processes that the run has counted (docs/protocol.md P6). Where the run has more replicas than
 * can be listed, the numbers are left unknown. Returns the errors of dl_launched_run. */
DL_MUST_CHECK diloco_status dl_launched_count(dl_book *book, bool *done, const char *store);

/* dl_launched_prices reads the table of launch.prices. Returns false if the option is not set, or
 * names no table that can be read on this machine. */
bool dl_launched_prices(dl_prices *out, const dl_config *options);
/* dl_launched_budget reads the table of launch.prices, if the option is set (*priced). `has_store`:
 * a run's store is part of the cost. Returns DILOCO_EINVAL for a table that cannot be read, and for
 * a launch.budget without a price that applies. */
DL_MUST_CHECK diloco_status dl_launched_budget(dl_prices *out, bool *priced,
                                               const dl_config *options, bool has_store);
/* ", 1.25 EUR (2.50 EUR an hour and replica, prices of 2026-01-31)", or "" without a table that can
 * be read here. A table without machine_hour is named as such. Returns out. */
enum { DL_LAUNCHED_COST = 192 };
const char *dl_launched_cost_text(char out[DL_LAUNCHED_COST], const dl_config *options,
                                  double machine_s);

/* dl_launched_stop installs handlers for SIGINT, SIGTERM and SIGHUP for the rest of the process.
 * The first such signal sets the returned flag to 1, and the second one ends the process with code
 * 130. */
const volatile int *dl_launched_stop(void);

#endif
