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
#define WARM  (60 * DL_SECOND) /* between requests of an idle connection; a hub's limit is 120 s */

/* The next object to fetch, and the member that it is of. */
typedef struct dl_line_task {
    dl_want want;
    size_t member;
    dl_generation generation;
} dl_line_task;

/* One address, with two connections, each of a thread of its own: the fetcher reads objects, the
 * listener heartbeats. The lock guards the first part; see wire.c for facts and data. Arrays of two
 * have the contribution first, and the model to agree on second. */
typedef struct dl_line {
    dl_wire *wire;
    pthread_t thread; /* the fetcher */
    bool used, ended; /* the place is taken; its threads are over, and the fetcher can be joined */
    bool over;        /* its threads have to end */
    char address[DL_ADDRESS_MAX + 1];
    size_t member; /* of the node; NOBODY: not known yet, or another line is its line now */
    dl_generation generation; /* of that member */
    bool met;                 /* a member that the keeper has not noted yet: */
    dl_beat beat;
    dl_contribution facts[2];
    dl_contribution_data data[2];
    dl_store *store, *ear; /* the fetcher's and the listener's; aborted by others */
    uint64_t sent[2], received[2];
    dl_line_task task; /* that the fetcher is at; of DL_OBJECT_NONE: none */
    bool withdrawn;    /* the store was aborted because that object is not wanted any more */

    /* The fetcher's own: */
    dl_slot *slot[2];

    /* The listener's own: */
    dl_time heard, hear_at;
    unsigned n_heard;
    dl_beat impostor; /* the last that answered in a member's place and was counted */
    bool untrusted;   /* this node itself, or a node that it does not accept */
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

/* ---- wire.c */

/* Adds another line, unless this address has one. Call it without the lock. */
void dl_wire_add_line(dl_wire *w, const char *address);
/* Opens a store of the peer at *out, so that dl_wire_destroy() can abort it. */
DL_MUST_CHECK diloco_status dl_line_open(dl_line *l, dl_store **out, bool holds);
/* Reports that the node has changed, without a new heartbeat: wakes the threads, and ends the fetch
 * of each object that is no longer wanted. With the lock. */
void dl_wire_wake(dl_wire *w);
/* Notes the traffic of a store: 0 is the fetcher's, 1 the listener's. With the lock. */
void dl_line_count(dl_line *l, int which, const dl_store *store);

/* ---- wire_line.c ---- */

/* Return true while the node waits for one that may come any moment. */
bool dl_wire_in_a_hurry(const dl_node *n);
/* Take the addresses that a store lists under hb/, from the name `first` on, for at most ASK. own:
 * it is this node's. */
void dl_line_learn(dl_wire *w, dl_store *store, size_t first, bool own);
/* The listener's thread: reads the peer's heartbeats until the line is over, or the peer was silent
 * for too long. Ends the line then. */
void *dl_line_listen(void *line);

#endif
