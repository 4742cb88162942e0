/* exec.h - carries out the requests of a machine, with a store and tensors.
 *
 * It keeps no time: the caller (driver.c, or the simulation) waits, trains, retries and sleeps. The
 * caller may repeat a request that failed with an error that the store may recover from
 * (dl_store_may_recover). Its effect is the same once or twice. */
#ifndef DL_EXCHANGE_EXEC_H
#define DL_EXCHANGE_EXEC_H

#include "base/thread.h"
#include "exchange/device_moves.h"
#include "exchange/peers.h"
#include "log/runfile.h"
#include "protocol/machine.h"
#include "state/mirrors.h"
#include "state/private_state.h"
#include "state/state.h"
#include <diloco/run.h>

typedef struct dl_exec dl_exec;

typedef struct dl_exec_args {
    dl_store *store; /* borrowed, as all pointers here */
    const dl_runfile *run;
    dl_hash run_digest; /* of the bytes of run.json, which is `prev` of entry 0 */
    dl_generation self;
    /* The trainer's tensors, or their mirrors, in manifest order. NULL: this is a reader. */
    const diloco_tensor *tensors;
    dl_mirrors *mirrors;          /* of the tensors that have one; NULL: no mirrors */
    const dl_device_moves *moves; /* all tensors are on that device; NULL: the host computes */
    /* [n_tensors], or NULL: contribute these, not movements */
    const float *const *gradients;
    dl_mirrors *gradient_mirrors; /* of the gradients on a device; NULL: none is */
    size_t n_tensors;
    size_t max_members;
    const char *spool_dir;   /* NULL: memory */
    const char *offload_dir; /* of the state; NULL: memory */
    int n_copies;            /* of the state: 2 for a replica that commits */
    const dl_signer *signer; /* NULL: the run has no keys, or this is a reader */
    bool beside;             /* the trainer calls from another thread than dl_exec_do */
    size_t lent_len;         /* bytes that dl_exec_lend should lend, if that costs little */
    int n_fetchers;          /* contributions read at a time, each with its own handle; 0: one */
    dl_peers *peers;         /* NULL: everything is read from the store */
    /* Waits until the private state that a contribution to the entry needs is durable (PROTOCOL
     * P16). It is called before the upload, on the thread that uploads. NULL: it always is. */
    diloco_status (*await_saved)(void *user, uint64_t entry);
    void *saved_user;
    diloco_probe_fn probe; /* check.probe, for a replica that commits; NULL: not measured */
    void *probe_user;
    dl_pool *pool;
    dl_pool
        *trainer_pool; /* of the trainer's calls; where `beside`, not `pool`. NULL: no threads */
} dl_exec_args;

/* Creates an exchange and allocates all its memory. Returns DILOCO_ENOMEM, or DILOCO_EINVAL if an
 * option has an unknown value, for example the codec. */
DL_MUST_CHECK diloco_status dl_exec_create(dl_exec **out, const dl_exec_args *args);
void dl_exec_destroy(dl_exec *exec);

dl_state *dl_exec_state(dl_exec *exec);
/* Returns the bytes that the exchange will still bring into memory: those of its arrays until it
 * has computed an entry, and 0 later. Any thread. */
size_t dl_exec_later(const dl_exec *exec);
/* Returns the current generation of this replica. A CONTRIBUTE may have claimed a later one (P6).
 * Call it from the thread that calls dl_exec_do. */
dl_generation dl_exec_self(const dl_exec *exec);

/* ---- lending.c ----
 *
 * Memory of the exchange that has no values between entries. dl_exec_lendable returns its bytes, or
 * 0 if the memory is always in use. dl_exec_lend returns it, aligned to 64 bytes. It returns NULL
 * if the exchange uses it until the time `until`. Until dl_exec_give_back, which may be called
 * without a loan, the exchange computes no entry. Any thread. */
size_t dl_exec_lendable(const dl_exec *exec);
void *dl_exec_lend(dl_exec *exec, dl_time until);
void dl_exec_give_back(dl_exec *exec);
/* Ends the exchange's own use of that memory once the entry that was computed there is applied, or
 * has become void or an abort. `ended`: no entry is computed any more. Call it after each reply
 * that may apply an entry, from the thread that calls dl_exec_do. */
void dl_exec_release_applied(dl_exec *exec, bool ended);

/* ---- the trainer's side: capture.c ---- */

/* Captures the movement of the fragment's local tensors at the due point of `entry`, to contribute
 * it later while training continues. Returns DILOCO_ENUMERIC and names the tensor if a value is not
 * finite. */
DL_MUST_CHECK diloco_status dl_exec_capture(dl_exec *exec, uint64_t entry, uint32_t fragment,
                                            const dl_train_stats *stats);
/* The next capture also copies each captured tensor i to places[i], unless that is NULL, and sets
 * it to NULL. So the tensors are read once for both. The trainer's values are in host memory
 * already, and are not pulled again. NULL ends it. `places` is borrowed until then. */
void dl_exec_copy_to(dl_exec *exec, void **places);
/* Copies theta into the fragment's local tensors, which keep the part `mix` of their own values
 * (docs/architecture.md section 2). */
void dl_exec_adopt(dl_exec *exec, uint32_t fragment, float mix);

/* Begins the fragment's next round where the overlap is one round (PROTOCOL P21). The round begins
 * from theta. With `eager` it begins from theta after this replica's own share of `entry`, which is
 * in flight and has that weight. DL_NO_ENTRY: no entry is in flight. */
