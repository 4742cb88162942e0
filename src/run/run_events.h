/* run_events.h - the run's part of the record (docs/architecture.md section 9), as JSON lines. */
#ifndef DL_RUN_RUN_EVENTS_H
#define DL_RUN_RUN_EVENTS_H

#include "exchange/exec.h"
#include "log/traffic.h"
#include "log/zstd_text.h"
#include <diloco/run.h>

#include <pthread.h>

/* The sink gets lines at once, and the store's rec/ gets them in parts. */
/* The sink is called on one thread, that of dl_record_init. Lines of other threads wait for
 * dl_record_deliver. */
typedef struct dl_record {
    diloco_record_fn sink;
    void *user;
    pthread_t owner;
    pthread_mutex_t lock;     /* guards the fields below, except lines being written */
    dl_buf line, line_beside; /* being written: by the owner, by another thread */
    dl_buf late, delivering;  /* lines of the other thread for the sink */
    dl_buf part;              /* lines that are not in the store yet */
    dl_buf sending;           /* lines being uploaded; used by the exchange's thread */
    dl_zipper *zipper;        /* also used by it; NULL: out of memory, so nothing is uploaded */
    uint64_t n_parts;
    dl_time flushed;
    bool warned_full; /* of lines that are lost, since `part` was empty */
} dl_record;

void dl_record_init(dl_record *record);
void dl_record_deinit(dl_record *record);

/* Gives the lines of the other thread to the sink. The owner calls it. */
void dl_record_deliver(dl_record *record);

/* Adds one finished line, without its newline. */
void dl_record_line(dl_record *record, const char *line, size_t len);

/* Uploads the gathered lines to rec/ if they are many or old, or if `all`. Lines that could not be
 * uploaded are kept for the next call, and dropped with a warning if they are many. So the record
 * never stops a run. */
void dl_record_flush(dl_record *record, dl_store *store, const dl_generation *generation, bool all,
                     dl_time until);

typedef struct dl_event_context {
    const char *replica;
    const char *codec;
    double wait_s, exchange_s, deadline_s;
    dl_store_speed speed;
    uint64_t bytes_sent, bytes_received; /* since the last commit's line */
    /* since the last commit's line, as a provider bills them */
    uint64_t requests_read, requests_write;
    bool peers; /* run.peers; then, of contributions, since the last commit's line: */
    uint64_t from_peers, from_store;
    uint64_t step;
    const double *norms; /* commit: [n_members] of its members; NaN: not read here */
    float lr;            /* commit: its outer learning rate */
} dl_event_context;

/* Writes the outer loop's settings as members of the open object. */
void dl_event_put_outer(dl_json *j, const dl_config *config);

void dl_event_run(dl_record *r, const dl_runfile *run, const dl_generation *generation,
                  uint64_t entry, dl_topology_kind topology);
void dl_event_contribution(dl_record *r, const dl_event_context *c, uint64_t entry,
                           const dl_own_facts *facts);
void dl_event_commit(dl_record *r, const dl_event_context *c, const dl_entry *entry,
                     const dl_roster *roster, const dl_exec_facts *facts, bool counted);

/* The adoption of a contribution that was uploaded during training. */
typedef struct dl_adopt_facts {
    uint64_t entry, taken_at, position; /* positions of its due point and of its adoption */
    uint32_t fragment;
    const char *takes;          /* "mix", "theta" or "nothing" */
    double wait_s;              /* seconds that training waited for it */
    uint64_t overlap, proposed; /* this replica's tau, and the one that upload_latency.h proposes */
} dl_adopt_facts;
void dl_event_adopt(dl_record *r, const char *replica, const dl_adopt_facts *facts);
void dl_event_abort(dl_record *r, const dl_event_context *c, const dl_entry *entry);
void dl_event_dispute(dl_record *r, const dl_event_context *c, uint64_t entry, dl_hash claimed,
                      dl_hash computed, const dl_generation *committer, const char *what);
/* Writes the results of check.probe that this replica measured before it drafted the entry. */
void dl_event_probe(dl_record *r, const dl_event_context *c, const dl_entry *entry,
                    const double *probed);
/* Write a contribution that this replica rejects, and one that a commit rejects. */
void dl_event_judged(dl_record *record, const dl_entry *entry, const dl_generation *generation,
                     const char *reason);
void dl_event_reject(dl_record *r, const dl_event_context *c, uint64_t entry,
                     const dl_generation *generation, const char *reason);
/* Writes that a contribution came from the store, and why not from its owner (peers.h). */
void dl_event_peer(dl_record *r, const dl_event_context *c, uint64_t entry,
                   const dl_generation *generation, const char *reason);
void dl_event_warn(dl_record *r, const dl_event_context *c, const char *code, const char *text);

/* Writes all bytes that this process has moved for the run so far, by kind. */
void dl_event_traffic(dl_record *r, const char *replica, const uint64_t sent[DL_N_TRAFFIC],
                      const uint64_t received[DL_N_TRAFFIC]);

typedef struct dl_end_facts {
    uint64_t entry, n_floats;
    uint64_t steps; /* of all generations; everything else is of this one */
    uint64_t generation_steps, tokens;
    uint64_t bytes_sent, bytes_received;           /* by the exchange */
    uint64_t background_sent, background_received; /* snapshots and heartbeats */
    uint64_t heartbeats;
    double heartbeat_s_max; /* the longest that one took */
    double utilization;
    double throughput_ratio; /* of the throughput without an exchange; 0: not known */
    dl_hash digest;
} dl_end_facts;
void dl_event_end(dl_record *r, const dl_event_context *c, const dl_end_facts *facts);

#endif
