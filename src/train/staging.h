/* staging.h - host places for the trainer's values in backend memory. The run, the private state
 * and the exchange between nodes read and write host memory; the model and the optimizer are on a
 * backend.
 *
 * The run copies parameters and gradients of a device itself. The optimizer's vectors stay here,
 * because one may have slices on several cards. A run that continues another one also takes over
 * that run's vectors here. Federated and gossip processes save them without a run's private pieces.
 *
 * If the host may use the backend's memory itself (the CPU backend), a place is that memory, and
 * pull and push copy nothing. Otherwise a place is a copy, which pull fills and push copies back.
 */
#ifndef DL_TRAIN_STAGING_H
#define DL_TRAIN_STAGING_H

#include "tensor/backend.h"
#include <diloco/tensor.h>
#include <stdbool.h>

/* Memory of a backend. */
typedef struct dl_slice {
    dl_backend *backend; /* borrowed */
    void *memory;
    size_t bytes;
} dl_slice;

/* One array in both places; several devices may each have a slice of it. */
typedef struct dl_staged {
    void *host; /* owned, unless it is the memory of the only slice */
    size_t bytes, n_slices;
    dl_slice slices[DL_MAX_CARDS];
} dl_staged;

/* Zeroed except the backend, which is borrowed. */
typedef struct dl_staging {
    dl_backend *backend;
    dl_staged *all; /* owned */
    size_t n;
} dl_staging;

/* dl_staging_add makes a host place for `bytes` bytes of backend memory. A copy begins with zeros.
 * Returns DILOCO_ENOMEM; *host is then NULL. */
DL_MUST_CHECK diloco_status dl_staging_add(dl_staging *s, void **host, void *memory, size_t bytes);
/* dl_staging_add_slices makes a host place for n slices, one after the other, 1 <= n <=
 * DL_MAX_CARDS. Returns DILOCO_ENOMEM; *host is then NULL. */
DL_MUST_CHECK diloco_status dl_staging_add_slices(dl_staging *s, void **host,
                                                  const dl_slice *slices, size_t n);
void dl_staging_deinit(dl_staging *s); /* zeroed is fine */

/* Returns true if the host uses the memory itself, so that a place is no copy. */
bool dl_staged_is_shared(const dl_staged *staged);

/* dl_staging_pull waits for the backend and brings all host places up to date. Returns DILOCO_EIO
 * if the device failed. */
DL_MUST_CHECK diloco_status dl_staging_pull(const dl_staging *s);
/* dl_staging_push queues the copies to the backend. */
void dl_staging_push(const dl_staging *s);
/* dl_staging_fill is a diloco_fill_fn for a dl_staged: it waits for the backend and copies the
 * array from backend memory to `to`. Returns DILOCO_EIO if the device failed. */
DL_MUST_CHECK diloco_status dl_staging_fill(void *staged, void *to);

/* dl_staging_device fills *out with the copies of a backend, for diloco_run_device. Returns false
 * if the host may use the backend's memory: then the run needs no device. */
bool dl_staging_device(diloco_device *out, dl_backend *backend);

#endif
