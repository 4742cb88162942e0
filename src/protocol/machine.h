/* machine.h - one replica's side of the log, as a state machine that does no I/O.
 *
 * It is asked once to start and then answered: every request it returns is carried out by
 * somebody (driver.c with a real store and threads, tests/cluster_sim.c with virtual time and
 * faults), whose reply it turns into the next request. One request is open at a time.
 *
 *         +--> TRAIN --taken--> READ log/<e> --there--> FOLD
 *         |                       | absent               (nobody is missing: on to COMPUTE)
 *         |                   CONTRIBUTE --> LIST c/<e>/ --> FETCH each
 *         |                                    ^   |
 *         |                 WAIT <--not yet----+---+-> READ log/<e> --there--> FOLD
 *         |   (CONTRIBUTE what was taken meanwhile, one    | closes
 *         |    under way at a time, beside all this;       |
 *         |    past the deadline: WATCH heartbeats)        |
 *         |        (one for all: COMBINE, FETCH it)   |
 *         |                                    COMPUTE --> CREATE log/<e> --> READ --> FOLD
 *         |
 *         +-- SWAP <-- result agrees <-- COMPUTE (unless done) <-- FETCH <-- FOLD
 *
 * Before TRAIN a replica that no entry waits for knocks: it CONTRIBUTEs nothing (gather.c).
 *
 * Where one replica combines for all (topology.h), whose turn it is looks around for contributions;
 * the others read the log until it is theirs. Where each member combines a slice, that one plans:
 *
 *     COMBINE (the plan, its own slices) --> FETCH_COMBINED --all there--> COMPUTE --> CREATE
 *                                              | ^
 *           others: LOOK --> SERVE --> WAIT    | +-- SERVE <-- READ log/<e> <-- WAIT
 *                                              +---past a deadline: LIST, FETCH each whole, COMPUTE
 *
 * The log is folded entry by entry. What the replica itself does at which position is the
 * pace's (pace.h): the machine reads from it which entries are taken, and tells it what was
 * decided. While TRAIN is open the machine has nothing to do; where contributions move beside
 * training, the trainer goes on also while it has. Rules cited as P1 … are docs/protocol.md's. */
#ifndef DL_PROTOCOL_MACHINE_H
#define DL_PROTOCOL_MACHINE_H

#include "base/config.h"
#include "log/contribution.h"
#include "log/entry.h"
#include "log/identity.h"
#include "protocol/control.h"
#include "protocol/pace.h"
#include "protocol/simulated_time.h"
#include "protocol/topology.h"

typedef struct dl_machine dl_machine;

typedef enum dl_request_kind {
    DL_REQUEST_TRAIN, /* until the trainer has taken `entry`, or was passed over: a look at the pace
                       */
    DL_REQUEST_READ,  /* read log/<entry> */
    DL_REQUEST_CONTRIBUTE, /* make c/<entry>/<own life>, of what was taken; put_ahead: it may still
                            * be under way when that is answered */
    DL_REQUEST_LIST,       /* list c/<entry>/; async: all of c/ that an entry may still name */
    DL_REQUEST_FETCH,      /* read and check the contribution of `life` into `slot` */
    DL_REQUEST_JUDGE,   /* dot products of all pairs of the contributions in `slots`, where the run
                         * compares directions; `probe`: and what each makes of the loss */
    DL_REQUEST_COMBINE, /* what draft's members, from their slots, come to; `put`: into x/<entry>/
                         */
    DL_REQUEST_FETCH_COMBINED, /* read what draft names as combined */
    DL_REQUEST_SERVE,   /* sharded: combine the slices of the entry that others' plans give to us */
    DL_REQUEST_COMPUTE, /* next = outer step of now with draft's members from their slots, or with
                         * what was combined or fetched last, where draft names that */
    DL_REQUEST_CREATE,  /* create log/<entry> with draft's text */
    DL_REQUEST_SWAP,    /* next becomes now: the state has moved by `entry` */
    DL_REQUEST_WATCH,   /* list hb/ with contents, and end/ */
    DL_REQUEST_WAIT,    /* until it is worth looking again: c/<entry>/ or log/ may have changed, or
                         * nobody has looked for as long as the store thinks right (R8); at most
                         * to `until` */
    DL_REQUEST_SNAPSHOT, /* write one of now, in the background */
    DL_REQUEST_REJOIN, /* load the newest snapshot of at most `entry`, or where what follows that is
                        * collected the newest of all, then dl_machine_begin; the local tensors fit
                        * nothing any more, unless they were saved there */
    DL_REQUEST_DONE,   /* the run is over for this replica: end/, final state */
    DL_REQUEST_FAIL    /* stop with `status`; the error text is set */
} dl_request_kind;

