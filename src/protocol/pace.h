/* pace.h - a replica's own side of the schedule: its position, what it has to do there, and the
 * outcome of its contributions.
 *
 *     train to the next stop --> CAPTURE   g of the due fragment, for the exchange
 *                            --> ADOPT  once its entry is applied: theta into the local fragment
 *                            --> JUMP   the log advanced without this replica (PROTOCOL P13): theta
 *                                       of fragments that moved, position of the last due point
 *                            --> WAIT   the log is being read, at first or again: the shared state
 *                                       has changed
 *
 * The trainer asks and reports (dl_pace_next, …_taken, …_adopted, …_jumped). The exchange reports
 * what the log decided (dl_pace_apply). There is no I/O and there are no locks: an owner with two
 * threads guards it. With tau = 0 a due point is CAPTURE and then ADOPT, which waits. */
#ifndef DL_PROTOCOL_PACE_H
#define DL_PROTOCOL_PACE_H

#include "base/arena.h"
#include "protocol/schedule.h"
#include "tensor/manifest.h"

/* A contribution between its due point and the adoption of its entry. */
typedef struct dl_pace_capture {
    uint64_t entry, position;
    uint32_t fragment;
    bool mute; /* nothing is uploaded: a joining replica without a whole interval of steps (P14) */
    /* its capture does not exist any more; only the uploaded object may */
    bool gone;
    bool commit, counted; /* once the entry is applied */
} dl_pace_capture;

typedef struct dl_pace_fragment {
    uint64_t since; /* position at which its local part was the shared one */
    bool behind;    /* the log moved it without this replica: adopt theta */
} dl_pace_fragment;

typedef struct dl_pace {
    dl_schedule schedule;
    uint64_t entries;    /* of the run */
    uint64_t position;   /* t of this replica */
    uint64_t applied;    /* entries that the log has decided */
    uint64_t n_captured; /* this replica has passed the due points of entries [0, n_captured) */
    uint64_t next_adopt; /* [next_adopt, n_captured) are in flight */
    uint64_t skip_to;    /* a replica that was passed over continues at this position */
    bool reading;        /* the log was not read to its end yet */
    /* schedule async: n_captured and next_adopt count this replica's own contributions */
    uint64_t base;         /* entries applied when the local tensors were theta */
    uint64_t own_interval; /* steps from there to the next capture */
    bool settled;  /* the entry of the contribution in flight is committed, and its grace is over */
    bool finished; /* the run's last state is adopted */
    bool adopts_uncounted;       /* run.on_uncounted = adopt */
    bool captures_nothing;       /* federated: the members are clients, so nothing is captured */
    bool one_by_one;             /* a fragment is captured once its last entry is decided (P17) */
    dl_pace_capture *captures;   /* [n_captures] entry e in e mod n_captures */
    size_t n_captures;           /* L */
    dl_pace_fragment *fragments; /* [P] */
} dl_pace;

/* Allocates its arrays from the arena, or measures them only. */
void dl_pace_layout(dl_pace *pace, dl_arena *arena, const dl_schedule *schedule);

/* Begins in the shared state before entry `folded`; every fragment has to adopt it. `entries` is
 * the number of the run's entries. */
void dl_pace_begin(dl_pace *pace, const dl_config *config, uint64_t entries, uint64_t applied);

/* The saved pace of local tensors. A resume marks contributions in flight as `gone`. */
enum { DL_PACE_MAX_CAPTURES = DL_MAX_FRAGMENTS + 1 };
typedef struct dl_pace_saved {
    uint64_t position, applied, next_adopt, n_captured;
    uint64_t base;             /* async */
    float weight;              /* eager: this replica's weight in the last entry that counted it */
    dl_pace_capture *captures; /* [n_captured - next_adopt], space for DL_PACE_MAX_CAPTURES */
    dl_pace_fragment *fragments; /* [P]; both the caller's */
} dl_pace_saved;
/* Saves the pace. Without overlap it undoes captures that the log has not decided. A resume repeats
 * them from the same tensors, with the same bits, whether the store has them or not. Returns true
 * if it undid one. */
