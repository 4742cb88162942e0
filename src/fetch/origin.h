/* origin.h - one address of training data, the objects at it, and its folder in the cache.
 *
 *     <data.cache>/<16 hex digits of the prefix's digest>/files/NAME      whole objects alone
 *                                                        /digests/NAME    "<digest> <bytes>"
 *                                                        /part            the object in flight
 *                                                        /part.of         its name and ETag (web)
 *                                                        /arriving/NAME   files that are read while
 *                                                        /blocks/NAME     they arrive (arriving.h)
 *                                                        /filling/…       locks of those who fetch
 *                                                        /lock */
#ifndef DL_FETCH_ORIGIN_H
#define DL_FETCH_ORIGIN_H

#include "base/config.h"
#include "base/hash.h"
#include "fetch/web_data.h"
#include "store/store.h"

enum { DL_ORIGIN_NAME = 512, DL_ORIGIN_PATH = DL_PATH_MAX + 2 * DL_ORIGIN_NAME };

/* A prefix of a store or of the web, and what is wanted of it. One thread at a time. */
typedef struct dl_data_origin {
    dl_config_path url;         /* of the prefix, with its options */
    char key[DL_ORIGIN_NAME];   /* one object; "": all of the prefix */
    char label[DL_ORIGIN_NAME]; /* the prefix without options, for a person */
    char folder[DL_PATH_MAX];   /* of the prefix in the cache */
    dl_store *store;            /* between connect and disconnect; NULL for the web */
    dl_web_data *web;           /* the same; NULL for a store */
} dl_data_origin;

/* Splits an address, and chooses its folder. Returns DILOCO_EINVAL for a scheme without data, for
 * an address that names neither an object nor a prefix, and if there is no place for the cache. */
DL_MUST_CHECK diloco_status dl_origin_init(dl_data_origin *out, const char *url,
                                           const dl_config *config);

/* Copies the next path or address of a list such as data.train_path, without blanks before it.
 * Returns false at the end of the list. */
bool dl_origin_next(char out[sizeof(dl_config_path)], const char **list);

/* Opens a store or the web. Returns their errors. */
DL_MUST_CHECK diloco_status dl_origin_connect(dl_data_origin *o);
void dl_origin_abort(dl_data_origin *o); /* any thread: reads return DILOCO_ECLOSED from here on */
void dl_origin_disconnect(dl_data_origin *o);

/* Makes the folder and locks it; waits while another process holds the lock. *lock is the
 * descriptor to close, or -1; it is also set when the lock fails. */
DL_MUST_CHECK diloco_status dl_origin_lock(dl_data_origin *o, int *lock);
/* Returns the descriptor of the lock, or -1 if another process holds it. */
int dl_origin_try_lock(const dl_data_origin *o);

/* The path of `key` in the folder `kind` of the prefix; the folder itself if `key` is "". */
void dl_origin_path(char out[DL_ORIGIN_PATH], const dl_data_origin *o, const char *kind,
                    const char *key);

/* Returns true if the cache has this object and its bytes have the digest that was written when it
 * was fetched. The store is not asked: an object of the same name is assumed not to change. */
bool dl_origin_is_whole(const dl_data_origin *o, const char *key);

/* Fetches a whole object. An object of the web continues where an earlier process has stopped. */
DL_MUST_CHECK diloco_status dl_origin_fetch(dl_data_origin *o, const char *key);

/* Reads a part of an object, as dl_store_read_part. Returns DILOCO_EREFUSED if the store reads only
 * whole objects. */
DL_MUST_CHECK diloco_status dl_origin_read_part(dl_data_origin *o, const char *key,
                                                dl_store_part *part, dl_sink sink);

/* Moves the file at `path`, which has this digest and length and is on the disk, into `files`. */
DL_MUST_CHECK diloco_status dl_origin_keep(const dl_data_origin *o, const char *key,
                                           const char *path, dl_hash digest, size_t len);

#endif
