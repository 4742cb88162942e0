/* exec.h - carries out what a machine asks for, on a store and on tensors.
 *
 * Everything but time: who waits, trains, retries and sleeps is the caller (driver.c, or the
 * simulation). A request that failed so that the store may recover (dl_store_may_recover) may be
 * carried out again: its effect is the same once or twice. */
#ifndef DL_EXCHANGE_EXEC_H
#define DL_EXCHANGE_EXEC_H

#include "base/thread.h"
#include "exchange/peers.h"
#include "log/runfile.h"
#include "protocol/machine.h"
#include "state/mirrors.h"
#include "state/private_state.h"
#include "state/state.h"
#include <diloco/run.h>

typedef struct dl_exec dl_exec;

typedef struct dl_exec_args {
    dl_store *store; /* borrowed, as everything here */
    const dl_runfile *run;
    dl_hash run_digest; /* of run.json's bytes: prev of entry 0 */
    dl_life self;
    const diloco_tensor *tensors;  /* the trainer's, or their mirrors, in manifest order; NULL: a
                                    * reader */
    dl_mirrors *mirrors;           /* of those that have one; NULL: none has */
    const float *const *gradients; /* [n_tensors] or NULL: contribute these, not movements */
    size_t n_tensors;
    size_t max_members;
    const char *spool_dir;   /* NULL: memory */
    const char *offload_dir; /* of the state; NULL: memory */
    int n_copies;            /* of the state: 2 for whoever commits */
    const dl_signer *signer; /* NULL: all are trusted, or a reader */
    bool beside;             /* the trainer's calls come from another thread than dl_exec_do */
    int n_fetchers;          /* contributions read at a time, on handles of their own; 0: one */
    dl_peers *peers;         /* NULL: all is read from the store */
    diloco_probe_fn probe;   /* check.probe: of who commits; NULL: nobody measures */
    void *probe_user;
    dl_pool *pool;
} dl_exec_args;

/* Takes all memory of the exchange. DILOCO_ENOMEM, DILOCO_EINVAL: an unknown codec, … */
DL_MUST_CHECK diloco_status dl_exec_create(dl_exec **out, const dl_exec_args *args);
void dl_exec_destroy(dl_exec *exec);

dl_state *dl_exec_state(dl_exec *exec);
/* The generation that this replica has now: a CONTRIBUTE may have claimed a later one (P6). By who
 * calls dl_exec_do. */
dl_life dl_exec_self(const dl_exec *exec);

/* ---- the trainer's side: capture.c ---- */

/* At the due point of `entry`: what the fragment's local tensors moved by is kept, to be
 * contributed later and beside further training. DILOCO_ENUMERIC: it is not finite, by name. */
DL_MUST_CHECK diloco_status dl_exec_take(dl_exec *exec, uint64_t entry, uint32_t fragment,
                                         const dl_train_stats *stats);
/* Theta into the fragment's local tensors; they keep `mix` of their own (docs/architecture.md
 * section 2).
 */
void dl_exec_adopt(dl_exec *exec, uint32_t fragment, float mix);

/* Where the overlap is one round (PROTOCOL P21): the fragment's next round begins from theta; with
 * `eager`, from theta after this replica's own share of `entry`, which is under way and will have
 * that weight. DL_NO_ENTRY: nothing is under way. */
#define DL_NO_ENTRY UINT64_MAX
void dl_exec_begin_round(dl_exec *exec, uint32_t fragment, uint64_t entry, float weight);
/* … what became of an entry that this replica contributed to: the momentum of its own shares. */
void dl_exec_decided(dl_exec *exec, uint64_t entry, uint32_t fragment, bool commit, bool counted);

/* What of this has to be saved with the local state: the residual of error feedback, where the
 * round began and on which state, what was taken and is under way. NULL behind the last. */
typedef struct dl_exec_private {
    const char *name;
    void *data;
    size_t len;
    bool f32;
} dl_exec_private;
enum { DL_EXEC_MAX_PRIVATES = 7 };
const dl_exec_private *dl_exec_private_at(const dl_exec *exec, size_t i);
/* Before they are saved; and once they are loaded, before the first REJOIN: what was under way is
 * still. DILOCO_EPROTO: it is none. */