bool dl_pace_save(const dl_pace *pace, dl_pace_saved *out);
void dl_pace_resume(dl_pace *pace, const dl_pace_saved *saved);
/* Restarts when no local value fits any more: the exchange rejoined from an earlier state, or a
 * resume does not know the outcome of some entries. Contributions in flight are then `gone`. */
void dl_pace_restart(dl_pace *pace);

typedef enum dl_stop_kind {
    DL_STOP_NONE,
    DL_STOP_CAPTURE,
    DL_STOP_ADOPT,
    DL_STOP_JUMP,
    DL_STOP_WAIT
} dl_stop_kind;
typedef struct dl_stop {
    dl_stop_kind kind;
    uint64_t entry; /* CAPTURE, ADOPT */
} dl_stop;

/* Returns what has to be done here before another step. */
dl_stop dl_pace_next(const dl_pace *pace);
/* Returns whether it may be done now. ADOPT waits for its entry, WAIT for the log's end. */
bool dl_pace_ready(const dl_pace *pace, dl_stop stop);
/* Returns the position of the next stop, or the present one if something is to be done. */
uint64_t dl_pace_train_until(const dl_pace *pace);
/* Returns whether every entry is applied and adopted: the run is over for this replica. */
bool dl_pace_done(const dl_pace *pace);
/* Returns the first entry whose contributions this replica still needs while entry `open` is open.
 */
uint64_t dl_pace_needed_from(const dl_pace *pace, uint64_t open);

/* Returns the record of the capture that is due here. `awaited`: an entry waits for this replica by
 * name. */
dl_pace_capture dl_pace_due_capture(const dl_pace *pace, uint32_t fragment, bool awaited);
/* Records it once it is taken. Then its entry is in flight. */
void dl_pace_captured(dl_pace *pace, const dl_pace_capture *capture);
/* Returns whether a capture for a later `entry` will be whole, if no entry skips this replica. */
bool dl_pace_will_be_whole(const dl_pace *pace, uint64_t entry, uint32_t fragment);
/* Returns the record of a contribution in flight, or NULL if that entry has no such contribution.
 */
dl_pace_capture *dl_pace_in_flight(const dl_pace *pace, uint64_t entry);

/* The adoption of an applied entry: nothing, a mix of theta with the local part, or all of theta.
 */
typedef enum dl_adoption { DL_ADOPT_NOTHING, DL_ADOPT_MIX, DL_ADOPT_THETA } dl_adoption;
dl_adoption dl_pace_adoption(const dl_pace *pace, const dl_pace_capture *capture);
void dl_pace_adopted(dl_pace *pace, const dl_pace_capture *capture, dl_adoption how);
void dl_pace_jumped(dl_pace *pace); /* the fragments that moved are adopted */

/* Entries exist that this replica has not read, or it rejoins: the trainer waits until they are
 * applied. */
void dl_pace_fall_behind(dl_pace *pace);
/* The others have reached the due point of this entry, the open one: the trainer jumps there. */
void dl_pace_align(dl_pace *pace, uint64_t entry);
/* Returns n: contributions to entries [0, n) may be uploaded. */
uint64_t dl_pace_may_put(const dl_pace *pace);
/* Returns whether this replica has a contribution in flight for the open entry. */
bool dl_pace_participates(const dl_pace *pace, uint64_t entry);
/* async: dl_pace_settle allows the adoption of the contribution in flight. dl_pace_let_go is for
 * one that will never count: the trainer jumps, and continues. */
void dl_pace_settle(dl_pace *pace);
void dl_pace_let_go(dl_pace *pace);
/* The log was read to its end: later decisions are new. */
void dl_pace_caught_up(dl_pace *pace);
/* An entry was aborted in a run that assigns each sample once; dl_pace_apply is called next. The
 * training so far stays valid if its samples are still held and were used whole. */
void dl_pace_aborted(dl_pace *pace, uint64_t entry, bool held);
/* The log decided an entry. An entry that the saved state knows changes nothing. */
void dl_pace_apply(dl_pace *pace, uint64_t entry, uint32_t fragment, bool commit, bool counted);

#endif
