/* job_outcome.h - the outcome of a poll of a replica, in one line, for tables of states. */
#ifndef DL_TESTS_JOB_OUTCOME_H
#define DL_TESTS_JOB_OUTCOME_H

#include "launch/executor.h"

#include "check.h"

/* "STATE: message"; "STATE, again: message" if launch starts the next generation; "silent: message"
 * if the poll had no answer, so that the state of an earlier poll stays. */
static inline const char *job_outcome(const dl_job *job)
{
    static char text[DL_JOB_MESSAGE_MAX + 64];
    snprintf(text, sizeof text, "%s%s%s%s", job->silent ? "silent" : dl_job_state_name(job->state),
             !job->silent && dl_job_may_be_restarted(job) ? ", again" : "",
             *job->message ? ": " : "", job->message);
    return text;
}

/* Compare the outcome of a poll. `theirs` is the backend's word, for the message of a failure. */
static inline void check_outcome(const char *theirs, const char *expected, const dl_job *job)
{
    char wanted[DL_JOB_MESSAGE_MAX + 192], got[DL_JOB_MESSAGE_MAX + 192];
    snprintf(wanted, sizeof wanted, "%.100s is %s", theirs, expected);
    snprintf(got, sizeof got, "%.100s is %s", theirs, job_outcome(job));
    CHECK_STR(wanted, got);
}

#endif
