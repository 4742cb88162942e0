/* exec_parts.h - what a dl_exec is: shared by exec.c, capture.c, contribute.c, fetch.c and
 * combined.c, for nobody else. */
#ifndef DL_EXCHANGE_EXEC_PARTS_H
#define DL_EXCHANGE_EXEC_PARTS_H

#include "exchange/exec.h"
#include "exchange/keyring.h"
#include "exchange/probing.h"
#include "log/slices.h"
#include "protocol/judge.h"
#include "state/collection.h"

#define DL_ELEMENT_BOUND 1e18f /* so that no sum or product of elements overflows */

/* What was taken for an entry; a slot is free again once the entry is adopted. */
typedef struct dl_capture {
    bool there, restored; /* restored: by a former life, and perhaps put by it */
    uint64_t entry;
    uint32_t fragment;
    float *g;                /* f32 of the largest fragment: what is encoded, the residual added */
    unsigned char *discrete; /* its integers, then its booleans */
    dl_train_stats stats;
    dl_hash base;
    dl_dealt dealt;
    double norm;  /* of the movement, without the residual */
    dl_hash body; /* of the contribution that it became; the exchange's */
    bool vouched; /* the store has it there as it was sent (dl_store_vouches), slices and all */
} dl_capture;

/* What was put ahead, whole: who sends it needs nothing else, and changes nothing else. */
typedef struct dl_sent {
    uint64_t entry;
    dl_life life;
    unsigned char header[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
    unsigned char *payload, *discrete; /* NULL: nothing is put ahead but waited for */
    dl_slicing slicing;                /* n 0: it is whole; else slices go first, and then … */
    dl_hash table[DL_SLICES_MAX];      /* … the table of their digests */
    dl_span spans[3];
    size_t n_spans;
    bool vouched; /* the sender's, as facts.put_s */
    dl_own_facts facts;
} dl_sent;

/* The own contribution that lies in `payload` and `spans`, the first of which is the header. */
typedef struct dl_made {
    uint64_t entry_and_1; /* 0: none, what was there is overwritten */
    size_t n_spans;
    unsigned char header[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
} dl_made;

/* Slices of a combined update that were read into combined_slot. */
typedef struct dl_gathered {
    uint64_t entry;
    dl_life planner;
    bool have[DL_SLICES_MAX], agreed[DL_SLICES_MAX]; /* agreed: all of its owners */
    dl_hash digest[DL_SLICES_MAX];
    bool disputed; /* owners differ: the plan comes to nothing */
} dl_gathered;

enum { DL_SERVED_MAX = 16 };
typedef struct dl_served {
    uint64_t entry;
    dl_life planner;
} dl_served;

/* Which slice of a plan's members the slots hold; a FETCH puts something else there. */
typedef struct dl_sliced {
    bool there;
    dl_served plan;
    size_t slice;
} dl_sliced;

/* Slices of a plan that this replica has combined and put first of all their owners: what is in
 * `serving` of them; vouched: the store has it so. */
typedef struct dl_own_slices {
    dl_served plan;
    bool vouched[DL_SLICES_MAX];
    dl_hash digest[DL_SLICES_MAX];
} dl_own_slices;

/* What check.* asks of members whom nobody reads whole (sharded_measure.c). */
typedef struct dl_compared {
    double *numbers; /* of the slices of a plan; NULL: nothing is asked */
    dl_known *rows;  /* [max_members] */
    dl_judge judge;
    dl_arena arena; /* its room */
} dl_compared;

/* The trainer's side: what is captured at due points, and where a round began (capture.c). */
typedef struct dl_capture_part {
    dl_local_tensor *local; /* [n_tensors], fragment by fragment, region by region */
    size_t *tensor_of;      /* [n_tensors] local[i] is this one of the manifest */
    size_t *first;          /* [n_fragments + 1] into local */
    dl_capture *at;         /* [n] entry e in e mod n */
    size_t n;
    bool shares_next;     /* the one capture is in the state's free copy */
    bool keeps_under_way; /* captures are saved with the local state */
    bool unpacked;        /* what is in flight rests on the state that is loaded next */
    unsigned char *heads; /* [n] of DL_CONTRIBUTION_HEADER: what to save of a capture beside its
                           * arrays, as the header of what it becomes; zeros: no capture */
    /* f32 of all fragments, fragment f from f32_at[f] on; NULL: the run has none */
    size_t *f32_at;      /* [n_fragments + 1] */
    float *residual;     /* of error feedback */
    float *start;        /* where the round began: theta is further when it ends */
    dl_hash *start_base; /* [n_fragments] digest of the state that it began on */
    float *own_momentum; /* of this replica's own shares (eager) */
    float *share;        /* f32 of the largest fragment: its newest share, decoded (eager) */
    unsigned char *share_payload;
    dl_exec_private privates[DL_EXEC_MAX_PRIVATES];
    size_t n_privates;
} dl_capture_part;

/* Encoding and putting an own contribution (contribute.c). */
typedef struct dl_upload_part {
    unsigned char *payload; /* gap, then the room of the largest form */
    size_t gap;
    dl_span *spans;               /* header, payload, integers and booleans */
    dl_hash table[DL_SLICES_MAX]; /* of the contribution that was made last */
    dl_made made;
    bool pipelined; /* `sent` has arrays: a contribution may be put without waiting for it */
    dl_sent sent;
    uint32_t claimed; /* the latest generation that this process has tried to claim; 0: none */
    bool contributed; /* in this generation: former ones have nothing open any more */
} dl_upload_part;

/* Finding and reading contributions and heartbeats (listing.c, fetch.c). */
typedef struct dl_collect_part {
    size_t n_slots;
    dl_slot **slots;            /* [n_slots], NULL until needed */
    dl_contribution_data *held; /* [n_slots] */
    dl_listed *listed;          /* [n_slots] */
    size_t n_listed;
    dl_seen *seen; /* [cap_seen] */
    size_t n_seen, cap_seen;
    dl_contribution fetched;
    uint64_t disputed; /* contributions to entries below are read from the store alone: a REJOIN
                        * means that what was applied here may not be what the store has */
    struct dl_fetchers *fetchers;
    struct dl_lister *lister;
} dl_collect_part;

typedef diloco_status (*dl_exec_fn)(dl_exec *x, const dl_request *request, dl_reply *reply,
                                    dl_time until);

/* What an exchange topology (P19) makes of the requests, one file each: allgather.c, combined.c
 * (leader) and sharded.c. A member that is NULL is never asked for. */
typedef struct dl_exec_topology {
    diloco_status (*prepare)(dl_exec *x); /* memory, behind slots and forms */
    /* How a contribution is cut before it is put. NULL: it is whole. */
    dl_slicing (*slicing)(const dl_exec *x, uint32_t fragment);
    dl_exec_fn serve;   /* DL_REQUEST_SERVE */
    dl_exec_fn collect; /* DL_REQUEST_FETCH_COMBINED */
    dl_exec_fn combine; /* DL_REQUEST_COMBINE, of a planner and of an audit */
} dl_exec_topology;
extern const dl_exec_topology dl_exec_allgather, dl_exec_leader, dl_exec_sharded;
const dl_exec_topology *dl_exec_topology_of(dl_way way);

/* Combining for other replicas, or using what another has combined (combined.c, sharded.c). */
typedef struct dl_combine_part {
    dl_way way;
    const dl_exec_topology *topology;
    dl_codec_form *plain; /* [n_fragments] of combined updates; NULL: every replica combines */
    dl_slot *slot;        /* of the update that was combined or fetched last; NULL: none yet */
    bool here;            /* it was combined here, and facts.outer describes its members */
    bool vouched;         /* the store has confirmed it */
    uint64_t *slices;     /* [n_fragments]; NULL: nothing is cut */
    size_t n_owners;      /* of each slice */
    dl_gathered gathered;
    dl_served served[DL_SERVED_MAX]; /* a ring: plans that were seen to */
    size_t n_served;
    double *measures;   /* of the slices of a plan; NULL: the rule measures nothing */
    dl_served measured; /* the plan for which this replica has put its measures */
    dl_compared compared;
    dl_sliced sliced;
    dl_slot *serving; /* what is combined for others; NULL: nothing yet */
    dl_own_slices own;
} dl_combine_part;

/* Judging members, and the outer step (exec.c). */
typedef struct dl_apply_part {
    dl_contribution_data *members; /* [max_members] of the step, in order */
    float *weight;                 /* [max_members] */
    uint64_t *raw;                 /* [max_members] */
    dl_outer_scratch *scratch;
    dl_probing *probing; /* NULL: nothing is measured */
    double *probed;      /* [1 + max_members] what it measured last */
    dl_collector collector;
    bool loaded; /* a state, by a REJOIN */
} dl_apply_part;

/* What depends on the mode of the run (exec_mode.c). */
typedef struct dl_exec_mode {
    bool keeps_under_way; /* captures in flight are saved, and a resume continues with them */
    bool may_share_next;  /* no entry of others is computed between a capture and its upload */
    bool may_send_values; /* contributions may hold values instead of movements */
    bool reads_speeds;    /* WATCH reads the steps per second from heartbeats */
    bool names_bases;     /* contributions are named by their base, not by their entry */
    bool forgets_junk;    /* a later entry forgets which objects were junk */
    bool (*is_of_use)(const dl_exec *x, const dl_listed *o);     /* optional: each one is */
    uint64_t (*oldest)(const dl_exec *x, uint64_t own);          /* optional: the first */
    uint64_t (*last_position)(const dl_exec *x, uint64_t entry); /* optional: positions differ */
} dl_exec_mode;
const dl_exec_mode *dl_exec_mode_of(const dl_schedule *schedule, const dl_config *config);

struct dl_exec {
    dl_exec_args a;
    dl_state state;
    dl_keyring *ring;     /* NULL: nothing is signed */
    dl_codec_form *forms; /* [n_fragments] */
    dl_packer *packer;    /* NULL: payloads are sent as they are */
    dl_schedule schedule;
    const dl_exec_mode *mode;
    dl_decisions decisions; /* for a replay: of an operator */
    dl_exec_facts facts;
    dl_buf text;    /* scratch: an object that is read or written whole */
    dl_entry entry; /* scratch: an older entry, or a plan */
    dl_arena arena;

    dl_capture_part capture;
    dl_upload_part upload;
    dl_collect_part collect;
    dl_combine_part combine;
    dl_apply_part apply;
};

/* capture.c: the capture of an entry, or NULL. */
dl_capture *dl_exec_captured(const dl_exec *x, uint64_t entry);
/* capture.c: the entry counted a contribution of this replica, with that body: the residual moves
 * on (P17). */
void dl_exec_settle(dl_exec *x, const dl_request *swap);
/* capture.c: the residual becomes what encoding this leaves out; nothing without error feedback.
 * Overwrites the payload. */
void dl_exec_leave_out(dl_exec *x, const dl_capture *capture);
/* capture.c: the state is another one: what was taken from the one before is nothing. */
void dl_exec_forget(dl_exec *x);
void dl_exec_clear_residual(dl_exec *x); /* nothing without error feedback */

/* fetch.c: DL_REQUEST_FETCH; what was read ahead for such is as nothing. */
typedef struct dl_fetchers dl_fetchers;
DL_MUST_CHECK diloco_status dl_fetchers_create(dl_exec *x); /* behind slots and packer */
void dl_fetchers_destroy(dl_exec *x);
DL_MUST_CHECK diloco_status dl_exec_fetch(dl_exec *x, const dl_request *request, dl_reply *reply,
                                          dl_time until);
void dl_exec_forget_fetched(dl_exec *x);
float dl_exec_element_bound(const dl_exec *x); /* largest size that is taken */
DL_MUST_CHECK diloco_status dl_exec_make_slot(dl_exec *x, size_t i); /* unless it is there */
/* fetch.c: fn(context, store, i) for each i below n, on as many threads as there are fetchers, each
 * with a handle of its own; the error of the first that failed. */
typedef diloco_status (*dl_errand_fn)(void *context, dl_store *store, size_t i);
DL_MUST_CHECK diloco_status dl_fetchers_run(dl_exec *x, size_t n, dl_errand_fn fn, void *context);

/* listing.c: DL_REQUEST_LIST. */
typedef struct dl_lister dl_lister;
DL_MUST_CHECK diloco_status dl_lister_create(dl_exec *x); /* behind slots and keyring */
void dl_lister_destroy(dl_exec *x);
DL_MUST_CHECK diloco_status dl_exec_list(dl_exec *x, const dl_request *request, dl_reply *reply,
                                         dl_time until);
/* … that object has the name of a generation of its replica and is not signed by its key. */
void dl_exec_note_forged(dl_exec *x, uint64_t entry, const dl_life *life);

/* sharded_publish.c: a fragment's slices; n 0: contributions are whole. */
dl_slicing dl_exec_slicing(const dl_exec *x, uint32_t fragment);
void dl_measures_deinit(dl_exec *x); /* sharded_measure.c */
/* … the table of an own contribution's digests, from payload and integers; its bytes; and putting
 * the slices before it: one after the other, or several at once. */
size_t dl_exec_make_table(dl_exec *x, uint32_t fragment, unsigned char *discrete);
typedef struct dl_slices_put {
    dl_slicing slicing;
    uint64_t entry;
    dl_life life;
    unsigned char *payload, *discrete;
    dl_time until;
    bool vouched[DL_SLICES_MAX]; /* out: the store has the slice as it was sent */
} dl_slices_put;
DL_MUST_CHECK diloco_status dl_slices_send(dl_slices_put *p, dl_store *store);
bool dl_slices_are_vouched(const dl_slices_put *p);                           /* all of them */
DL_MUST_CHECK diloco_status dl_exec_put_slices(dl_exec *x, dl_slices_put *p); /* by the fetchers */
/* sharded.c: */
dl_hash dl_exec_slices_digest(dl_exec *x, uint32_t fragment); /* of the update that is held */

/* exec.c: the key that signs what a replica puts; NULL where nothing is signed. DILOCO_EPROTO with
 * *reason: it has none. */
DL_MUST_CHECK diloco_status dl_exec_key_of(const dl_public **out, const char **reason, dl_exec *x,
                                           const char *replica, dl_time until);

/* exec.c: of COMBINE and COMPUTE: draft's members from the request's slots. */
dl_outer_step_args dl_exec_step_args(dl_exec *x, const dl_request *request);

/* combined.c: the slot of a combined update and its parts; its forms; combining into the slot; and
 * the step with what the slot holds. */
DL_MUST_CHECK diloco_status dl_exec_make_combined_slot(dl_exec *x, dl_slot **slot);
dl_combined dl_exec_combined_parts(const dl_exec *x, dl_slot *slot, uint32_t fragment);
DL_MUST_CHECK diloco_status dl_exec_prepare_combined(dl_exec *x);
DL_MUST_CHECK diloco_status dl_exec_combine_here(dl_exec *x, const dl_request *request);
DL_MUST_CHECK diloco_status dl_exec_compute_combined(dl_exec *x, dl_fragment_state *next,
                                                     const dl_request *request);

/* contribute.c: do this run's clients send values in place of movements (clients.payload)? */
bool dl_exec_sends_values(const dl_exec *x);

/* contribute.c: DL_REQUEST_CONTRIBUTE. What was not taken is contributed as nothing, so that nobody
 * waits for it. DILOCO_EFENCED: another process lives as this life. In a run of keys, where the
 * name holds junk, this replica goes on as a later generation (dl_exec_self). */
DL_MUST_CHECK diloco_status dl_exec_contribute(dl_exec *x, const dl_request *request,
                                               dl_reply *reply, dl_time until);
/* contribute.c: as dl_contribution_fetch, of what this life put and the store vouches for (P8): the
 * bytes as they were sent, or else made again. false: it is none of that, and is to be read. */
bool dl_exec_recall(dl_exec *x, dl_contribution *facts, dl_contribution_data *data, dl_slot *slot,
                    const dl_request *request, const dl_contribution_expect *expect);

#endif
