/* machine_args.h - the run and the callbacks that a machine is created with. */
#ifndef DL_PROTOCOL_MACHINE_ARGS_H
#define DL_PROTOCOL_MACHINE_ARGS_H

#include "base/config.h"
#include "log/identity.h"
#include "protocol/control.h"
#include "protocol/pace.h"
#include "protocol/request.h"
#include "protocol/simulated_time.h"
#include "protocol/topology.h"

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

#endif