/* A contribution that will probably be fetched next. */
enum { DL_AHEAD_MAX = 15 };
typedef struct dl_ahead {
    uint64_t entry;
    dl_life life;
    size_t slot;
} dl_ahead;

/* ---- one struct a kind of request ---- */

typedef struct dl_contribute_request {
    bool put_ahead; /* for a later entry than the open one */
    bool knock;     /* an empty contribution, whatever was taken; P9 */
} dl_contribute_request;

typedef struct dl_list_request {
    uint64_t own; /* async: the entry that this replica's contribution in flight is for, or the open
                   * one */
} dl_list_request;

typedef struct dl_fetch_request {
    dl_life life;
    size_t slot;
    bool fresh;            /* from the store again, whatever is cached */
    bool whole;            /* all of it; else, of one in slices, the table of them */
    const dl_ahead *ahead; /* [n_ahead] what may be read at the same time, in order; borrowed */
    size_t n_ahead;
} dl_fetch_request;

typedef struct dl_judge_request {
    const size_t *slots; /* [n_slots] borrowed until the reply */
    size_t n_slots;
    bool probe; /* measure their losses, too */
    bool whole; /* they were read as a whole */
} dl_judge_request;

/* COMBINE, FETCH_COMBINED, COMPUTE, CREATE: a part of the step that a draft or an entry defines. */
typedef struct dl_step_request {
    const dl_entry *draft; /* borrowed until the reply */
    const size_t *slots;   /* [draft->n_members] of its members, in order; not for CREATE */
    bool put;              /* COMBINE: into x/<entry>/ */
} dl_step_request;

typedef struct dl_swap_request {
    bool counted; /* the entry counts a contribution of this replica that the saved state has not
                   * seen */
    uint64_t own; /* counted: the entry that it was made for, */
    dl_hash body; /* and its body */
} dl_swap_request;

typedef struct dl_wait_request {
    dl_time until;
    bool log_only; /* contributions do not matter; x/<entry>/ does, if sharded */
    bool for_plan; /* sharded: of x/<entry>/ the plans alone matter */
} dl_wait_request;

typedef struct dl_snapshot_request {
    bool final; /* of the run's end: not in the background */
} dl_snapshot_request;

typedef struct dl_rejoin_request {
    bool voided; /* `entry` is void now, whatever has become of what it counts */
} dl_rejoin_request;

typedef struct dl_fail_request {
    diloco_status status;
} dl_fail_request;

typedef struct dl_request {
    dl_request_kind kind;
    uint64_t entry;    /* FETCH, CONTRIBUTE: the entry in the contribution's name */
    uint32_t fragment; /* of `entry` */
    union {            /* TRAIN, READ, SERVE, WATCH and DONE have nothing more */
        dl_contribute_request contribute;
        dl_list_request list;
        dl_fetch_request fetch;
        dl_judge_request judge;
        dl_step_request step;
        dl_swap_request swap;
        dl_wait_request wait;
        dl_snapshot_request snapshot;
        dl_rejoin_request rejoin;
        dl_fail_request fail;
    };
} dl_request;

/* A heartbeat as seen: whose, and a hash of its content. */
typedef struct dl_seen {
    dl_life life;
    dl_hash content;
    bool ended; /* end/<life> is there */
    double steps_per_s;
} dl_seen;

typedef struct dl_listed {
    uint64_t entry; /* under which it lies */
    dl_life life;
    size_t len;
} dl_listed;

