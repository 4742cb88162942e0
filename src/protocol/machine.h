/* machine.h - one replica's side of the log, as a state machine that does no I/O.
 *
 * The caller starts it and carries out each request that it returns: driver.c with a real store and
 * threads, tests/cluster_sim.c with virtual time and faults. The machine makes the next request
 * from the reply. One request is open at a time.
 *
 *         +--> TRAIN --captured--> READ log/<e> --found--> FOLD
 *         |                       | absent                 (no replica is missing: to COMPUTE)
 *         |                   CONTRIBUTE --> LIST c/<e>/ --> FETCH each
 *         |                                    ^   |
 *         |                 WAIT <--not yet----+---+-> READ log/<e> --found--> FOLD
 *         |   (CONTRIBUTE later captures, one in flight at a  | closes
 *         |    time, during all this; past the deadline:      |
 *         |    WATCH heartbeats)                              |
 *         |        (one for all: COMBINE, FETCH it)           |
 *         |                                    COMPUTE --> CREATE log/<e> --> READ --> FOLD
 *         |
 *         +-- SWAP <-- result agrees <-- COMPUTE (unless done) <-- FETCH <-- FOLD
 *
 * A replica that no entry waits for announces itself before TRAIN: it CONTRIBUTEs an empty
 * contribution. If it was passed over, it also LISTs c/<e>/ and WAITs until another replica is at
 * the due point of the open entry (joining.c). If it reads the log more slowly than the log grows,
 * it measures the log's EXTENT first, and announces itself at the end of that.
 *
 * If one replica combines for all (topology.h), the replica whose turn it is lists and reads
 * contributions. The others read the log until it is their turn. If each member combines a slice,
 * the replica whose turn it is plans:
 *
 *     COMBINE (the plan, its own slices) --> FETCH_COMBINED --all found--> COMPUTE --> CREATE
 *                                              | ^
 *           others: LOOK --> SERVE --> WAIT    | +-- SERVE <-- READ log/<e> <-- WAIT
 *                                              +---past a deadline: LIST, FETCH each whole, COMPUTE
 *
 * The log is applied entry by entry. The pace (pace.h) decides what the replica does at which
 * position. The machine reads from it which entries were captured, and reports to it what was
 * decided. While TRAIN is open the machine has nothing to do. If contributions are uploaded during
 * training, the trainer also continues during other requests. Rules P1 … are those of
 * docs/protocol.md. */
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
    /* wait until the trainer has captured `entry` or was skipped: look at the pace */
    DL_REQUEST_TRAIN,
    DL_REQUEST_READ, /* read log/<entry> */
    /* count the entries from `entry` on that exist without a gap, by one listing of log/ */
    DL_REQUEST_EXTENT,
    /* make this generation's object in c/<entry>/ from the capture; pipelined: it may still be in
     * flight when the request is answered */
    DL_REQUEST_CONTRIBUTE,
    /* list c/<entry>/; async: all of c/ that an entry may still name */
    DL_REQUEST_LIST,
    DL_REQUEST_FETCH, /* read and check the contribution of `life` into `slot` */
    /* compute the dot products of all pairs of the contributions in `slots`, if the run compares
     * directions; `probe`: also measure how each changes the loss */
    DL_REQUEST_JUDGE,
    /* combine draft's members from their slots; `put`: and upload the result to x/<entry>/ */
    DL_REQUEST_COMBINE,
    DL_REQUEST_FETCH_COMBINED, /* read the combined update that draft names */
    /* sharded: combine the slices of the entry that other replicas' plans assign to this one */
    DL_REQUEST_SERVE,
    /* next = outer step of now with draft's members from their slots, or with the newest combined
     * update, if draft names that */
    DL_REQUEST_COMPUTE,
    DL_REQUEST_CREATE, /* create log/<entry> with draft's text */
    DL_REQUEST_SWAP,   /* next becomes now: the state has moved by `entry` */
    DL_REQUEST_WATCH,  /* list hb/ with contents, and end/ */
    /* wait until c/<entry>/ or log/ may have changed, or until the store suggests another look
     * (R8); at most until `until` */
    DL_REQUEST_WAIT,
    DL_REQUEST_SNAPSHOT, /* write one of now, in the background */
    /* load the newest snapshot of at most `entry`, or the newest of all if later contributions are
     * collected. Then call dl_machine_begin. The local tensors no longer fit, unless they were
     * saved at that entry. */
    DL_REQUEST_REJOIN,
    DL_REQUEST_DONE, /* the run is over for this replica: end/, final state */
    DL_REQUEST_FAIL  /* stop with `status`; the error text is set */
} dl_request_kind;

/* A contribution that will probably be fetched next. */
enum { DL_AHEAD_MAX = 15 };
typedef struct dl_ahead {
    uint64_t entry;
    dl_generation generation;
    size_t slot;
} dl_ahead;

/* ---- one struct a kind of request ---- */

typedef struct dl_extent_request {
    uint64_t most; /* the listing ends after that many entries */
} dl_extent_request;

