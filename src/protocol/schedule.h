/* schedule.h - which fragment is due at which position, and when its result is adopted
 * (docs/architecture.md section 2). Pure: replicas, joining ones and auditors compute the same.
 *
 *     offset    entry e is the e-th due point: fragment p = e mod P at t = t_p + kH, k >= 1,
 *               t_p = floor(p H / P); Streaming DiLoCo (2501.18512, with the sign of its example:
 *               the partial first interval is skipped)
 *     torchft   every H / P steps one fragment, the commits so far mod P, so that an aborted one
 *               is tried again at once; captured tau steps before
 *     async     each replica by itself, H steps after its own last adoption (async.h): positions
 *               are the replica's, and entries have no due point
 *
 * The first rounds may have an interval of their own (trainer.local_steps_phases). With H_k of
 * round k, t = H_0 + … + H_k + floor(p H_(k+1) / P) in round k = e / P.
 *
 * An entry is captured at `capture`, and adopted at `adopt` = capture + tau. The overlap of
 * `delayed` and `eager` is one round: tau = H (PROTOCOL P21). A replica may have a smaller tau of
 * its own. It captures when all do, and adopts before them (2501.18512 section 2.3). */
#ifndef DL_PROTOCOL_SCHEDULE_H
#define DL_PROTOCOL_SCHEDULE_H

#include "base/config.h"

/* Consecutive rounds of one interval. */
typedef struct dl_round_phase {
    uint64_t rounds, steps;
} dl_round_phase;
enum { DL_ROUND_PHASES = 16 };

typedef struct dl_schedule {
    uint64_t interval; /* H of the rounds after all phases */
    dl_round_phase phases[DL_ROUND_PHASES];
    size_t n_phases;
    uint64_t n_fragments; /* P */
    uint64_t delay;       /* tau */
    uint64_t early;       /* steps by which this replica adopts before tau is over */
    dl_overlap overlap;
    bool torchft, async;
    uint64_t replicas; /* async: this many contributions are a round */
} dl_schedule;

/* Makes the schedule. Returns DILOCO_EINVAL if trainer.local_steps_phases is no list of phases.
 * Returns DILOCO_EREFUSED for tau >= H of any round, and for phases with due points that are no
 * function of the round. With torchft's it also returns it if P does not divide H or tau >= H / P.
 * The same for an own tau that is larger, or that has to be equal for all. */
DL_MUST_CHECK diloco_status dl_schedule_of(dl_schedule *out, const dl_config *config,
                                           int n_fragments);

/* Return the positions of entry e; both never fall with e. */
uint64_t dl_schedule_capture(const dl_schedule *s, uint64_t entry);
uint64_t dl_schedule_adopt(const dl_schedule *s, uint64_t entry);

/* Returns the steps between two due points of a fragment, the second of which is entry e's. */
uint64_t dl_schedule_interval(const dl_schedule *s, uint64_t entry);

/* n_commits: of the whole run before this entry. */
uint32_t dl_schedule_fragment(const dl_schedule *s, uint64_t entry, uint64_t n_commits);

/* Returns L: an entry contains the terms of the entry L later (PROTOCOL P9). It is also the most
 * contributions of one replica that are in flight at a time. */
size_t dl_schedule_ahead(const dl_schedule *s);

/* Return the number of entries of a run that exchanges every fragment `rounds` times, and the
 * position of its end: the last due point, after which there is no training. */
uint64_t dl_schedule_entries(const dl_schedule *s, uint64_t rounds);
uint64_t dl_schedule_end(const dl_schedule *s, uint64_t entries);

/* Returns the steps of the first `rounds` rounds of one fragment. */
uint64_t dl_schedule_steps(const dl_schedule *s, uint64_t rounds);

/* Returns the round of an entry; outer learning rates are by round. */
uint64_t dl_schedule_round(const dl_schedule *s, uint64_t entry);

#endif
