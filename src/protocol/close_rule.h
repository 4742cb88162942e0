/* close_rule.h - when an entry closes, and how: P9, P10, P11. Pure.
 *
 *     all of the roster are there, or have passed     commit; abort if all have passed
 *     run.close_at are there, and the grace is over   commit
 *     before the deadline                             wait
 *     past it, once the heartbeats are looked at
 *         on_missing = commit_partial                 commit with a quorum, else abort
 *         on_missing = abort                          abort
 *         on_missing = wait                           abort if all who miss are silent, else wait
 *
 * Where clients' time is simulated (simulated_time.h), whose answers are in time is known
 * beforehand: an entry waits for those, without a deadline, and closes by the rules above.
 *
 * Of a federated run the roster are the sampled clients, from entry 0 on, and `wait` waits for all
 * of them, without a deadline.
 *
 * The first L entries have no roster: they wait for `replicas` answers, or from start_timeout on
 * for `min_replicas` contributions, and have no deadline. */
#ifndef DL_PROTOCOL_CLOSE_RULE_H
#define DL_PROTOCOL_CLOSE_RULE_H

#include "base/config.h"
#include "protocol/candidates.h"
#include "protocol/control.h"
#include "protocol/simulated_time.h"

typedef struct dl_closing {
    const dl_config *config;
    const dl_control *control;
    const dl_known_table *known;
    const bool *silent;            /* of control's roster */
    const dl_simulated *simulated; /* likewise; NULL: time is what the clock says */
    dl_time now, began, deadline;  /* began: when this replica did */
    dl_time enough_at;             /* when run.close_at were there first; DL_NEVER: not yet */
    double slack_s;                /* left of the overlap then */
} dl_closing;

typedef struct dl_verdict {
    enum { DL_VERDICT_COMMIT, DL_VERDICT_ABORT, DL_VERDICT_WAIT, DL_VERDICT_WATCH } kind;
    bool nobody;                    /* ABORT: all have answered, and nobody counts */
    dl_time until;                  /* WAIT */
    char reason[DL_REASON_MAX + 1]; /* ABORT */
} dl_verdict;

/* COMMIT, WAIT, or WATCH: ask again with dl_closing_watched when the heartbeats are seen. */
dl_verdict dl_closing_look(const dl_closing *c);
/* COMMIT, ABORT or WAIT. */
dl_verdict dl_closing_watched(const dl_closing *c);

/* Does the entry wait for nobody any more, with something to count? Then it is to be committed. */
bool dl_closing_is_complete(const dl_closing *c);

/* Are run.close_at there? */
bool dl_closing_has_enough(const dl_closing *c);

/* When an entry that was contributed to at `from` may close without the missing: the option; or a
 * round's time, a sixth of run.patience at least, all of it where no round was measured (0), and
 * four uploads'; doubled by each abort in a row. */
dl_time dl_closing_deadline(const dl_config *config, uint64_t n_aborts, dl_time from,
                            double round_s, double upload_s);

#endif
