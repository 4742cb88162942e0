/* request.h - the requests of a machine (machine.h) and the replies to them. */
#ifndef DL_PROTOCOL_REQUEST_H
#define DL_PROTOCOL_REQUEST_H

#include "log/contribution.h"
#include "log/entry.h"

typedef struct dl_machine dl_machine;

typedef enum dl_request_kind {
    /* wait until the trainer has captured `entry` or was skipped: look at the pace */
    DL_REQUEST_TRAIN,
    DL_REQUEST_READ, /* read log/<entry> */
    /* count the entries from `entry` on that exist without a gap, and find the newest snapshot of
     * more entries, by one listing of log/ and one of snap/ */
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
const char *dl_request_name(dl_request_kind kind);

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

/* The heartbeats of the roster's present replicas, which have contributed, are left out. Zero: none
 * is left out. */
typedef struct dl_watch_request {
    const dl_roster *roster;
    const bool *present; /* [roster->n] */
} dl_watch_request;

typedef struct dl_snapshot_request {
    bool final; /* at the end of the run: not in the background */
} dl_snapshot_request;

typedef struct dl_rejoin_request {
    bool voided; /* `entry` is void now, even if what it counts can be read */
    bool newer;  /* the newest snapshot spares most of a long backlog */
} dl_rejoin_request;

typedef struct dl_fail_request {
    diloco_status status;
} dl_fail_request;

typedef struct dl_request {
    dl_request_kind kind;
    uint64_t entry;    /* FETCH, CONTRIBUTE: the entry in the contribution's name */
    uint32_t fragment; /* of `entry` */
    union {            /* TRAIN, READ, SERVE and DONE have no more fields */
        dl_extent_request extent;
        dl_contribute_request contribute;
        dl_list_request list;
        dl_fetch_request fetch;
        dl_judge_request judge;
        dl_step_request step;
        dl_swap_request swap;
        dl_wait_request wait;
        dl_watch_request watch;
        dl_snapshot_request snapshot;
        dl_rejoin_request rejoin;
        dl_fail_request fail;
    };
} dl_request;

/* A heartbeat as seen: its replica's generation, and a hash of its content. */
typedef struct dl_seen {
    dl_generation generation;
    dl_hash content;
    uint64_t beat; /* of a signed one: it counts up, from 1; 0: the content decides */
    bool ended;    /* the end object of that generation exists, and in a run with keys is signed */
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
    uint64_t n;      /* entries that exist, at most `most` */
    uint64_t newest; /* entries of the newest snapshot that has more than `entry`; 0: none has */
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

#endif