/* ---- one struct a kind of reply ---- */

typedef struct dl_read_reply {
    const void *text; /* the entry's bytes; NULL when there is none (status OK) */
    size_t text_len;
} dl_read_reply;

typedef struct dl_contribute_reply {
    bool taken;         /* the contribution of an earlier generation counts instead, */
    dl_life takes_over; /* of this life */
} dl_contribute_reply;

typedef struct dl_list_reply {
    const dl_listed *listed; /* [n_listed] in key order */
    size_t n_listed;
} dl_list_reply;

typedef struct dl_fetch_reply {
    const dl_contribution *facts;
    double norm2;
    const char *reason; /* refused (EPROTO, ENUMERIC): a short word */
    bool forged;        /* refused: the key of its replica has not signed it */
    const char *peer;   /* why not from its owner (peers.h), or NULL; for the record, the machine
                         * does not look */
} dl_fetch_reply;

typedef struct dl_judge_reply {
    const double *gram;   /* [n_slots^2], or NULL */
    const double *probed; /* the loss without any, then with each; NULL: not measured */
} dl_judge_reply;

typedef struct dl_serve_reply {
    bool served; /* this replica did its part of a plan, or gave it up */
} dl_serve_reply;

/* COMBINE, FETCH_COMBINED */
typedef struct dl_combined_reply {
    dl_hash result;     /* of the body; of slices: the digest of theirs */
    size_t len;         /* of the object, or of all slices */
    size_t n_slices;    /* COMBINE, sharded: that were planned; only the own are there */
    const char *reason; /* FETCH_COMBINED refused: a short word */
} dl_combined_reply;

typedef struct dl_compute_reply {
    dl_hash result; /* state digest */
} dl_compute_reply;

typedef struct dl_create_reply {
    bool taken; /* the name was there */
} dl_create_reply;

typedef struct dl_watch_reply {
    const dl_seen *seen; /* [n_seen] */
    size_t n_seen;
} dl_watch_reply;

typedef struct dl_reply {
    dl_request_kind kind; /* of the request */
    dl_time now;
    diloco_status status; /* OK, or why the request failed (its text is set) */

    /* what became of pipelined uploads meanwhile */
    uint64_t sending;    /* 1 + the entry whose contribution is in flight; 0: none is */
    uint64_t unsent;     /* 1 + an entry whose contribution was uploaded in vain, since its name
                          * holds junk: it is contributed again; 0: none */
    uint32_t generation; /* of this replica from here on, */
    bool renewed;        /* … if it has changed */

    union {
        dl_read_reply read;
        dl_contribute_reply contribute;
        dl_list_reply list;
        dl_fetch_reply fetch;
        dl_judge_reply judge;
        dl_serve_reply serve;
        dl_combined_reply combined;
        dl_compute_reply compute;
        dl_create_reply create;
        dl_watch_reply watch;
    };
} dl_reply;

/* What the machine has to say for the record; called inside dl_machine_next. */
typedef enum dl_note_kind {
    DL_NOTE_COMMIT, /* entry folded; `entry` */
    DL_NOTE_ABORT,
    DL_NOTE_VOID,     /* an entry that proves itself wrong: text */
    DL_NOTE_DISPUTE,  /* claimed and computed differ: text says of what; or what is lost */
    DL_NOTE_REJECT,   /* a contribution: life, reason */
    DL_NOTE_DEADLINE, /* chosen: seconds */
    DL_NOTE_SILENT,   /* life */
    DL_NOTE_PROBED,   /* what we have measured of the members of a draft: `entry`, `probed` */
    DL_NOTE_JUDGED,   /* `entry` rejects the contribution of life for `text` */
    DL_NOTE_CUT,      /* `entry` counts life, but not all that it claims: text says of what */
    DL_NOTE_BANNED,   /* life, for what `entry` rejects; until entry number `until` */
    DL_NOTE_LATE      /* this replica missed `entry` */
} dl_note_kind;
typedef struct dl_note {
    dl_note_kind kind;
    const dl_entry *entry;
    dl_life life;
    const char *text;
    dl_hash claimed, computed;
    double seconds;
    bool counted;         /* COMMIT: this replica was a member */
    const double *norms;  /* COMMIT: [n_members] what each moved by; NaN: it was not read here */
    const double *probed; /* PROBED: the loss without any, then with each */
    uint64_t until;       /* BANNED */
} dl_note;
typedef void (*dl_note_fn)(void *user, const dl_note *note);

