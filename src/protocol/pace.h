/* pace.h - a replica's own side of the schedule: which position it is at, what it has to do
 * there, and what became of what it contributed.
 *
 *     train to the next stop --> TAKE   g of the fragment that is due; goes to the exchange
 *                            --> ADOPT  once its entry is folded: theta into the local fragment
 *                            --> JUMP   the log went on without this replica (PROTOCOL P13):
 *                                       theta of what was moved, position of the last due point
 *                            --> WAIT   the log is being read, at first or again: the shared
 *                                       state is not what it was
 *
 * The trainer asks and tells (dl_pace_next, …_taken, …_adopted, …_jumped), the exchange tells what
 * the log decided (dl_pace_fold). No I/O, no locks: an owner with two threads guards it. With
 * tau = 0 a due point is TAKE and then ADOPT, which waits. */
#ifndef DL_PROTOCOL_PACE_H
#define DL_PROTOCOL_PACE_H

#include "base/arena.h"
#include "protocol/schedule.h"
#include "tensor/manifest.h"

/* A contribution between its due point and the adoption of its entry. */
typedef struct dl_take {
    uint64_t entry, position;
    uint32_t fragment;
    bool mute;            /* nothing is put: a joiner without H steps on the fragment (P14) */
    bool gone;            /* what it was made of is not here any more: its bytes are in the store,
                           * or nowhere */
    bool commit, counted; /* once the entry is folded */
} dl_take;

typedef struct dl_pace_fragment {
    uint64_t since; /* position at which its local part was the shared one */
    bool behind;    /* the log moved it without this replica: theta, whatever was trained */
} dl_pace_fragment;

typedef struct dl_pace {
    dl_schedule schedule;
    uint64_t entries;    /* of the run */
    uint64_t position;   /* t of this replica */
    uint64_t folded;     /* entries that the log has decided */
    uint64_t n_taken;    /* entries [0, n_taken) are behind the trainer's due points */
    uint64_t next_adopt; /* [next_adopt, n_taken) are under way */
    bool reading;        /* the log is not read to its end yet */
    /* schedule async: takes are this replica's own, n_taken and next_adopt count them */
    uint64_t base;               /* entries folded when the local tensors were theta */
    uint64_t own_interval;       /* steps from there to the next take */
    bool settled;                /* the entry of what is under way stands, and its grace is over */
    bool finished;               /* the run's last state is adopted */
    bool adopts_uncounted;       /* run.on_uncounted = adopt */
    bool hands_off;              /* federated: members are clients, so every take is mute */
    bool one_by_one;             /* a fragment is taken once its last entry is decided (P17) */
    dl_take *takes;              /* [n_takes] entry e in e mod n_takes */
    size_t n_takes;              /* L */
    dl_pace_fragment *fragments; /* [P] */
} dl_pace;

/* Takes its arrays from the arena (measuring: none). */
void dl_pace_layout(dl_pace *pace, dl_arena *arena, const dl_schedule *schedule);

/* A life that begins from the shared state before entry `folded` of so many: all fragments are
 * behind. */
void dl_pace_begin(dl_pace *pace, const dl_config *config, uint64_t entries, uint64_t folded);

/* What is saved with local tensors, and resumed from: what was under way is gone then. */
enum { DL_PACE_MAX_TAKES = DL_MAX_FRAGMENTS + 1 };
typedef struct dl_pace_saved {
    uint64_t position, folded, next_adopt, n_taken;
    uint64_t base;               /* async */
    float weight;                /* eager: this replica's in the last entry that counted it */
    dl_take *takes;              /* [n_taken - next_adopt], room for DL_PACE_MAX_TAKES */
    dl_pace_fragment *fragments; /* [P]; both the caller's */
} dl_pace_saved;
/* Without overlap what the log has not decided is taken back: a resume takes it again, from the
 * same tensors, to the same bits, whether those are in the store already or not. True: so it is. */
bool dl_pace_save(const dl_pace *pace, dl_pace_saved *out);
void dl_pace_resume(dl_pace *pace, const dl_pace_saved *saved);
/* Nothing local fits any more: the exchange began again from an earlier state, or a life resumes
 * behind entries that it has not been told of. What is under way is gone. */
void dl_pace_restart(dl_pace *pace);

typedef enum dl_stop_kind {
    DL_STOP_NONE,
    DL_STOP_TAKE,
    DL_STOP_ADOPT,
    DL_STOP_JUMP,
    DL_STOP_WAIT
} dl_stop_kind;
typedef struct dl_stop {
    dl_stop_kind kind;
    uint64_t entry; /* TAKE, ADOPT */
} dl_stop;

/* What is to be done here, before another step. */
dl_stop dl_pace_next(const dl_pace *pace);
/* May it be done now? ADOPT waits for its entry, WAIT for the log's end. */
bool dl_pace_ready(const dl_pace *pace, dl_stop stop);
/* Where training stops next; the present position when there is something to be done. */
uint64_t dl_pace_train_until(const dl_pace *pace);
/* Every entry is folded and adopted: the run is over for this replica. */
bool dl_pace_done(const dl_pace *pace);

/* `awaited`: others wait for it by name. Returns the take, to be filled from. */
dl_take *dl_pace_taken(dl_pace *pace, uint32_t fragment, bool awaited);
/* Will what is taken for a later `entry` be a whole one, if no entry passes this replica over? */
bool dl_pace_will_be_whole(const dl_pace *pace, uint64_t entry, uint32_t fragment);
/* NULL: this replica has no such contribution under way. */
dl_take *dl_pace_take(const dl_pace *pace, uint64_t entry);

/* Does the adoption of a folded take mean all of theta, its mix with the local part, or nothing? */
typedef enum dl_adoption { DL_ADOPT_NOTHING, DL_ADOPT_MIX, DL_ADOPT_THETA } dl_adoption;
dl_adoption dl_pace_adoption(const dl_pace *pace, const dl_take *take);
void dl_pace_adopted(dl_pace *pace, const dl_take *take, dl_adoption how);
void dl_pace_jumped(dl_pace *pace); /* the fragments behind are adopted */

/* Entries stand that this replica has not read: the trainer waits until they are. */
void dl_pace_fall_behind(dl_pace *pace);
/* Of what is taken the entries [0, this) may be put. */
uint64_t dl_pace_may_put(const dl_pace *pace);
/* Has this replica something under way that the open entry concerns? */
bool dl_pace_takes_part(const dl_pace *pace, uint64_t entry);
/* async: what is under way may be adopted; or will never count: the trainer jumps, and goes on. */
void dl_pace_settle(dl_pace *pace);
void dl_pace_let_go(dl_pace *pace);
/* The log is read to its end: what is decided from here on is new. */
void dl_pace_caught_up(dl_pace *pace);
/* Data is dealt, each sample to count once, and an entry was aborted, which dl_pace_fold is told
 * next: what was trained so far stays good if its samples are still held, and they were used whole.
 */
void dl_pace_aborted(dl_pace *pace, uint64_t entry, bool held);
/* The log decided an entry. One that the former life knew of changes nothing. */
void dl_pace_fold(dl_pace *pace, uint64_t entry, uint32_t fragment, bool commit, bool counted);

#endif
