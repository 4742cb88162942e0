/* kind.h - the table a store fills; store.c is its only caller. Calls arrive with checked
 * keys and in the meaning of store.h, a sink always with both functions; an implementation
 * never calls its caller. */
#ifndef DL_STORE_KIND_H
#define DL_STORE_KIND_H

#include "store/store_types.h"

typedef struct dl_store_kind {
    const char *scheme; /* "file": the url picks the row */
    size_t size;        /* bytes of private state, given zeroed */

    /* May DILOCO_EIO go away by itself or by an operator's hand? Of a folder: a disk that answers
     * again, a file system that is writable again, permissions. */
    bool io_may_pass;

    size_t max_object; /* longest object, where that is short; 0: no limit that matters */

    /* Seconds between two looks of a wait, where a look costs something; 0: store.h's. */
    dl_time pause_min, pause_max;

    /* `place` is the url after "scheme://". close is called even after an error. */
    diloco_status (*open)(void *self, const char *place, bool create, const atomic_bool *aborted);
    void (*close)(void *self);

    /* *taken = true and OK when the name is there; store.c compares the bytes. */
    diloco_status (*create)(void *self, const char *key, const dl_span *spans, size_t n_spans,
                            bool *taken, dl_time until);
    /* Replaces what is there; a reader sees the old object or the new one. */
    diloco_status (*put)(void *self, const char *key, const void *data, size_t len, dl_time until);
    /* DILOCO_ENOENT if the name is free. The sink hears the length first, then the bytes in
     * order. */
    diloco_status (*read)(void *self, const char *key, dl_sink sink, dl_time until);
    /* Optional: NULL means that objects are read only whole. As `read`, of a part; the sink hears
     * the length of the whole object. DILOCO_EPROTO: the object has another version. */
    diloco_status (*read_part)(void *self, const char *key, dl_store_part *part, dl_sink sink,
                               dl_time until);
    /* Keys ascend. A status of `found` other than OK ends the walk and is returned. */
    diloco_status (*list)(void *self, const char *prefix, const char *after, dl_found_fn found,
                          void *context, dl_time until);
    /* A name that is free is OK. */
    diloco_status (*remove)(void *self, const char *key, dl_time until);

    /* Optional: NULL means never. Return true if the store has given a digest of the received bytes
     * of the last create, and it was the digest of the sent bytes. */
    bool (*vouches)(const void *self);

    /* Optional: NULL means that store.c sleeps with back-off. DILOCO_ETIMEDOUT at `until`,
     * which is never more than pause_max away: so an implementation that misses some changes need
     * not poll. */
    diloco_status (*wait)(void *self, const char *const *prefixes, size_t n, dl_time until);

    /* Optional: bytes and billed requests as they went over a network, framing, retries and lost
     * creates included. NULL: the calls and object bytes that store.c counts are all there is. */
    void (*traffic)(const void *self, dl_store_counters *counts);

    /* Optional: NULL means that looking at *aborted between steps, at least ten times a
     * second, is enough. Async-signal-safe. */
    void (*abort)(void *self);
} dl_store_kind;

/* The lists of stores, by the scheme of their urls; those of DL_NETWORK_STORES are left out by
 * -DDILOCO_CLOUD=OFF. A new one is a file that defines dl_store_<scheme>, and its line here. */
// clang-format off
#define DL_LOCAL_STORES(X) \
    X(file) \
    X(mem) \
    X(user)
#define DL_NETWORK_STORES(X) \
    X(http) \
    X(https) \
    X(s3) \
    X(gs) \
    X(az) \
    X(hf) \
    X(etcd) \
    X(etcds)
// clang-format on

#define DL_DECLARE(scheme) extern const dl_store_kind dl_store_##scheme;
DL_LOCAL_STORES(DL_DECLARE)
DL_NETWORK_STORES(DL_DECLARE)
#undef DL_DECLARE

/* ---- shared by the implementations; in store.c */

enum { DL_STORE_PIECE = 1 << 20 };                     /* the most that one sink piece holds */
#define DL_STORE_SLICE ((dl_time)100 * DL_MILLISECOND) /* the longest sleep that ignores abort */

bool dl_store_key_ok(const char *key);

/* Between two steps of a call: DILOCO_ECLOSED once aborted, DILOCO_ETIMEDOUT past `until`.
 * `key` (or a prefix) is for the error text. */
DL_MUST_CHECK diloco_status dl_store_check(const atomic_bool *aborted, dl_time until,
                                           const char *key);

/* Sleep until then: DILOCO_ETIMEDOUT. DILOCO_ECLOSED: aborted. */
DL_MUST_CHECK diloco_status dl_store_sleep(const atomic_bool *aborted, dl_time until);

/* A handle whose kind has no row and whose `open` is not called: for stores that wrap
 * another. *self is the zeroed state; `*aborted` is valid as long as the handle. */
DL_MUST_CHECK diloco_status dl_store_wrap(dl_store **out, const dl_store_kind *kind,
                                          const char *url, void **self,
                                          const atomic_bool **aborted);

/* For stores that wrap another. Create without comparing what is there. Wait as the inner one does
 * between two looks, without a back-off of its own. Look as often as it would, and refuse longer
 * objects than it does. */
DL_MUST_CHECK diloco_status dl_store_claim(dl_store *store, const char *key, const dl_span *spans,
                                           size_t n_spans, bool *taken, dl_time until);
DL_MUST_CHECK diloco_status dl_store_await(dl_store *store, const char *const *prefixes, size_t n,
                                           dl_time until);
void dl_store_look_like(dl_store *store, const dl_store *inner);
/* dl_store_list without its checks of names and order, because the outer store makes them. */
DL_MUST_CHECK diloco_status dl_store_list_unchecked(dl_store *store, const char *prefix,
                                                    const char *after, dl_found_fn found,
                                                    void *context, dl_time until);

/* Longest object that it takes; SIZE_MAX: any. */
size_t dl_store_max_object(const dl_store *store);

/* faulty.c: wrap an open handle; owns it, and closes it when this fails. From a seed it
 * delays, fails (before or after the effect), truncates and flips bits; equal seeds and
 * equal calls give equal faults. Waiting is never faulty. For tests. */
typedef struct dl_faults {
    uint64_t seed;
    double p_unreachable_before, p_unreachable_after; /* per call */
    double p_truncate, p_flip;                        /* per read: a shorter object; one bit */
    double p_delay, delay_s;
    bool win_every_create; /* lets a second create of a name win: it overwrites */
    bool vouch;            /* says of all that is created that it has arrived as it was sent */
} dl_faults;
DL_MUST_CHECK diloco_status dl_store_faulty(dl_store **out, dl_store *inner, dl_faults faults);

#endif
