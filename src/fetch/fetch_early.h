/* fetch_early.h - token shards on which training begins before they are whole in the cache.
 *
 * The process that fetches (fetch_data.h) makes a file of full length for each shard, with its
 * first and last MiB. The number of tokens and the data's digest follow from these. The processes
 * that train wait for the bytes of their samples, and one of them fetches the rest meanwhile. The
 * samples are those of whole files. Shards of at most 2 MiB, and objects of stores that cannot read
 * a part of a named version, are fetched whole. */
#ifndef DL_FETCH_FETCH_EARLY_H
#define DL_FETCH_FETCH_EARLY_H

#include "fetch/origin.h"

/* Returns true if training may begin before the data is whole: token shards, whose vocabulary
 * parameters.model.vocab or a tokenizer gives. Otherwise all tokens have to be read for it first.
 */
bool dl_early_is_possible(const dl_config *config);

/* The objects of one origin that are made ready. The caller holds the origin's lock, and the origin
 * is connected. */
typedef struct dl_early dl_early;
DL_MUST_CHECK diloco_status dl_early_begin(dl_early **out, dl_data_origin *o);
/* Makes one object ready that is not whole in the cache: *suits is false if it has to be fetched
 * whole. */
DL_MUST_CHECK diloco_status dl_early_add(dl_early *early, bool *suits, const char *key);
/* Waits for the first and last MiB of all objects, and frees. After an error of the caller,
 * `status` is that error, and it is returned at once. Returns the errors of the store and of the
 * cache. */
DL_MUST_CHECK diloco_status dl_early_end(dl_early *early, diloco_status status);

/* Fetches the rest of an object that an earlier process has begun so. *done: false if the cache
 * has no such part, or if the object has changed. */
DL_MUST_CHECK diloco_status dl_early_complete(dl_data_origin *o, bool *done, const char *key);

/* ---- the process that reads */

/* All may be zero. `user` and `stop` are borrowed until dl_early_close. */
typedef struct dl_early_hooks {
    const volatile int *stop; /* not 0: a wait for data ends with DILOCO_EINTERRUPTED */
    bool fills;               /* fetches also what is not read */
    /* How many bytes of an address have arrived, at each tenth. Any thread. */
    void (*progress)(void *user, size_t bytes, size_t of);
    void *user;
} dl_early_hooks;

/* Makes the data of these addresses, which dl_early_end has made ready, readable for dl_data_open
 * (data/arrivals.h). Both are lists, as data.train_path; files in them are passed over. It replaces
 * the data of an earlier call. No data may be open meanwhile. Returns the errors of
 * dl_arriving_open. */
DL_MUST_CHECK diloco_status dl_early_open(const dl_config_path train, const dl_config_path test,
                                          const dl_config *config, const dl_early_hooks *hooks);
/* Ends all fetching of this process. It may repeat. */
void dl_early_close(void);

/* Sets data.train_path and data.test_path to the addresses of dl_early_open, if data at one of them
 * is still arriving: another process that reads the data needs them. */
void dl_early_addresses(dl_config *config);

#endif
