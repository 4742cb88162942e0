/* forecast.h - estimates of a run on a link, before paying for machines: utilisation, time, bytes,
 * requests, cost, for any method of the family over a store.
 *
 * A replica trains `step_s` a step; every sync_every steps each of its P equal fragments is sent,
 * and tau steps later training waits until the result is there. An exchange of a fragment
 * (S bytes encoded, F = 4 bytes a value) over a store, with M replicas (docs/protocol.md P19):
 *
 *   allgather   put S; get (M - 1) * S
 *   leader      put S; (leader: get (M - 1) * S, put F); get F
 *   sharded     put S; get (M - 1) / M * S (slices of S / M); put F / M; get (M - 1) / M * F
 *
 * as over a hub or a bucket, which confirm uploads by checksum (P8). A replica has its link to the
 * store for itself, and up and down are two queues. The store is as fast as asked, and all replicas
 * are equally fast. So the forecast is a floor, which bench and `--replay` compare with runs.
 */
#ifndef DL_PLAN_FORECAST_H
#define DL_PLAN_FORECAST_H

#include "base/config.h"
#include "base/size.h"

/* ---- codecs and methods, as far as planning cares */

typedef struct dl_plan_codec {
    const char *name;
    double bits; /* a value, scales included, framing not; with the codec's usual options */
    double (*bits_with)(const dl_config *config); /* with those of a run; NULL: as many */
} dl_plan_codec;
const dl_plan_codec *dl_plan_codec_at(size_t i); /* NULL after the last */
const dl_plan_codec *dl_plan_codec_find(const char *name);

typedef struct dl_plan_method {
    const char *name;    /* "streaming" */
    const char *preset;  /* that it is a row of */
    const char *summary; /* with its citation */
    const char *codec;   /* of its preset */
    uint32_t sync_every;
    uint32_t
        fragments; /* 0: one for each fragment_layers blocks, and one for what is in no block */
    uint32_t tau;
    bool delayed; /* the overlap is a whole round: tau = sync_every */
} dl_plan_method;
const dl_plan_method *dl_plan_method_at(size_t i); /* NULL after the last */
/* DILOCO_EINVAL: no such method; the known ones are named. */
DL_MUST_CHECK diloco_status dl_plan_method_find(const dl_plan_method **out, const char *name);

/* ---- the question */

typedef enum dl_exchange { DL_ALLGATHER, DL_LEADER, DL_SHARDED, DL_N_EXCHANGES } dl_exchange;
extern const char *const dl_exchange_names[DL_N_EXCHANGES];

typedef struct dl_plan_link {
    double up_bps, down_bps; /* bits per second, of each replica, > 0 */
    double latency_s;        /* of one request */
} dl_plan_link;

/* "50mbit,100ms", "1gbit", "10mbit/50mbit,2s": base/link.h's words, with a rate and without loss.
 * DILOCO_EINVAL names the flag that has the text. */
DL_MUST_CHECK diloco_status dl_plan_link_parse(dl_plan_link *out, const char *flag,
                                               const char *text);

/* A training run to forecast, without the choice of a method. */
typedef struct dl_plan_task {
    double parameters;    /* >= 1 */
    double step_s, steps; /* of each replica; > 0, whole and >= 1 */
    uint32_t replicas;    /* >= 1 */
    dl_plan_link link;
    double heartbeat_s, snapshot_s; /* between two of them; 0: none */
} dl_plan_task;

enum { DL_PLAN_MAX_FRAGMENTS = 4096 };

/* A method with all its numbers. */
typedef struct dl_plan_choice {
    uint32_t sync_every;
    uint32_t fragments; /* at most DL_PLAN_MAX_FRAGMENTS */
    uint32_t tau;       /* below sync_every, or equal to it: a whole round later */
    double bits;
    dl_exchange exchange;
} dl_plan_choice;

/* The largest interval between exchanges that is sensible in a run of that length: half of it, so
 * that there are at least two exchanges; at least 1. */
uint32_t dl_plan_most_interval(const dl_plan_task *task);

/* The method's own values for a model of `layers` layers. */
dl_plan_choice dl_plan_default(const dl_plan_method *method, uint32_t layers,
                               uint32_t fragment_layers);

/* ---- the answer */

/* One exchange of one fragment. */
typedef struct dl_plan_exchange {
    double written, read;  /* bytes, of all replicas together */
    double sent, received; /* bytes, of the replica that moves most */
    double put, get;       /* requests of all; lists count as puts, as they are sold */
    double requests;       /* one after another on the longest path */
} dl_plan_exchange;
dl_plan_exchange dl_plan_exchange_of(const dl_plan_task *task, const dl_plan_choice *choice);

/* Prices of a provider, as quoted on `date`. */
typedef struct dl_prices {
    char date[32], currency[8];
    double egress_per_gb, ingress_per_gb; /* decimal GB read from and written to the store */
    double put_per_1000, get_per_1000;
    double machine_hour;
    unsigned missing; /* bit i: the user's table lacks the row i (cli/plan/plan_prices.c) */
} dl_prices;

typedef struct dl_forecast {
    double utilization, wall_s;
    double bits_sent, bits_received;                /* of a replica, in the run */
    double peak_bits;                               /* a replica sends in one exchange */
    double bytes_written, bytes_read, n_put, n_get; /* of the store, snapshots and heartbeats too */
    double cost;                                    /* 0 without prices */
} dl_forecast;

/* prices may be NULL. */
dl_forecast dl_plan_forecast(const dl_plan_task *task, const dl_plan_choice *choice,
                             const dl_prices *prices);

/* dl_plan_add_background adds snapshots and heartbeats to f, whose wall_s and bytes_written are
 * set.
 */
void dl_plan_add_background(dl_forecast *f, const dl_plan_task *task);

/* The exchange that moves the fewest bytes (written + read). */
dl_exchange dl_plan_cheapest(const dl_plan_task *task, dl_plan_choice choice);

#endif
