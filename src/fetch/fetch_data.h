/* fetch_data.h - training data at the address of a store or of the web, kept in a cache of this
 * machine.
 *
 * data.train_path and data.test_path may name objects: s3://bucket/shards/ is all of a prefix,
 * s3://bucket/shards/a.txt is one. Web addresses are in web_data.h. Replicas of a machine share one
 * copy: the first one fetches it while the others wait. The cache has, for each prefix,
 *
 *     <data.cache>/<16 hex digits of the prefix's digest>/files/NAME      whole objects alone
 *                                                        /digests/NAME    "<digest> <bytes>"
 *                                                        /part            the object in flight
 *                                                        /part.of         its name and ETag (web)
 *                                                        /lock
 *
 * A fetch that was stopped continues with the first object that is not whole. The digest of each
 * file is computed at every use: a damaged one is fetched again. */
#ifndef DL_FETCH_FETCH_DATA_H
#define DL_FETCH_FETCH_DATA_H

#include "base/config.h"

/* Returns true if one of the two paths is the address of a store. */
bool dl_fetch_is_needed(const dl_config *config);

/* Fetch the missing objects, and set both paths to the files of the cache. A path whose fetch
 * fails stays as it was.
 *
 * DILOCO_EINVAL: a scheme without data, or no place for the cache. DILOCO_ENOENT: no such object,
 * or an empty prefix. DILOCO_EFULL and DILOCO_EIO: the cache's disk. Also the store's errors. */
DL_MUST_CHECK diloco_status dl_fetch_data(dl_config *config);

#endif