/* Entries that an operator has voided (voided.h): of each decision [first, end). */
enum { DL_DECISIONS = 16 };
typedef struct dl_decisions {
    size_t n;
    struct {
        uint64_t first, end;
    } at[DL_DECISIONS]; /* in the order in which they were found */
} dl_decisions;
/* One move of the machine, from the phase that waited for a reply to the phase that waits for the
 * next. The texts are static. */
typedef struct dl_transition {
    uint64_t entry; /* the open entry when the reply came */
    const char *from, *to;
    dl_request_kind replied;
    const char *reply; /* "found", "absent", "taken", "done", or the name of a status */
    dl_request_kind requested;
} dl_transition;
typedef void (*dl_trace_fn)(void *user, const dl_transition *transition);

enum { DL_TRANSITION_TEXT = 160 };
/* Writes "entry 12: looking -> drafting; READ absent, then COMPUTE". */
void dl_transition_text(char *out, size_t cap, const dl_transition *transition);
const char *dl_request_name(dl_request_kind kind);

/* Called while a machine moves. */
typedef struct dl_machine_listener {
    dl_note_fn note;
    void *note_user;
    dl_trace_fn trace; /* called after each move; NULL: no trace */
    void *trace_user;
} dl_machine_listener;

typedef struct dl_machine_args {
    const dl_config *config; /* the run's */
    const char *run;
    const dl_identity *identity; /* who may create entries; NULL: whoever does */
    dl_life self;
    dl_life former; /* a life of this replica that is certainly over, and what it was the single
                     * committer of is ours to take over (P26); no name: none is known */
    dl_control *control; /* of the state, borrowed; the machine advances it */
    dl_pace *pace;       /* borrowed; tells what is taken, is told what is folded */
    const dl_outer *outer;
    const dl_weighting *weighting;
    const dl_combiner *combiner;
    size_t max_members;
    size_t snapshot_bytes;  /* size of one: P25's rule */
    bool sends_beside;      /* CONTRIBUTE with put_ahead is answered before it is there */
    bool follows;           /* leaves the closing of entries to others */
    bool reader;            /* replays only: does not begin again, but says what is wrong */
    bool audits;            /* combines what others have combined, and compares */
    dl_decisions decisions; /* of an operator, those that are known (voided.h) */
    dl_way way;
    dl_simulation simulation;                 /* of clients' time; zeroed: none */
    const uint64_t *slices;                   /* [P] of an update, sharded; else NULL */
    double (*lr)(void *user, uint64_t entry); /* outer lr of an entry; NULL: the option's */
    void *lr_user;
    dl_machine_listener listener;
} dl_machine_args;

/* Everything is taken here; nothing allocates later. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_machine_create(dl_machine **out, const dl_machine_args *args);
void dl_machine_destroy(dl_machine *machine);

/* Begin, or begin again after REJOIN, from the state that control tells of. The pace is as
 * dl_pace_begin, _resume or _restart left it. */
typedef struct dl_machine_start {
    const dl_fragment_state *fragments; /* [P] of that state: digest, n_commits */
    const dl_hash *bases;               /* [P] that resumed parameters rest on, at the entry that
                                         * the pace has as folded; NULL: nothing is resumed */
    dl_time now;
} dl_machine_start;
dl_request dl_machine_begin(dl_machine *machine, const dl_machine_start *start);

/* Has everything that was taken been put, and is it there? */
bool dl_machine_has_put_all(const dl_machine *machine);

/* The answer to the open request; the next one. */
dl_request dl_machine_next(dl_machine *machine, const dl_reply *reply);

#endif
