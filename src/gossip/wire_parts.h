/* wire_parts.h - the inside of a dl_wire: shared by wire.c and wire_line.c. */
#ifndef DL_GOSSIP_WIRE_PARTS_H
#define DL_GOSSIP_WIRE_PARTS_H

#include "gossip/wire.h"

#include "base/thread.h"

/* LINES: threads at most, twice the members, because an address may be no member's. KNOW_EVERY: a
 * line announces this node and reads the peer's members with every fourth heartbeat. */
enum { LINES = 2 * DL_NODE_MAX, KNOW_EVERY = 4, NOBODY = DL_NODE_MAX };

#define QUICK (200 * DL_MILLISECOND) /* between heartbeats while a member is waited for */
#define ASK   (5 * DL_SECOND)        /* the longest a small question takes */

/* One address. The lock guards the first part; see wire.c for facts and data. Arrays of two have
 * the contribution first, and the model to agree on second. */
typedef struct dl_line {
    dl_wire *wire;
    pthread_t thread;
    bool used, ended; /* the place is taken; its thread is over and can be joined */
    char address[DL_ADDRESS_MAX + 1];
    size_t member; /* of the node; NOBODY: not known yet, or another line is its line now */
    bool met;      /* a member that the keeper has not noted yet: */
    dl_beat beat;
    dl_contribution facts[2];
    dl_contribution_data data[2];
    uint64_t sent, received;

    /* The thread's own: */
    dl_store *store; /* aborted by others under the lock */
    dl_slot *slot[2];
    dl_generation generation;
    dl_time heard, hear_at;
    unsigned n_heard;
    dl_beat impostor; /* the last that answered in a member's place and was counted */
    bool untrusted;   /* this node itself, or a node that it does not accept */
    bool reported;    /* the peer has something new since the last fetch */
    dl_want asked;    /* the last fetch */
} dl_line;

struct dl_wire {
    dl_wire_args a;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t keeper;
    bool stopping, said; /* said: the heartbeat is as the node is */
    unsigned noted;      /* members, in this generation */
    dl_line lines[LINES];
    uint64_t sent, received; /* of lines that are gone */
    dl_buf beat;             /* this node's, as text */
    dl_store *home;          /* the keeper's */
};

static inline dl_time dl_time_from_now(dl_time most)
{
    return dl_time_after(dl_clock_now(), most);
}

/* ---- wire.c: another line, unless this address has one; with the lock ---- */
void dl_wire_add_line(dl_wire *w, const char *address);

/* ---- wire_line.c ---- */

/* Return true while the node waits for one that may come any moment. */
bool dl_wire_in_a_hurry(const dl_node *n);
/* Take the addresses that a store lists under hb/; `l`: the line whose store it is, or NULL. */
void dl_line_learn(dl_wire *w, dl_store *store, dl_line *l);
/* Read the peer's heartbeat. Returns false if the peer was silent for too long. */
bool dl_line_listen(dl_line *l);

#endif
