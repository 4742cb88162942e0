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
 * it measures the log's EXTENT first, and announces itself at the end of that. If the rest is too
 * long, it REJOINs from a newer snapshot.
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

#include "protocol/machine_args.h"

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

enum { DL_TRANSITION_TEXT = 160 };
/* Writes "entry 12: looking -> drafting; READ absent, then COMPUTE". */
void dl_transition_text(char *out, size_t cap, const dl_transition *transition);

#endif
