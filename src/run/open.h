/* open.h - creates a run, and begins a generation in it; shared by run.c and the readers. */
#ifndef DL_RUN_OPEN_H
#define DL_RUN_OPEN_H

#include "log/runfile.h"
#include "protocol/schedule.h"
#include "state/state.h"

/* Checks that this library supports the options' values and their combination. Returns
 * DILOCO_EINVAL or DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_run_check(const dl_config *config);

/* Returns the address of a run in `store` with the options `config`. It borrows `store`, and
 * `coord`, in which the URL of the coordination store is written. */
typedef char dl_run_coord[DL_PATH_MAX + 32];
dl_store_address dl_run_address(dl_run_coord coord, const char *store, const dl_config *config);

/* Checks whether this machine's credentials may be sent to the coordination store that run.json
 * names, since anyone may have written run.json. dl_run_may_ask_coord returns DILOCO_EREFUSED
 * unless it is the store's server, dl_run_name_coord was called for it, or DILOCO_COORDS lists it.
 * Any thread may call them. */
void dl_run_name_coord(const dl_config *config);
DL_MUST_CHECK diloco_status dl_run_may_ask_coord(const char *store, const dl_config *config);

typedef struct dl_run_creation {
    const dl_config *config;
    const diloco_tensor *tensors; /* their values are the first state */
    size_t n_tensors;
    const char *data_digest;
    const char *replica;     /* that creates or joins the run; NULL: none */
    const dl_base *base;     /* tensors that are not exchanged; NULL: no such tensors */
    const dl_signer *signer; /* of a run whose objects are signed, else NULL */
    dl_store **probe;        /* [DL_PROBE_HANDLES] for the probe (P26); NULL: opened by URL */
    dl_moved *tally;         /* counts the traffic of handles opened here; NULL: not counted */
} dl_run_creation;

/* Creates run.json unless it exists, and reads it. Returns DILOCO_EDIFFERS if another run, or the
 * log of one without its run.json, is in the store, and DILOCO_EREFUSED if the store does not
 * create a name exactly once. `digest` is of the file's bytes. */
DL_MUST_CHECK diloco_status dl_run_create_or_read(dl_runfile *out, dl_hash *digest, dl_store *store,
                                                  const dl_run_creation *what);

/* Reads run.json. Returns DILOCO_ENOENT if there is no run, and DILOCO_EDIFFERS if the store has
 * log entries but no run.json: no run can be created there. */
DL_MUST_CHECK diloco_status dl_run_read(dl_runfile *out, dl_hash *digest, dl_store *store);

/* Reports whether the store has log entries but no run.json. */
DL_MUST_CHECK diloco_status dl_run_is_rest(bool *is_rest, dl_store *store);

/* Opens the key that signs this machine's objects: run.key, or the user's own, which is created if
 * it does not exist. As dl_signer_open. */
DL_MUST_CHECK diloco_status dl_run_signer(dl_signer **out, const dl_config *config);

#endif
