/* launch_control.h - the parts of a launch, as the functions that follow it need them. */
#ifndef DL_LAUNCH_LAUNCH_CONTROL_H
#define DL_LAUNCH_LAUNCH_CONTROL_H

#include "launch/book.h"

/* The parts of a launch that work together. Everything is borrowed. */
typedef struct dl_control {
    const dl_launch_spec *spec;
    const dl_executor *executor;
    const char *what; /* "run" or "batch": the thing to complete, for messages */
    dl_book *book;    /* bound to the executor (dl_book_bind) */
    /* The cost after which no replica is started any more; 0: no limit. This cost and the next two
     * are in the currency of launch.prices. */
    double budget;
    double machine_hour;      /* price of an hour of a replica's machine */
    const double *store_cost; /* of the store so far, which is_done may change; NULL: not counted */
    /* Set by a signal handler. Not 0: return, and leave the replicas running. NULL: never. */
    const volatile int *stop;

    void *user;
    /* Set *done if the run is complete, and ranks[].processes of the book to the number of
     * processes that the run has counted (P6). After an error it is called again at the next look.
     * NULL: not known, for a control that neither follows nor starts replicas. */
    diloco_status (*is_done)(void *user, bool *done);
    /* Gets a line for a person about each change. NULL: silent. The line may quote a backend, so it
     * is untrusted, and valid only during the call. */
    void (*on_notice)(void *user, const char *line);
} dl_control;

/* Returns the seconds between two looks: launch.poll, or the executor's own. */
double dl_control_period(const dl_control *control);

/* Returns the cost of machine time so far. */
double dl_control_machine_cost(const dl_control *control);

/* Returns true if machine time and the store have cost the budget. */
bool dl_control_is_spent(const dl_control *control);

/* dl_control_spent_text writes "launch.budget is used up (machine time 49.10, store 1.02, of
 * 50.00)". Returns out. */
enum { DL_CONTROL_SPENT = 160 };
const char *dl_control_spent_text(char out[DL_CONTROL_SPENT], const dl_control *control);

/* Wait. Returns false if a stop was requested meanwhile. */
bool dl_control_pause(const dl_control *control, double seconds);

/* Give the state of a job to on_notice. */
void dl_control_print_state(const dl_control *control, const dl_job *job);
/* Give a line to on_notice. */
void dl_control_print(const dl_control *control, const char *format, ...) DL_PRINTF(2, 3);

#endif
