/* run_events.h - the run's part of the record (docs/architecture.md section 9), as JSON lines. */
#ifndef DL_RUN_RUN_EVENTS_H
#define DL_RUN_RUN_EVENTS_H

#include "exchange/exec.h"
#include "log/traffic.h"
#include "log/zstd_text.h"
#include <diloco/run.h>

#include <pthread.h>

/* Where lines go: the program's sink at once, and the store's rec/ in parts. */
/* The sink is called on one thread, that of dl_record_init; lines of another wait for
 * dl_record_deliver. */
typedef struct dl_record {
    diloco_record_fn sink;
    void *user;
    pthread_t owner;
    pthread_mutex_t lock;     /* guards what follows but for the lines being written */
    dl_buf line, line_beside; /* being written: by the owner, by another thread */
    dl_buf late, delivering;  /* lines of the other thread for the sink */
    dl_buf part;              /* lines not in the store yet */
    dl_buf sending;           /* … and those on their way; the exchange's thread */
    dl_zipper *zipper;        /* its; NULL: no memory, and nothing goes to the store */
    uint64_t n_parts;
    dl_time flushed;
} dl_record;

void dl_record_init(dl_record *record);
void dl_record_deinit(dl_record *record);

/* The lines of the other thread, to the sink. The owner's call. */
void dl_record_deliver(dl_record *record);

/* One finished line, without its newline. */
void dl_record_line(dl_record *record, const char *line, size_t len);

/* Put what has gathered under rec/ if there is much of it, or it is old, or `all`. What the
 * store does not take is kept for the next time, and dropped with a warning when it is much:
 * the record never stops a run. */
void dl_record_flush(dl_record *record, dl_store *store, const dl_life *life, bool all,
                     dl_time until);

typedef struct dl_event_context {
    const char *replica;
    const char *codec;
    double wait_s, exchange_s, deadline_s;
    dl_store_speed speed;
    uint64_t bytes_sent, bytes_received;    /* since the last commit's line */
    uint64_t requests_read, requests_write; /* likewise, as a provider bills them */
    bool peers;                             /* run.peers; then of contributions, likewise: */
    uint64_t from_peers, from_store;
    uint64_t step;
    const double *norms; /* commit: [n_members] of its members; NaN: not read here */
    float lr;            /* … its outer learning rate */
} dl_event_context;

/* The outer loop's settings, as members of the open object. */
void dl_event_put_outer(dl_json *j, const dl_config *config);

void dl_event_run(dl_record *r, const dl_runfile *run, const dl_life *life, uint64_t entry,
                  dl_way way);
void dl_event_contribution(dl_record *r, const dl_event_context *c, uint64_t entry,
                           const dl_own_facts *facts);
void dl_event_commit(dl_record *r, const dl_event_context *c, const dl_entry *entry,
                     const dl_roster *roster, const dl_exec_facts *facts, bool counted);

/* Where contributions move beside training: what became of one, and what ran in between. */
typedef struct dl_adopt_facts {
    uint64_t entry, taken_at, position; /* positions of its due point and of its adoption */
    uint32_t fragment;
    const char *takes;          /* "mix", "theta" or "nothing" */
    double wait_s;              /* that training waited for it */
    uint64_t overlap, proposed; /* this replica's tau, and the one that upload_latency.h proposes */
} dl_adopt_facts;
void dl_event_adopt(dl_record *r, const char *replica, const dl_adopt_facts *facts);
void dl_event_abort(dl_record *r, const dl_event_context *c, const dl_entry *entry);
void dl_event_dispute(dl_record *r, const dl_event_context *c, uint64_t entry, dl_hash claimed,
                      dl_hash computed, const dl_life *committer, const char *what);
/* check.probe: what this replica has measured before it drafted the entry. */
void dl_event_probe(dl_record *r, const dl_event_context *c, const dl_entry *entry,
                    const double *probed);
/* … and one that a commit rejects. */
void dl_event_judged(dl_record *record, const dl_entry *entry, const dl_life *life,
                     const char *reason);
void dl_event_reject(dl_record *r, const dl_event_context *c, uint64_t entry, const dl_life *life,
                     const char *reason);
/* A contribution that came from the store, and why not from its owner (peers.h). */
void dl_event_peer(dl_record *r, const dl_event_context *c, uint64_t entry, const dl_life *life,
                   const char *reason);
void dl_event_warn(dl_record *r, const dl_event_context *c, const char *code, const char *text);

/* All bytes that this process has moved for the run so far, by kind. */
void dl_event_traffic(dl_record *r, const char *replica, const uint64_t sent[DL_N_TRAFFIC],
                      const uint64_t received[DL_N_TRAFFIC]);

typedef struct dl_end_facts {
    uint64_t entry, n_floats;
    uint64_t steps; /* of all lives; all else is of this one */
    uint64_t life_steps, tokens;
    uint64_t bytes_sent, bytes_received;           /* by the exchange */
    uint64_t background_sent, background_received; /* snapshots and heartbeats */
    uint64_t heartbeats;
    double heartbeat_s_max; /* the longest that one took */
    double utilization;
    double throughput_ratio; /* of what it reaches with no exchange; 0: not known */
    dl_hash digest;
} dl_end_facts;
void dl_event_end(dl_record *r, const dl_event_context *c, const dl_end_facts *facts);

#endif
