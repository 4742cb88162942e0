/* exec_parts.h - the structure of dl_exec, which only the source files of this folder use. */
#ifndef DL_EXCHANGE_EXEC_PARTS_H
#define DL_EXCHANGE_EXEC_PARTS_H

#include "base/rng.h"
#include "exchange/exec.h"
#include "exchange/probing.h"
#include "log/beating.h"
#include "log/keyring.h"
#include "log/slices.h"
#include "protocol/judge.h"
#include "state/collection.h"

#include <pthread.h>
#include <stdatomic.h>

#define DL_ELEMENT_BOUND 1e18f /* so that no sum or product of elements overflows */

/* A copy of a fragment's movement, taken for one entry. Its slot is free again once that entry is
 * adopted. */
typedef struct dl_capture {
    bool there, restored; /* restored: an earlier generation made it, and perhaps uploaded it */
    uint64_t entry;
    uint32_t fragment;
    float *g;     /* f32 of the largest fragment: the values to encode, with the residual added */
    bool encoded; /* a device made `payload`, which has the values in the codec's form */
    unsigned char *payload;  /* of the largest bound; NULL: no device encodes */
    unsigned char *discrete; /* its integers, then its booleans */
    dl_train_stats stats;
    dl_hash base;
    dl_assigned assigned;
    double norm;  /* of the movement, without the residual */
    dl_hash body; /* of the contribution made from it; only the exchange's thread uses it */
    /* the store confirmed the upload by checksum (dl_store_vouches), slices included */
    bool confirmed;
} dl_capture;

/* A complete contribution for a pipelined upload. The uploading thread reads nothing else and
 * changes only `confirmed` and `facts`. */
