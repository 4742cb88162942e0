/* schedule.h - which fragment is due at which position, and when its result is taken over
 * (docs/architecture.md section 2). Pure: replicas, joiners and auditors cannot disagree.
 *
 *     offset    entry e is the e-th due point: fragment p = e mod P at t = t_p + kH, k >= 1,
 *               t_p = floor(p H / P); Streaming DiLoCo (2501.18512, with the sign of its example:
 *               the partial first interval is skipped)
 *     torchft   every H / P steps one fragment, the commits so far mod P, so that an aborted one
 *               is tried again at once; taken tau steps before
 *
 *               The first rounds may have an interval of their own (trainer.local_steps_phases).
 * With H_k of round k, t = H_0 + … + H_k + floor(p H_(k+1) / P) in round k = e / P.
 *
 *     async     every replica by itself, H steps behind its own last adoption (async.h): positions
 *               are of the replica, entries are not due anywhere
 *
 * Taken at `take`, adopted at `adopt` = take + tau. The overlap of `delayed` and `eager` is one
 * round: tau = H (PROTOCOL P21). A replica may have a tau of its own, which is no larger: it takes
 * when all take, and adopts before them (2501.18512 section 2.3). */
#ifndef DL_PROTOCOL_SCHEDULE_H
#define DL_PROTOCOL_SCHEDULE_H

#include "base/config.h"

/* Consecutive rounds of one interval. */
typedef struct dl_round_phase {
    uint64_t rounds, steps;
} dl_round_phase;
enum { DL_ROUND_PHASES = 16 };

typedef struct dl_schedule {
    uint64_t interval; /* H, of the rounds after all phases */
    dl_round_phase phases[DL_ROUND_PHASES];
    size_t n_phases;
    uint64_t n_fragments; /* P */
    uint64_t delay;       /* tau */
    uint64_t early;       /* this replica adopts so many steps before tau is over */
    dl_overlap overlap;
    bool torchft, async;
    uint64_t replicas; /* async: so many contributions make a round */
} dl_schedule;

/* DILOCO_EINVAL: trainer.local_steps_phases is no list of phases. DILOCO_EREFUSED: tau >= H of any
 * round; phases where a due point is not a function of the round; with torchft's, P does not divide
 * H or tau >= H / P; an own tau that is larger, or where all have to have the same. */
DL_MUST_CHECK diloco_status dl_schedule_of(dl_schedule *out, const dl_config *config,
                                           int n_fragments);

/* Positions of entry e: both never fall with e. */
uint64_t dl_schedule_take(const dl_schedule *s, uint64_t entry);
uint64_t dl_schedule_adopt(const dl_schedule *s, uint64_t entry);

/* Steps that lie between two due points of a fragment, the second of which is that of entry e. */
uint64_t dl_schedule_interval(const dl_schedule *s, uint64_t entry);

/* n_commits: of the whole run before this entry. */
uint32_t dl_schedule_fragment(const dl_schedule *s, uint64_t entry, uint64_t n_commits);

/* L: an entry tells the terms of the entry L later (PROTOCOL P9). Also the most contributions
 * of one replica that are under way at a time. */
size_t dl_schedule_ahead(const dl_schedule *s);

/* Entries of a run in which every fragment is synchronised `rounds` times, and the position at
 * which it ends: the last due point, behind which there is nothing to train for. */
uint64_t dl_schedule_entries(const dl_schedule *s, uint64_t rounds);
uint64_t dl_schedule_end(const dl_schedule *s, uint64_t entries);

/* Steps of the first `rounds` rounds of one fragment. */
uint64_t dl_schedule_steps(const dl_schedule *s, uint64_t rounds);

/* Which of these rounds an entry is of: outer learning rates are by round. */
uint64_t dl_schedule_round(const dl_schedule *s, uint64_t entry);

#endif