void dl_exec_pack_under_way(dl_exec *exec);
DL_MUST_CHECK diloco_status dl_exec_unpack_under_way(dl_exec *exec);

/* The residual of error feedback, f32[n], or NULL. With logical clients it is that of the client in
 * hand: put there before it trains, kept with its state. */
float *dl_exec_residual(const dl_exec *exec, size_t *n);

/* A logical client's contribution to the open entry (docs/federated.md): what the local tensors
 * moved by since theta, under the client's name. `keep` is called with the digest of its body
 * before it is put: what fits it has to be durable then (PROTOCOL P16); its error is returned and
 * nothing is put. *first false: other bytes stand there, from a worker whose arithmetic differs,
 * and count. Not beside dl_exec_do. */
typedef struct dl_exec_client {
    dl_life life;
    const dl_train_stats *stats;
    diloco_status (*keep)(void *user, dl_hash body);
    void *user;
} dl_exec_client;
DL_MUST_CHECK diloco_status dl_exec_put_client(dl_exec *exec, bool *first,
                                               const dl_exec_client *client, dl_time until);
/* What the last LIST found. */
const dl_listed *dl_exec_listed(const dl_exec *exec, size_t *n);
/* Objects that it passed over: forged ones, and those for which there is no room. */
size_t dl_exec_passed_over(const dl_exec *exec);

/* ---- the exchange's side ---- */

/* A contribution of this replica, for the record. */
typedef struct dl_own_facts {
    uint32_t fragment;
    dl_train_stats stats;
    double norm;
    size_t bytes; /* of the object */
    double encode_s, put_s;
} dl_own_facts;

/* Measured by the last request of its kind, for the record. */
typedef struct dl_exec_facts {
    dl_own_facts own;          /* CONTRIBUTE */
    dl_outer_step_facts outer; /* COMPUTE */
    double compute_s;
} dl_exec_facts;
const dl_exec_facts *dl_exec_measured(const dl_exec *exec);

/* Of all handles of the exchange; and how fast they are together. */
dl_store_counters dl_exec_traffic(const dl_exec *exec);
dl_store_speed dl_exec_speed(const dl_exec *exec);

/* How contributions are moved in this run. */
dl_way dl_exec_way(const dl_exec *exec);
/* The prefix of the objects that LIST finds for an entry. */
void dl_exec_listed_under(dl_key out, const dl_exec *exec, uint64_t entry);
/* Do owners of slices measure the members before they combine (P19)? */
bool dl_exec_measures_slices(const dl_exec *exec);
/* [n_fragments] slices of an update; NULL: it is not cut. */
const uint64_t *dl_exec_slices(const dl_exec *exec);

/* Does it answer CONTRIBUTE with put_ahead, the reply's `sending` set, once the contribution is
 * made? Then dl_exec_send puts it: by any thread with a handle of its own, beside dl_exec_do of
 * anything but another such request; an end that the store may recover from may be repeated.
 * DILOCO_EFENCED as CONTRIBUTE; DILOCO_EEXIST: its name holds junk, and it is to be contributed
 * again (dl_reply). dl_exec_sent, by who calls dl_exec_do, makes it what was measured last. */
bool dl_exec_puts_ahead(const dl_exec *exec);
DL_MUST_CHECK diloco_status dl_exec_send(dl_exec *exec, dl_store *store, dl_time until);
void dl_exec_sent(dl_exec *exec);

/* READ, CONTRIBUTE, LIST, FETCH, JUDGE, COMBINE, FETCH_COMBINED, SERVE, COMPUTE, CREATE, SWAP,
 * WATCH, SNAPSHOT (in the foreground), REJOIN (loads the newest snapshot). Pointers of the reply
 * live until the next call. */
void dl_exec_do(dl_exec *exec, const dl_request *request, dl_reply *reply, dl_time until);

#endif