typedef struct dl_sent {
    uint64_t entry;
    dl_generation generation;
    unsigned char header[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
    unsigned char *payload, *discrete; /* NULL: uploads are not pipelined */
    /* n 0: not sliced. Otherwise the slices are uploaded first, then `table`. */
    dl_slicing slicing;
    dl_hash table[DL_SLICES_MAX]; /* digests of the slices */
    dl_span spans[3];
    size_t n_spans;
    bool confirmed; /* written by the uploading thread, as facts.put_s */
    dl_own_facts facts;
} dl_sent;

/* The own contribution in `payload` and `spans`; the first span is the header. */
typedef struct dl_made {
    uint64_t entry_and_1; /* 0: not made yet, or overwritten */
    size_t n_spans;
    unsigned char header[DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF];
} dl_made;

/* Slices of a combined update that were read into the slot of combined updates. */
typedef struct dl_gathered {
    uint64_t entry;
    dl_generation planner;
    bool have[DL_SLICES_MAX], agreed[DL_SLICES_MAX]; /* agreed: all owners of the slice agree */
    dl_hash digest[DL_SLICES_MAX];
    bool disputed; /* owners of a slice differ, so the plan yields no update */
} dl_gathered;

enum { DL_SERVED_MAX = 16 };
/* One plan: its entry, and the replica that wrote it. */
typedef struct dl_served {
    uint64_t entry;
    dl_generation planner;
} dl_served;

/* The slice of a plan's members that the slots hold now. A FETCH overwrites it. */
typedef struct dl_sliced {
    bool there;
    dl_served plan;
    size_t slice;
} dl_sliced;

/* The slices of a plan that this replica combined as their first owner; `serving`
 * holds their values. confirmed: the store confirmed the upload. */
typedef struct dl_own_slices {
    dl_served plan;
    bool confirmed[DL_SLICES_MAX];
    dl_hash digest[DL_SLICES_MAX];
} dl_own_slices;

/* The checks of the options check.* on members that no replica reads whole (sharded_measure.c). */
typedef struct dl_compared {
    double *numbers;    /* of the slices of a plan; NULL: nothing is checked */
    dl_candidate *rows; /* [max_members] */
    dl_judge judge;
    dl_arena arena; /* memory of the above */
} dl_compared;

/* The trainer's half: captures at due points, and the start of a round (capture.c). */
typedef struct dl_capture_part {
    dl_local_tensor *local; /* [n_tensors], fragment by fragment, region by region */
    size_t *tensor_of;      /* [n_tensors] local[i] is this one of the manifest */
    size_t *first;          /* [n_fragments + 1] into local */
    dl_capture *at;         /* [n] entry e in e mod n */
    size_t n;
    bool shares_next;     /* the one capture is in the state's free copy */
    bool keeps_in_flight; /* captures are saved with the local state */
    bool in_flight;       /* there is one to save */
    void **copies;        /* [n_tensors] dl_exec_copy_to's places; NULL: none */
    bool encodes;         /* the device encodes captures */
    bool *away;     /* [n] only the device has the values. Only the trainer's thread uses it */
    size_t largest; /* elements of the largest fragment */
    bool unpacked;  /* captures in flight belong to the state that is loaded next */
    /* [n] of DL_CONTRIBUTION_HEADER bytes: a capture's facts in the form of its contribution's
     * header, saved beside its arrays. Zeros: no capture. */
    unsigned char *heads;
    double *norm2;            /* [blocks of the largest fragment] of a capture */
    dl_hash *theta_on_device; /* [n_fragments] digest of the state whose theta is there */
    /* f32 of all fragments; fragment f begins at f32_at[f]. NULL: this run does not need it. */
    size_t *f32_at;      /* [n_fragments + 1] */
    float *residual;     /* of error feedback */
    float *start;        /* parameters at the start of the round; theta may be newer when it ends */
    dl_hash *start_base; /* [n_fragments] digest of the state at the start of the round */
    float *own_momentum; /* of this replica's own shares (eager) */
    float *share;        /* f32 of the largest fragment: its newest own share, decoded (eager) */
    unsigned char *share_payload;
    dl_exec_private privates[DL_EXEC_MAX_PRIVATES];
    size_t n_privates;
} dl_capture_part;

/* Encoding and uploading this replica's own contributions (contribute.c). */
typedef struct dl_upload_part {
    unsigned char *payload; /* a gap, then the space for the largest form */
    size_t gap;
    dl_span *spans;               /* header, payload, integers and booleans */
    dl_hash table[DL_SLICES_MAX]; /* of the newest contribution */
    dl_made made;
    bool pipelined; /* `sent` has arrays, so contributions may be uploaded in another thread */
    dl_sent sent;
    uint32_t claimed; /* the latest generation that this process has tried to claim; 0: none */
    bool contributed; /* in this generation, so earlier generations have nothing in flight */
} dl_upload_part;

/* Listing and reading contributions and heartbeats (listing.c, fetch.c). */
/* A replica's heartbeats in a run with keys (watch_signed.c). */
typedef struct dl_beating_row {
    dl_beating of;
    dl_seen seen; /* its last signed heartbeat, if of.beat is not 0 */
} dl_beating_row;

enum { DL_EXEC_SEEN_OTHER = 64 }; /* rows of `beating` for replicas that no entry waits for */
typedef struct dl_collect_part {
    size_t n_slots;
    dl_slot **slots;            /* [n_slots], NULL until needed */
    dl_contribution_data *held; /* [n_slots] */
    dl_listed *listed;          /* [n_slots] */
    size_t n_listed;
    dl_watch_request watched; /* of the look in progress */
    dl_seen *seen;            /* [cap_seen] */
    size_t n_seen, cap_seen;
    size_t n_seen_other;          /* rows of unnamed replicas */
    dl_beating_row *beating;      /* [cap_seen] in a run with keys */
    size_t n_beating, beating_at; /* rows; the one that was found last */
    size_t n_other;               /* rows of replicas that no entry waits for */
    dl_rng drawing;               /* of names that a look reads */
    dl_contribution fetched;
    /* Contributions to earlier entries are read from the store alone. A REJOIN raises it, since the
     * store may hold other bytes than this replica applied. */
    uint64_t disputed;
    struct dl_fetchers *fetchers;
    struct dl_lister *lister;
} dl_collect_part;

typedef diloco_status (*dl_exec_fn)(dl_exec *x, const dl_request *request, dl_reply *reply,
                                    dl_time until);

/* How an exchange topology (P19) carries out the requests. allgather.c, combined.c (leader) and
 * sharded.c each define one. A member that is NULL is never called. */
typedef struct dl_exec_topology {
    diloco_status (*prepare)(dl_exec *x); /* allocates memory, after slots and forms */
    /* Returns how a contribution is sliced before its upload. NULL: contributions are whole. */
    dl_slicing (*slicing)(const dl_exec *x, uint32_t fragment);
    dl_exec_fn serve;   /* DL_REQUEST_SERVE */
    dl_exec_fn collect; /* DL_REQUEST_FETCH_COMBINED */
    dl_exec_fn combine; /* DL_REQUEST_COMBINE, of a planner or an audit */
} dl_exec_topology;
extern const dl_exec_topology dl_exec_allgather, dl_exec_leader, dl_exec_sharded;
const dl_exec_topology *dl_exec_topology_of(dl_topology_kind topology_kind);

/* Combining for other replicas, or using another replica's combined update (combined.c, sharded.c).
 */
typedef struct dl_combine_part {
    dl_topology_kind topology_kind;
    const dl_exec_topology *topology;
    dl_codec_form *plain; /* [n_fragments] of combined updates; NULL: every replica combines */
    dl_slot *slot;        /* of the newest combined update; NULL: not allocated */
    bool here;            /* this replica combined it, so facts.outer describes its members */
    bool confirmed;       /* the store confirmed its upload by checksum */
    uint64_t *slices;     /* [n_fragments]; NULL: updates are not sliced */
    size_t n_owners;      /* of each slice */
    dl_gathered gathered;
    dl_served served[DL_SERVED_MAX]; /* a ring of the plans that were handled */
    size_t n_served;
    double *measures;   /* of the slices of a plan; NULL: the combiner needs no measures */
    dl_served measured; /* the plan whose measures this replica uploaded */
    dl_compared compared;
    dl_sliced sliced;
    dl_slot *serving; /* slices combined for other replicas; NULL: not allocated */
    dl_own_slices own;
} dl_combine_part;

/* Judging members, and the outer step (exec.c). */
typedef struct dl_apply_part {
    dl_contribution_data *members; /* [max_members] of the step, in the entry's order */
    float *weight;                 /* [max_members] */
    uint64_t *raw;                 /* [max_members] */
    dl_outer_scratch *scratch;
    dl_probing *probing; /* NULL: nothing is measured */
    double *probed;      /* [1 + max_members] the newest results */
    dl_collector collector;
    bool loaded;          /* a REJOIN loaded a state */
    atomic_bool computed; /* an entry, so all arrays are in memory */
} dl_apply_part;

/* The use of the state's free copy, `next` (lending.c). `lock` guards `use`. */
typedef enum dl_next_use { DL_NEXT_FREE, DL_NEXT_USED, DL_NEXT_LENT } dl_next_use;
typedef struct dl_lending {
    bool possible;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dl_next_use use;
    uint64_t entry; /* the one that is computed there, while it is used */
} dl_lending;

/* lending.c: waits until `next` is not lent, and uses it for this entry; and ends that use. */
void dl_exec_use_next(dl_exec *x, uint64_t entry);
void dl_exec_end_use(dl_exec *x);

/* The differences between the modes of a run (exec_mode.c). */
typedef struct dl_exec_mode {
    bool keeps_in_flight; /* captures in flight are saved, and a resume continues with them */
    bool may_share_next;  /* no other entry is computed between a capture and its upload */
    bool may_send_values; /* contributions may hold values instead of movements */
    bool reads_speeds;    /* WATCH reads the steps per second from heartbeats */
    bool names_bases;     /* contributions are named by their base, not by their entry */
    bool forgets_junk;    /* a later entry forgets which objects were junk */
    bool (*is_of_use)(const dl_exec *x, const dl_listed *o); /* optional; NULL: every one is */
    uint64_t (*oldest)(const dl_exec *x, uint64_t own);      /* optional; NULL: the first entry */
    /* optional; NULL: nothing is known */
    dl_train_bounds (*bounds)(const dl_exec *x, uint64_t entry, uint32_t fragment);
} dl_exec_mode;
const dl_exec_mode *dl_exec_mode_of(const dl_schedule *schedule, const dl_config *config);

struct dl_exec {
    dl_exec_args a;
    dl_state state;
    dl_keyring *ring;     /* NULL: the run has no keys */
    dl_codec_form *forms; /* [n_fragments] */
    dl_packer *packer;    /* NULL: payloads are not compressed */
    dl_schedule schedule;
    const dl_exec_mode *mode;
    dl_decisions decisions; /* the operator's decisions, for a replay */
    dl_exec_facts facts;
    dl_buf text;    /* scratch: an object that is read or written whole */
    dl_entry entry; /* scratch: an older entry, or a plan */
    dl_arena arena;

    dl_capture_part capture;
    dl_upload_part upload;
    dl_collect_part collect;
    dl_combine_part combine;
    dl_apply_part apply;
    dl_lending lending;
};

/* capture.c: returns the capture of an entry, or NULL. */
dl_capture *dl_exec_captured(const dl_exec *x, uint64_t entry);
/* capture.c: moves the residual on after the entry counted this replica's contribution with that
 * body (P17). */
void dl_exec_settle(dl_exec *x, const dl_request *swap);
/* capture.c: sets the residual to the part of the capture that its encoding leaves out. Overwrites
 * the payload. Does nothing without error feedback. */
void dl_exec_leave_out(dl_exec *x, const dl_capture *capture);
/* capture.c: drops every capture, because the state was replaced. */
void dl_exec_forget(dl_exec *x);
void dl_exec_clear_residual(dl_exec *x); /* does nothing without error feedback */

/* capture_on_device.c: takes the device's memory, after the layout and the forms. Does nothing
 * without `moves`. Returns DILOCO_EREFUSED for a tensor that is not f32, and DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_exec_prepare_device(dl_exec *x);
/* capture_on_device.c: returns whether the device encodes captures, after the forms. With error
 * feedback it does not, since the host adds the residual to the values. */
bool dl_exec_encodes_on_device(const dl_exec *x);
/* capture_on_device.c: gives the movement of the fragment to the capture, as values or encoded, and
 * the squares of its blocks to capture.norm2. Values that are not usable are not encoded. Returns
 * DILOCO_EIO if the device has failed. */
DL_MUST_CHECK diloco_status dl_exec_form_on_device(dl_exec *x, uint32_t fragment, dl_capture *c);
/* capture_on_device.c: copies the values of a capture that the device has encoded to g, if they are
 * not there. Returns DILOCO_EIO if the device has failed. */
DL_MUST_CHECK diloco_status dl_exec_fetch_values(dl_exec *x, dl_capture *c);
/* capture_on_device.c: dl_exec_adopt on the device. The mirrors keep their values. A failure is
 * kept by the mirrors. */
void dl_exec_adopt_on_device(dl_exec *x, uint32_t fragment, float mix);

/* fetch.c: carries out DL_REQUEST_FETCH, and drops what was prefetched for it. */
typedef struct dl_fetchers dl_fetchers;
/* call it after slots and packer are made */
DL_MUST_CHECK diloco_status dl_fetchers_create(dl_exec *x);
void dl_fetchers_destroy(dl_exec *x);
DL_MUST_CHECK diloco_status dl_exec_fetch(dl_exec *x, const dl_request *request, dl_reply *reply,
                                          dl_time until);
void dl_exec_forget_fetched(dl_exec *x);
float dl_exec_element_bound(const dl_exec *x); /* larger elements are rejected */
/* does nothing if the slot exists */
DL_MUST_CHECK diloco_status dl_exec_make_slot(dl_exec *x, size_t i);
/* fetch.c: calls fn(context, store, i) for each i below n, on one thread per fetcher, each with its
 * own store handle. Returns the first error. */
typedef diloco_status (*dl_errand_fn)(void *context, dl_store *store, size_t i);
DL_MUST_CHECK diloco_status dl_fetchers_run(dl_exec *x, size_t n, dl_errand_fn fn, void *context);

/* listing.c: DL_REQUEST_LIST. */
typedef struct dl_lister dl_lister;
/* call it after slots and keyring are made */
DL_MUST_CHECK diloco_status dl_lister_create(dl_exec *x);
void dl_lister_destroy(dl_exec *x);
DL_MUST_CHECK diloco_status dl_exec_extent(dl_exec *x, const dl_request *request, dl_reply *reply,
                                           dl_time until);
DL_MUST_CHECK diloco_status dl_exec_list(dl_exec *x, const dl_request *request, dl_reply *reply,
                                         dl_time until);
/* listing.c: return whether a known roster or this replica has that name. */
bool dl_exec_is_awaited(const dl_exec *x, const dl_generation *generation);
/* listing.c: return whether it is awaited, or the list of a closed run has the name. */
bool dl_exec_is_named(const dl_exec *x, const dl_generation *generation);
/* listing.c: return an upper bound of the number of awaited names. */
size_t dl_exec_n_awaited(const dl_exec *x);
/* watch_heartbeats.c: return whether the look in progress needs the replica's heartbeat. */
bool dl_exec_is_watched(const dl_exec *x, const dl_generation *generation);
/* watch_signed.c: of a run with keys. */
DL_MUST_CHECK diloco_status dl_exec_watch_signed(dl_exec *x, dl_reply *reply, dl_time until);
/* watch_heartbeats.c */
DL_MUST_CHECK diloco_status dl_exec_watch(dl_exec *x, const dl_request *request, dl_reply *reply,
                                          dl_time until);
/* listing.c: records that this object has the name of the replica's generation but is not signed
 * with its key. */
void dl_exec_note_forged(dl_exec *x, uint64_t entry, const dl_generation *generation);

/* sharded_publish.c: returns the slices of a fragment; n 0: contributions are whole. */
dl_slicing dl_exec_slicing(const dl_exec *x, uint32_t fragment);
void dl_measures_deinit(dl_exec *x); /* sharded_measure.c */
/* sharded_publish.c: makes the table of an own contribution's digests from its payload and
 * integers, and returns its size in bytes. */
size_t dl_exec_make_table(dl_exec *x, uint32_t fragment, unsigned char *discrete);
typedef struct dl_slices_put {
    dl_slicing slicing;
    uint64_t entry;
    dl_generation generation;
    unsigned char *payload, *discrete;
    dl_time until;
    bool confirmed[DL_SLICES_MAX]; /* out: the store confirmed the slice by checksum */
} dl_slices_put;
DL_MUST_CHECK diloco_status dl_slices_send(dl_slices_put *p, dl_store *store);
bool dl_slices_are_confirmed(const dl_slices_put *p); /* every slice */
/* uploads in parallel, with the fetchers */
DL_MUST_CHECK diloco_status dl_exec_put_slices(dl_exec *x, dl_slices_put *p);
dl_hash dl_exec_slices_digest(dl_exec *x, uint32_t fragment); /* sharded.c: of the held update */

/* exec.c: returns the key that signs a replica's objects, or NULL if the run has no keys. Returns
 * DILOCO_EPROTO and sets *reason if the replica has no key. */
DL_MUST_CHECK diloco_status dl_exec_key_of(const dl_public **out, const char **reason, dl_exec *x,
                                           const char *replica, dl_time until);

/* exec.c: returns the arguments of COMBINE and COMPUTE: the draft's members from the request's
 * slots. */
dl_outer_step_args dl_exec_step_args(dl_exec *x, const dl_request *request);

/* combined.c: allocates the slot of a combined update; returns its parts; prepares its forms;
 * combines into the slot; and computes the step from the slot. */
DL_MUST_CHECK diloco_status dl_exec_make_combined_slot(dl_exec *x, dl_slot **slot);
dl_combined dl_exec_combined_parts(const dl_exec *x, dl_slot *slot, uint32_t fragment);
DL_MUST_CHECK diloco_status dl_exec_prepare_combined(dl_exec *x);
DL_MUST_CHECK diloco_status dl_exec_combine_here(dl_exec *x, const dl_request *request);
DL_MUST_CHECK diloco_status dl_exec_compute_combined(dl_exec *x, dl_fragment_state *next,
                                                     const dl_request *request);

/* contribute.c: returns whether this run's clients send values instead of movements
 * (clients.payload). */
bool dl_exec_sends_values(const dl_exec *x);

/* contribute.c: carries out DL_REQUEST_CONTRIBUTE. Without a capture it uploads an empty
 * contribution, so that no replica waits for one. Returns DILOCO_EFENCED if another process runs as
 * this generation. In a run with keys, this replica claims a later generation if junk has the name
 * (dl_exec_self). */
DL_MUST_CHECK diloco_status dl_exec_contribute(dl_exec *x, const dl_request *request,
                                               dl_reply *reply, dl_time until);
/* contribute.c: does the work of dl_contribution_fetch, without the store, for an upload of this
 * generation that the store confirmed (P8). It uses the bytes in memory or encodes them again.
 * Returns false if it has neither; then read the contribution from the store. */
bool dl_exec_recall(dl_exec *x, dl_contribution *facts, dl_contribution_data *data, dl_slot *slot,
                    const dl_request *request, const dl_contribution_expect *expect);

#endif
