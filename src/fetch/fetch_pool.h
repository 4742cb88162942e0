/* fetch_pool.h - threads that fetch the blocks of arriving files (arriving.h).
 *
 * Blocks that a reader waits for come first, then those that it has announced, then, if the pool
 * `fills`, all others from the first file's beginning on. Of several processes that fill from one
 * address only one does so at a time: it holds the lock of `lock_path`, which ends with it. Each of
 * them fetches what its own readers need. Threads start with the first read, so a pool from
 * which nothing is read costs no connection. */
#ifndef DL_FETCH_FETCH_POOL_H
#define DL_FETCH_FETCH_POOL_H

#include "fetch/arriving.h"
#include "store/store_types.h"

/* Where objects come from. Each thread opens a handle of its own. */
typedef struct dl_fetch_from {
    void *context; /* borrowed as long as the pool is */
    diloco_status (*open)(void *context, void **handle);
    /* Reads a part of an object of that version (store.h). `begin` of the sink hears the length of
     * the object. */
    diloco_status (*read)(void *handle, const char *key, dl_store_part *part, dl_sink sink);
    void (*abort)(void *handle); /* any thread: lets the read in progress end */
    void (*close)(void *handle);
    /* Optional. All blocks of a file have arrived. Called once a file, by one thread at a time,
     * while the lock of `lock_path` is held. An error ends the pool. */
    diloco_status (*finish)(void *context, const char *key, dl_arriving *a);
    /* Optional. How much of all files has arrived; called by the thread that fills, at most once a
     * second, and when the last file is finished. */
    void (*progress)(void *context, size_t bytes, size_t of);
} dl_fetch_from;

typedef struct dl_fetch_pool dl_fetch_pool;
typedef struct dl_fetch_file dl_fetch_file;

typedef struct dl_fetch_options {
    const char *lock_path;    /* copied; NULL: the pool does not fill */
    const volatile int *stop; /* borrowed; NULL: waits end only with the bytes or an error */
    int threads;              /* at least 1; 16 are used at most */
} dl_fetch_options;

DL_MUST_CHECK diloco_status dl_fetch_pool_create(dl_fetch_pool **out, const dl_fetch_from *from,
                                                 const dl_fetch_options *options);
/* Ends the threads, and closes all files. NULL is fine. */
void dl_fetch_pool_destroy(dl_fetch_pool *pool);

/* Adds a file before the first request. `key` is copied. The pool owns `a` afterwards, also after
 * an error. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_fetch_pool_add(dl_fetch_pool *pool, const char *key, dl_arriving *a);
size_t dl_fetch_pool_files(const dl_fetch_pool *pool);
dl_fetch_file *dl_fetch_pool_file(dl_fetch_pool *pool, size_t i); /* valid until destroy */
const dl_map *dl_fetch_file_map(const dl_fetch_file *file);

/* These are `want` and `await` of dl_arrivals (data/arrivals.h). Any thread. dl_fetch_file_await
 * returns DILOCO_EPROTO if the object has changed or the file is damaged, DILOCO_EFULL and
 * DILOCO_EIO of the cache's disk, errors of the store, and DILOCO_EINTERRUPTED. After an error of
 * the fetch all calls for files of the pool return it. */
void dl_fetch_file_want(dl_fetch_file *file, size_t begin, size_t len, bool now);
DL_MUST_CHECK diloco_status dl_fetch_file_await(dl_fetch_file *file, size_t begin, size_t len);

#endif