#define DL_NO_ENTRY UINT64_MAX
void dl_exec_begin_round(dl_exec *exec, uint32_t fragment, uint64_t entry, float weight);
/* Records the outcome of an entry that this replica contributed to, and updates the momentum of its
 * own shares. */
void dl_exec_decided(dl_exec *exec, uint64_t entry, uint32_t fragment, bool commit, bool counted);

/* Returns one array to save with the local state: the residual of error feedback, the start of the
 * round and its state, and the captures in flight. Returns NULL after the last. */
typedef struct dl_exec_private {
    const char *name;
    void *data;
    size_t len;
    bool f32;
    const bool *in_use; /* false: there is nothing to save; NULL: there always is */
} dl_exec_private;
enum { DL_EXEC_MAX_PRIVATES = 7 };
const dl_exec_private *dl_exec_private_at(const dl_exec *exec, size_t i);
/* Call the first before these arrays are saved, on the trainer's thread, and the second after they
 * are loaded, before the first REJOIN. Captures in flight, those of entries from next_adopt on, are
 * then in flight again. Returns DILOCO_EPROTO if a saved capture is invalid. */
DL_MUST_CHECK diloco_status dl_exec_pack_in_flight(dl_exec *exec, uint64_t next_adopt);
DL_MUST_CHECK diloco_status dl_exec_unpack_in_flight(dl_exec *exec);

/* Returns the residual of error feedback, f32[n], or NULL. With logical clients it belongs to the
 * current client: load it before the client trains, and save it with the client's state. */
float *dl_exec_residual(const dl_exec *exec, size_t *n);

/* Uploads a logical client's contribution to the open entry (docs/federated.md): the local tensors'
 * movement since theta, under the client's name. It calls `keep` with the digest of the body before
 * the upload. `keep` has to make the matching state durable (PROTOCOL P16); if it fails, its error
 * is returned and nothing is uploaded. *first is false if the name holds other bytes, from a worker
 * with other arithmetic; then those count. Do not call it during dl_exec_do. */
typedef struct dl_exec_client {
    dl_generation generation;
    const dl_train_stats *stats;
    diloco_status (*keep)(void *user, dl_hash body);
    void *user;
} dl_exec_client;
DL_MUST_CHECK diloco_status dl_exec_put_client(dl_exec *exec, bool *first,
                                               const dl_exec_client *client, dl_time until);
/* Returns what the last LIST found. */
const dl_listed *dl_exec_listed(const dl_exec *exec, size_t *n);
/* Returns how many objects it ignored, because they were forged or there was no space for them. */
size_t dl_exec_passed_over(const dl_exec *exec);

/* ---- the exchange's side ---- */

/* Facts of this replica's own contribution, for the record. */
typedef struct dl_own_facts {
    uint32_t fragment;
    dl_train_stats stats;
    double norm;
    size_t bytes; /* of the object */
    double encode_s, put_s;
} dl_own_facts;

/* Measurements of the newest request of each kind, for the record. */
typedef struct dl_exec_facts {
    dl_own_facts own;          /* CONTRIBUTE */
    dl_outer_step_facts outer; /* COMPUTE */
    double compute_s;
} dl_exec_facts;
const dl_exec_facts *dl_exec_measured(const dl_exec *exec);

/* Return the traffic of all handles of the exchange, and their combined speed. */
dl_store_counters dl_exec_traffic(const dl_exec *exec);
dl_store_speed dl_exec_speed(const dl_exec *exec);

/* Returns the exchange topology of this run. */
dl_topology_kind dl_exec_topology_kind(const dl_exec *exec);
/* Writes the prefix of the objects that LIST finds for an entry. */
void dl_exec_listed_under(dl_key out, const dl_exec *exec, uint64_t entry);
/* Returns whether the owners of slices measure the members before they combine (P19). */
bool dl_exec_measures_slices(const dl_exec *exec);
/* Returns [n_fragments] numbers of slices of an update, or NULL if updates are not sliced. */
const uint64_t *dl_exec_slices(const dl_exec *exec);

/* Returns whether uploads may be pipelined. Then it answers a CONTRIBUTE with pipelined as soon as
 * the contribution is made, and sets the reply's `sending`.
 *   dl_exec_send then uploads it, in any thread with its own store handle. Meanwhile dl_exec_do may
 *   carry out any request but another of that kind. After an error that the store may recover from,
 *   call it again. It returns DILOCO_EFENCED as CONTRIBUTE does, and DILOCO_EEXIST if the name
 *   holds junk; then contribute again (dl_reply).
 *   dl_exec_sent copies its measurements to dl_exec_measured. Call it from the thread that calls
 *   dl_exec_do.
 *   Call dl_exec_await_saved before dl_exec_send, on the same thread. */
bool dl_exec_puts_ahead(const dl_exec *exec);
DL_MUST_CHECK diloco_status dl_exec_await_saved(const dl_exec *exec, uint64_t entry);
DL_MUST_CHECK diloco_status dl_exec_send(dl_exec *exec, dl_store *store, dl_time until);
void dl_exec_sent(dl_exec *exec);

/* Carries out READ, CONTRIBUTE, LIST, FETCH, JUDGE, COMBINE, FETCH_COMBINED, SERVE, COMPUTE,
 * CREATE, SWAP, WATCH, SNAPSHOT (in the foreground) or REJOIN (loads the newest snapshot). Pointers
 * in the reply are valid until the next call. */
void dl_exec_do(dl_exec *exec, const dl_request *request, dl_reply *reply, dl_time until);

#endif
