/* report.h - the activity of a run's replicas on this machine, from their events, as lines
 * for people and one object for programs.
 *
 * On a terminal each replica has a live line, with the time left. A terminal of at least 72 columns
 * and 18 lines shows the screen of `diloco watch` above them. Elsewhere the time left is a line
 * after 10 seconds, 20, 40, … On both, a wait of all replicas here is a line after 10 seconds, 20,
 * 40, … Each entry and each evaluation has a line. A warning is printed once. All of it goes to one
 * stream. */
#ifndef DL_CLI_DISPLAY_REPORT_H
#define DL_CLI_DISPLAY_REPORT_H

#include "base/clock.h"
#include "base/hash.h"
#include "cli/crew/processes.h"
#include "cli/display/kinds.h"
#include "cli/display/live_watch.h"
#include "cli/display/screen.h"

/* The newest numbers of one replica here, from its events. */
typedef struct dl_replica_view {
    char phase[32];                                     /* "train", "exchange", …; printable */
    uint64_t step, position, positions, entry, entries; /* as in diloco_progress */
    double loss, tokens_per_s, eta_s;                   /* eta_s < 0: not known */
    /* Of its "trainer" and "end": steps of earlier processes and of all; the rest of this
     * process, but data_parallel_bytes, which are of all. */
    uint64_t first_step, steps, tokens, bytes_sent, bytes_received, data_parallel_bytes;
} dl_replica_view;

/* The events of the run that were printed already. */
typedef struct dl_report_printed {
    uint64_t entries_printed; /* entries below are printed already */
    uint64_t evals_next;      /* after the newest evaluation that was printed */
    uint64_t evals_behind;    /* bit i: that of entry evals_next - 1 - i was, too */
    uint64_t agreements_printed;
    dl_hash warned[32]; /* of warnings */
    size_t n_warned;
} dl_report_printed;

/* The report of one launch. One thread. */
typedef struct dl_report {
    dl_screen screen;
    dl_live_watch *watch; /* NULL: the replicas' lines are all; owned */
    bool quiet, verbose;
    bool images; /* not tokens */
    const dl_replica_name *names;
    size_t n;               /* replicas here */
    dl_replica_view *views; /* owned */
    dl_time begun, drawn, entry_reported;
    dl_time left_reported; /* when the time left was printed; 0: not yet */
    dl_time heard;         /* the newest event that is no mere log line */
    dl_time wait_reported; /* when the wait was printed; 0: not this one yet */

    dl_kinds kinds; /* of all processes here, creating included */

    /* Of the run, from whichever replica says it first. */
    dl_report_printed printed;
    uint64_t commits, aborts; /* of entries; in a run without a log, of rounds */
    double loss, eval_loss, perplexity, accuracy, loss_after_sync; /* NAN: not known */
    char digest[40];
} dl_report;

/* dl_report_open begins a report of n replicas, whose names are borrowed and may change meanwhile.
 * Progress goes to `out`. Returns DILOCO_ENOMEM; the report may be closed then, too. */
DL_MUST_CHECK diloco_status dl_report_open(dl_report *report, const dl_replica_name *names,
                                           size_t n, FILE *out, bool quiet, bool verbose);
void dl_report_close(dl_report *report); /* zeroed is fine */

/* Show the run of `store` as `diloco watch` does, if the output is a terminal. */
void dl_report_watch(dl_report *report, const char *store);
void dl_report_unwatch(dl_report *report);

/* dl_report_event takes one event of names[replica] (processes.h). Unknown events and members are
 * ignored. Lines that it causes are printed at once. */
void dl_report_event(dl_report *report, size_t replica, dl_json_value event);
void dl_report_print(dl_report *report, const char *line); /* unless quiet */
void dl_report_draw(dl_report *report);

/* dl_report_wait is called at each tick. It prints what is waited for if no replica here has
 * anything else to do. `others`: replicas of the run that are not here. */
void dl_report_wait(dl_report *report, const char *store, uint64_t others);

/* dl_report_line writes a replica's live line for a terminal of that many columns; unit: "tok" or
 * "img". Parts that do not fit are left out. */
void dl_report_line(char out[DL_SCREEN_LINE], const char *name, const dl_replica_view *view,
                    const char *unit, int columns);

/* dl_report_summary prints a few lines after the end. dl_report_json prints the object {"status":…}
 * on stdout, with a status that may be an error's. */
void dl_report_summary(dl_report *report, const char *store);
DL_MUST_CHECK diloco_status dl_report_json(const dl_report *report, const char *store,
                                           diloco_status status);

#endif
