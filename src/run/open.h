/* open.h - how a run comes to be and how a life in it begins: what run.c and the readers share. */
#ifndef DL_RUN_OPEN_H
#define DL_RUN_OPEN_H

#include "log/runfile.h"
#include "protocol/schedule.h"
#include "state/state.h"

/* What this part of the house can do faithfully: names known, combinations allowed.
 * DILOCO_EINVAL, DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_run_check(const dl_config *config);

/* What dl_store_open takes for a run in `store`, whose other options are in `config`: with
 * run.coord, the two together (store/wrap/layers.h). */
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
    const dl_base *base;     /* tensors that are not exchanged; NULL: none */
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

/* The key that signs this machine's objects: run.key, or the person's own, which is made where
 * there is none. As dl_signer_open. */
DL_MUST_CHECK diloco_status dl_run_signer(dl_signer **out, const dl_config *config);

#endif
