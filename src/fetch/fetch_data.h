/* fetch_data.h - training data and models at the address of a store or of the web, kept in a cache
 * of this machine.
 *
 * data.train_path and data.test_path may name objects: s3://bucket/shards/ is all of a prefix,
 * s3://bucket/shards/a.txt is one. Web addresses are in web_data.h. Replicas of a machine share one
 * copy: the first one fetches it while the others wait. origin.h has the layout of the cache. Token
 * shards may be read while they arrive (fetch_early.h).
 *
 * A fetch that was stopped continues with the first object that is not whole. The digest of each
 * file is computed at every use: a damaged one is fetched again. */
#ifndef DL_FETCH_FETCH_DATA_H
#define DL_FETCH_FETCH_DATA_H

#include "fetch/fetch_early.h"

/* Returns true if dl_fetch_data or dl_fetch_model has something to fetch. */
bool dl_fetch_is_needed(const dl_config *config);

/* Fetch the missing objects, and set both paths to the files of the cache. A path whose fetch
 * fails stays as it was. Data that is still arriving can be opened until dl_early_close.
 *
 * DILOCO_EINVAL: a scheme without data, or no place for the cache. DILOCO_ENOENT: no such object,
 * or an empty prefix. DILOCO_EFULL and DILOCO_EIO: the cache's disk. Also the store's errors. */
DL_MUST_CHECK diloco_status dl_fetch_data(dl_config *config);

/* dl_fetch_ready is dl_fetch_data in a process that another one has started after dl_fetch_data,
 * with the addresses of dl_early_addresses. It fetches nothing itself: reading does. Returns the
 * errors of dl_early_open. */
DL_MUST_CHECK diloco_status dl_fetch_ready(dl_config *config, const dl_early_hooks *hooks);

/* dl_fetch_model does the same for trainer.init_from, if that is the address of a safetensors file:
 * one that ends in ".safetensors". Any other address is that of a run, and stays. Only a new run
 * needs it, so a process that joins one does not call it. Returns DILOCO_EINVAL for a whole model
 * of Hugging Face (hf://models/OWNER/NAME/), which has other names and has to be imported, and the
 * errors of dl_fetch_data. */
DL_MUST_CHECK diloco_status dl_fetch_model(dl_config *config);

/* dl_fetch_import fetches the files of a model that `diloco import` may read, and sets `folder` to
 * their folder in the cache. `url` is hf://models/OWNER/NAME/, or another prefix with a / at its
 * end. Returns the errors of dl_fetch_data. */
DL_MUST_CHECK diloco_status dl_fetch_import(dl_config_path folder, const char *url,
                                            const dl_config *config);

#endif