typedef struct dl_contribute_request {
    bool pipelined; /* for a later entry than the open one */
    bool announce;  /* announce: an empty contribution, despite a capture; P9 */
} dl_contribute_request;

typedef struct dl_list_request {
    /* async: the entry of this replica's contribution in flight, or the open one */
    uint64_t own;
} dl_list_request;

typedef struct dl_fetch_request {
    dl_generation generation;
    size_t slot;
    bool fresh; /* from the store again, even if it is cached */
    bool whole; /* all of it; else, if it is sliced, the table of its slices */
    /* [n_ahead] contributions that may be read at the same time, in order; borrowed */
    const dl_ahead *ahead;
    size_t n_ahead;
} dl_fetch_request;

typedef struct dl_judge_request {
    const size_t *slots; /* [n_slots] borrowed until the reply */
    size_t n_slots;
    bool probe; /* also measure their losses */
    bool whole; /* they were read whole */
} dl_judge_request;

/* COMBINE, FETCH_COMBINED, COMPUTE, CREATE: a part of the step that a draft or an entry defines. */
typedef struct dl_step_request {
    const dl_entry *draft; /* borrowed until the reply */
    const size_t *slots;   /* [draft->n_members] of its members, in order; not for CREATE */
    bool put;              /* COMBINE: into x/<entry>/ */
} dl_step_request;

typedef struct dl_swap_request {
    /* the entry counts a contribution of this replica that the saved state does not know */
    bool counted;
    uint64_t own; /* if counted: the entry that it was made for */
    dl_hash body; /* if counted: the digest of its body */
} dl_swap_request;

typedef struct dl_wait_request {
    dl_time until;
    bool log_only; /* changes of contributions do not matter; those of x/<entry>/ do, if sharded */
    bool for_plan; /* sharded: of x/<entry>/ only the plans matter */
} dl_wait_request;

typedef struct dl_snapshot_request {
    bool final; /* at the end of the run: not in the background */
} dl_snapshot_request;

typedef struct dl_rejoin_request {
    bool voided; /* `entry` is void now, even if what it counts can be read */
} dl_rejoin_request;

typedef struct dl_fail_request {
    diloco_status status;
} dl_fail_request;

