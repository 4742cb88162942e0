/* close_rule.h - when an entry closes, and how: P9, P10, P11. Pure.
 *
 *     all of the roster are present, or skip it     commit; abort if all skip it
 *     run.close_at are present, after the grace     commit
 *     before the deadline                           wait
 *     after it, once the heartbeats were read
 *         on_missing = commit_partial               commit with a quorum, else abort
 *         on_missing = abort                        abort
 *         on_missing = wait                         abort if all missing are silent, else wait
 *
 * If clients' time is simulated (simulated_time.h), it is known beforehand which answers are in
 * time. An entry waits for those, without a deadline, and closes by the rules above.
 *
 * In a federated run the roster is the sampled clients, from entry 0 on, and `wait` waits for all
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
    const dl_candidate_table *known;
    const bool *silent;            /* of control's roster */
    const dl_simulated *simulated; /* of control's roster; NULL: time is the clock's */
    dl_time now, began, deadline;  /* began: when this replica began */
    dl_time enough_at;             /* when the first run.close_at had arrived; DL_NEVER: not yet */
    double slack_s;                /* seconds left of the overlap then */
} dl_closing;

typedef struct dl_verdict {
    enum { DL_VERDICT_COMMIT, DL_VERDICT_ABORT, DL_VERDICT_WAIT, DL_VERDICT_WATCH } kind;
    bool nobody;                    /* ABORT: all have answered, and none counts */
    dl_time until;                  /* WAIT */
    char reason[DL_REASON_MAX + 1]; /* ABORT */
} dl_verdict;

/* Returns COMMIT, WAIT, or WATCH: call dl_closing_watched once the heartbeats were read. */
dl_verdict dl_closing_look(const dl_closing *c);
/* Returns COMMIT, ABORT or WAIT. */
dl_verdict dl_closing_watched(const dl_closing *c);

/* Returns whether the entry waits for no replica and has something to count. Then it is to be
 * committed. */
bool dl_closing_is_complete(const dl_closing *c);

/* Returns whether run.close_at are present. */
bool dl_closing_has_enough(const dl_closing *c);

/* Returns when an entry that was contributed to at `from` may close without the missing replicas.
 * It is after the option's time, if that is set. Otherwise it is after the larger of a round's time
 * and a sixth of run.patience, plus the time of four uploads. If no round was measured (0),
 * run.patience replaces that larger time. Each consecutive abort doubles the whole. */
dl_time dl_closing_deadline(const dl_config *config, uint64_t n_aborts, dl_time from,
                            double round_s, double upload_s);

#endif
