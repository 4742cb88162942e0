/* open.h - how a run comes to be and how a life in it begins: what run.c and the readers share. */
#ifndef DL_RUN_OPEN_H
#define DL_RUN_OPEN_H

#include "run/runfile.h"
#include "run/schedule.h"
#include "run/state.h"

/* What this part of the house can do faithfully: names known, combinations allowed.
 * DILOCO_EINVAL, DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_run_check(const dl_config *config);

/* What dl_store_open takes for a run in `store`, whose other options are in `config`: with
 * run.coord, the two together (store/layers.h). */
typedef char dl_run_store[2 * DL_PATH_MAX + 64];
void dl_run_store_url(dl_run_store out, const char *store, const dl_config *config);

/* A coord that is known from run.json, which anybody may have written: may this machine's
 * credentials go there? DILOCO_EREFUSED where it is another server than the store's, this program
 * has not named it for a run of its own, and DILOCO_COORDS does not list it. Any thread. */
void dl_run_name_coord(const dl_config *config);
DL_MUST_CHECK diloco_status dl_run_may_ask_coord(const char *store, const dl_config *config);

typedef struct dl_run_creation {
    const dl_config *config;
    const diloco_tensor *tensors; /* the first state is what they hold */
    size_t n_tensors;
    const char *data_digest;
    const dl_signer *signer; /* of a run whose objects are signed; else NULL */
    dl_store **probe;        /* [DL_PROBE_HANDLES] for the probe (P26); NULL: opened by url */
    dl_moved *tally;         /* of handles that are opened here; NULL: none */
} dl_run_creation;

/* Create run.json unless it is there, and read it. DILOCO_EDIFFERS: another run is there.
 * DILOCO_EREFUSED: the store does not keep "created exactly once". `digest` is of the file's bytes.
 */
DL_MUST_CHECK diloco_status dl_run_create_or_read(dl_runfile *out, dl_hash *digest, dl_store *store,
                                                  const dl_run_creation *what);

/* Read run.json. DILOCO_ENOENT: there is no run. */
DL_MUST_CHECK diloco_status dl_run_read(dl_runfile *out, dl_hash *digest, dl_store *store);

/* The newest life of a replica. DILOCO_ENOENT: it never had one. */
DL_MUST_CHECK diloco_status dl_run_newest_life(dl_life *out, dl_store *store, const char *replica);

/* The key that signs this machine's objects: run.key, or the person's own, which is made where
 * there is none. As dl_signer_open. */
DL_MUST_CHECK diloco_status dl_run_signer(dl_signer **out, const dl_config *config);

/* gen/<replica>.<g>, g the smallest number after all that are taken, in a run of keys the smallest
 * free one after all that the signer has signed; with run.single_committer
 * one that nobody else will choose in the same moment, since the store would let both (P26).
 * DILOCO_EFENCED: a new name (config's first_life), which another replica took since it was
 * chosen, or in this moment. Where objects are signed, DILOCO_EREFUSED: this key may not be that
 * replica (members.h); config says where invitations are. */
DL_MUST_CHECK diloco_status dl_run_claim_life(dl_life *out, dl_store *store, const char *replica,
                                              const dl_runfile *run, const dl_config *config,
                                              const dl_signer *signer);

/* The first free generation from `from` on, for a process of a run of keys that goes on as it:
 * somebody has created a name of the one that it has. DILOCO_EFENCED: its key has signed a later
 * one than `self`. *out is the last that was tried, on error, too. */
DL_MUST_CHECK diloco_status dl_run_claim_next(dl_life *out, dl_store *store, const dl_life *self,
                                              uint32_t from, const dl_runfile *run,
                                              const dl_signer *signer);

/* DILOCO_EFENCED, with the words for it. */
DL_MUST_CHECK diloco_status dl_run_refuse_twin(const char *replica, dl_store *store);

/* Is it not the first of its replica? */
bool dl_run_has_lived(const dl_life *life, const dl_config *config);

/* run.state_dir; or "<folder>.local/<host>" beside a file store. DILOCO_EINVAL: a store of
 * another kind needs it to be set. */
DL_MUST_CHECK diloco_status dl_run_state_dir(dl_config_path out, const dl_config *config);
/* ... where no run.state_dir is set. */
DL_MUST_CHECK diloco_status dl_run_state_dir_of(dl_config_path out, const char *store);

/* Do contributions of so many bytes together wait for the outer step on disk (run.spool)? Where
 * many logical clients are asked they always do, so that memory follows from the workers alone. */
enum { DL_SPOOL_CLIENTS = 64 };
bool dl_run_spools(const dl_config *config, double bytes);
/* Where they wait: NULL for memory. */
const char *dl_run_spool_dir(dl_config_path out, const dl_config *config, const dl_runfile *run);
/* Where the outer state lies while it is not needed: NULL for memory (run.offload). */
const char *dl_run_offload_dir(dl_config_path out, const dl_config *config);

#endif