typedef struct dl_request {
    dl_request_kind kind;
    uint64_t entry;    /* FETCH, CONTRIBUTE: the entry in the contribution's name */
    uint32_t fragment; /* of `entry` */
    union {            /* TRAIN, READ, SERVE, WATCH and DONE have no more fields */
        dl_extent_request extent;
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

/* A heartbeat as seen: its replica's generation, and a hash of its content. */
typedef struct dl_seen {
    dl_generation generation;
    dl_hash content;
    bool ended; /* the end object of that generation exists */
    double steps_per_s;
} dl_seen;

typedef struct dl_listed {
    uint64_t entry; /* the entry in its name */
    dl_generation generation;
    size_t len;
} dl_listed;

/* ---- one struct a kind of reply ---- */

typedef struct dl_read_reply {
    const void *text; /* the entry's bytes; NULL: it does not exist (status OK) */
    size_t text_len;
} dl_read_reply;

typedef struct dl_extent_reply {
    uint64_t n; /* entries that exist, at most `most` */
} dl_extent_reply;

typedef struct dl_contribute_reply {
    bool taken;               /* the contribution of an earlier generation counts instead */
    dl_generation takes_over; /* that generation */
} dl_contribute_reply;

typedef struct dl_list_reply {
    const dl_listed *listed; /* [n_listed] in key order */
    size_t n_listed;
} dl_list_reply;

typedef struct dl_fetch_reply {
    const dl_contribution *facts;
    double norm2;
    const char *reason; /* refused (EPROTO, ENUMERIC): a short word */
    bool forged;        /* refused: its replica's key has not signed it */
    /* why it was not read from its owner (peers.h), or NULL; for the record, the machine ignores it
     */
    const char *peer;
} dl_fetch_reply;

typedef struct dl_judge_reply {
    const double *gram;   /* [n_slots^2], or NULL */
    const double *probed; /* the loss without any, then with each; NULL: not measured */
} dl_judge_reply;

typedef struct dl_serve_reply {
    bool served; /* this replica did its part of a plan, or gave up on it */
} dl_serve_reply;

/* COMBINE, FETCH_COMBINED */
typedef struct dl_combined_reply {
    dl_hash result;     /* of the body; of slices: the digest of their digests */
    size_t len;         /* of the object, or of all slices */
    size_t n_slices;    /* COMBINE, sharded: planned slices; only its own are in the store */
    const char *reason; /* FETCH_COMBINED refused: a short word */
} dl_combined_reply;

typedef struct dl_compute_reply {
    dl_hash result; /* state digest */
} dl_compute_reply;

typedef struct dl_create_reply {
    bool taken; /* the name exists already */
} dl_create_reply;

typedef struct dl_watch_reply {
    const dl_seen *seen; /* [n_seen] */
    size_t n_seen;
} dl_watch_reply;

typedef struct dl_reply {
    dl_request_kind kind; /* of the request */
    dl_time now;
    diloco_status status; /* OK, or why the request failed (its text is set) */

    /* results of pipelined uploads since the last reply */
    uint64_t sending; /* 1 + the entry whose contribution is in flight; 0: no upload is */
    /* 1 + an entry to which this replica has to contribute again, since its object's name holds
     * junk; 0: no such entry */
    uint64_t unsent;
    uint32_t generation; /* the generation of this replica, if `renewed` */
    bool renewed;        /* the generation has changed */

    union {
        dl_read_reply read;
        dl_extent_reply extent;
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

/* Notes for the record; the listener gets them inside dl_machine_next. */
typedef enum dl_note_kind {
    DL_NOTE_COMMIT, /* the entry was applied; `entry` */
    DL_NOTE_ABORT,
    DL_NOTE_VOID, /* an entry is void; text: why */
    /* claimed and computed differ, or bytes are lost; text: of what */
    DL_NOTE_DISPUTE,
    DL_NOTE_REJECT,   /* a contribution was refused: its generation, and the reason */
    DL_NOTE_DEADLINE, /* the deadline was chosen: seconds */
    DL_NOTE_SILENT,   /* a replica is silent: its generation */
    DL_NOTE_PROBED,   /* this replica's measurements of a draft's members: `entry`, `probed` */
    DL_NOTE_JUDGED,   /* `entry` rejects the contribution of `life` for `text` */
    DL_NOTE_CUT,      /* `entry` counts `life`, but not all of its claims; text: of which */
    DL_NOTE_BANNED,   /* `life` is banned for a rejection in `entry`, until entry number `until` */
    DL_NOTE_LATE      /* this replica missed `entry` */
} dl_note_kind;
typedef struct dl_note {
    dl_note_kind kind;
    const dl_entry *entry;
    dl_generation generation;
    const char *text;
    dl_hash claimed, computed;
    double seconds;
    bool counted;        /* COMMIT: this replica was a member */
    bool false_claim;    /* VOID: its committer claims what its members do not give */
    const double *norms; /* COMMIT: [n_members] norms of the movements; NaN: it was not read here */
    const double *probed; /* PROBED: the loss without any, then with each */
    uint64_t until;       /* BANNED */
} dl_note;
typedef void (*dl_note_fn)(void *user, const dl_note *note);

/* Entries that an operator has voided (voided.h): [first, end) of each decision. */
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

/* Callbacks that a machine calls while it moves. */
typedef struct dl_machine_listener {
    dl_note_fn note;
    void *note_user;
    dl_trace_fn trace; /* called after each move; NULL: no trace */
    void *trace_user;
} dl_machine_listener;

typedef struct dl_machine_args {
    const dl_config *config; /* the run's */
    const char *run;
    const dl_identity *identity; /* which keys may create entries; NULL: every process may */
    dl_generation self;
    dl_former_generations formers; /* of self's replica. If one of them is the single committer,
                                    * this generation takes over from it (P26) */
    dl_control *control;           /* of the state, borrowed; the machine advances it */
    dl_pace *pace; /* borrowed; holds the captures; the machine reports applied entries to it */
    const dl_outer *outer;
    const dl_weighting *weighting;
    const dl_combiner *combiner;
    size_t max_members;
    size_t snapshot_bytes;  /* bytes of one: P25's rule */
    bool sends_beside;      /* CONTRIBUTE with pipelined returns before the upload ends */
    bool follows;           /* leaves the closing of entries to others */
    bool reader;            /* a replay: it does not rejoin, but reports what is wrong */
    bool audits;            /* combines the members of combined updates, and compares */
    dl_decisions decisions; /* the operator's decisions that are known (voided.h) */
    dl_topology_kind topology;
    dl_simulation simulation;                 /* of clients' time; zeroed: not simulated */
    const uint64_t *slices;                   /* [P] of an update, if sharded; else NULL */
    double (*lr)(void *user, uint64_t entry); /* outer lr of an entry; NULL: the option's */
    void *lr_user;
    dl_machine_listener listener;
} dl_machine_args;

/* Creates a machine and allocates all its memory. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_machine_create(dl_machine **out, const dl_machine_args *args);
void dl_machine_destroy(dl_machine *machine);

/* Begins, also again after REJOIN, from the state of `control`. Call dl_pace_begin, _resume or
 * _restart before it. */
typedef struct dl_machine_start {
    const dl_fragment_state *fragments; /* [P] of that state: digest, n_commits */
    /* [P] the states that resumed parameters rest on, at the entry that the pace has as applied.
     * NULL: nothing is resumed. */
    const dl_hash *bases;
    dl_time now;
} dl_machine_start;
dl_request dl_machine_begin(dl_machine *machine, const dl_machine_start *start);

/* Returns whether every capture is uploaded, and in the store. */
bool dl_machine_has_put_all(const dl_machine *machine);

/* Takes the reply to the open request, and returns the next request. */
dl_request dl_machine_next(dl_machine *machine, const dl_reply *reply);

#endif
