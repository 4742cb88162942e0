/* store.h - a store: named objects, each created exactly once.
 *
 * A folder, memory, a bucket, our hub: each fills one dl_store_kind, one file and one row
 * of store.c, and store_suite.c runs the same tests over all of them. Their common part (checks of
 * keys, retries, limits) is in store.c.
 *
 * Keys are "a/b/c": 1 to 512 bytes of [A-Za-z0-9._=-] in components of 1 to 255 bytes that
 * do not begin with a dot and are separated by '/'. Anything else is a bug of the caller or
 * bytes of an untrusted peer, and refused with DILOCO_EINVAL: no key leaves the store's root. No
 * key is the folder of another (a, a/b); only some stores notice.
 *
 * A handle: one thread at a time, except dl_store_abort. Open several for several threads;
 * they see one store. `until` is a time of dl_clock_now; past it a call gives
 * DILOCO_ETIMEDOUT. DILOCO_EUNREACHABLE: the store does not answer (it may come back; the
 * outcome of a create is unknown). DILOCO_EFULL, DILOCO_EIO. */
#ifndef DL_STORE_STORE_H
#define DL_STORE_STORE_H

#include "store/store_types.h"

/* Open a store by its url. DILOCO_EINVAL: no such scheme (the known ones are named);
 * DILOCO_EUNREACHABLE; DILOCO_EIO. `create`: make the root when it is not there; otherwise a
 * missing one is DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_store_open(dl_store **out, const char *url, bool create);
/* Open all stores of an address, or none. Errors are those of dl_store_open. Returns
 * DILOCO_EDIFFERS if its two stores hold different runs. */
DL_MUST_CHECK diloco_status dl_store_open_at(dl_store **out, const dl_store_address *address,
                                             bool create);
/* The objects of a node (docs/swarm.md) or a member (exchange/peers.h) at "http://host:port" or
 * "https://host:port", its bucket "run". Sends no request yet, and later each request at most
 * twice, so a node that is gone or stalled delays no caller beyond `until`. In builds with
 * DILOCO_CLOUD. Returns DILOCO_EINVAL if `access` cannot be used. */
typedef struct dl_peer_access {
    const char *pin;        /* "sha256//…" of its key (base/signature.h): believed alone */
    const char *cert, *key; /* PEM texts: our identity */
    dl_time patience;       /* how long nothing may move; at least a second */
    bool holds;             /* reads of an object that is not there wait for it, at the node */
} dl_peer_access;
/* `access` NULL or without a pin: tokens and pins as of a hub, from the environment; else copied.
 * With `holds` a read waits until its own `until`, or HOLD_S of http.c. */
DL_MUST_CHECK diloco_status dl_store_open_peer(dl_store **out, const char *address,
                                               const dl_peer_access *access);
/* Is it the url of a store that this program can open? Looks at nothing but its text. */
DL_MUST_CHECK diloco_status dl_store_check_url(const char *url);
void dl_store_close(dl_store *store); /* NULL is fine */

enum { DL_LINK_TEXT = 64 };
/* From here on this process sees every store that it opens through a slower link, one that all
 * its handles share (base/link.h has the words, store/wrap/shaped.h what they do). DILOCO_EINVAL:
 * no link, or the process has another one already. Any thread. */
DL_MUST_CHECK diloco_status dl_store_set_link(const char *text);
const char *dl_store_link(void); /* "": none was set */

/* The handle's store as a text for people. */
const char *dl_store_url(const dl_store *store);
/* Returns the address that opens another handle of the same store. Valid until close. */
const dl_store_address *dl_store_address_of(const dl_store *store);
/* "https://host:port", the server that the url names itself and that credentials would go to; "":
 * none, or one that is guarded otherwise (etcd.c), or the provider's own. */
enum { DL_STORE_SERVER = 1024 };
void dl_store_server(char *out, size_t cap, const char *url);
dl_store_counters dl_store_counts(const dl_store *store);

/* From here on each call on the handle adds the bytes that it moved to `tally` (borrowed until
 * close; NULL: to none). The bytes of opening the handle count with the first call. */
void dl_store_count_into(dl_store *store, dl_moved *tally);
dl_moved *dl_store_tally(const dl_store *store); /* NULL: none */

dl_store_speed dl_store_speed_now(const dl_store *store);

/* Returns whether a call that ended with this status is worth making again later:
 * DILOCO_EUNREACHABLE, DILOCO_ETIMEDOUT, DILOCO_EFULL, and of a folder DILOCO_EIO. A create that
 * failed so has had no effect, or the whole one. */
bool dl_store_may_recover(const dl_store *store, diloco_status status);
/* Returns DILOCO_EUNREACHABLE, with the same text, for a DILOCO_EIO or DILOCO_ETIMEDOUT that
 * lasts, because a later process may succeed. Other statuses stay. */
diloco_status dl_store_lasting(diloco_status status);

/* Let the call in progress and all later ones return DILOCO_ECLOSED. Any thread; async-
 * signal-safe; never blocks; may repeat. */
void dl_store_abort(dl_store *store);

/* Publish the spans as one object if the name is free: all or nothing to any reader,
 * durable at return. *taken (may be NULL): the name was there already. Then the call returns
 * DILOCO_OK if the bytes there are equal (a retry of one's own put). Otherwise it returns
 * DILOCO_EEXIST, also if a damaged object or no object has the name. If the store does not answer,
 * it returns that error. The spans are borrowed until the return. */
DL_MUST_CHECK diloco_status dl_store_create(dl_store *store, const char *key, const dl_span *spans,
                                            size_t n_spans, bool *taken, dl_time until);

/* Return true if the object of this handle's last successful create is confirmed to be as it was
 * sent. The store has answered with a digest of the received bytes, or they were read and compared.
 * false: the store has only acknowledged them, and a caller that needs to be sure reads them back
 * (docs/protocol.md P8). */
bool dl_store_vouches(const dl_store *store);

/* Publish, replacing what is there: heartbeats only. A reader sees the old or the new. */
DL_MUST_CHECK diloco_status dl_store_put(dl_store *store, const char *key, const void *data,
                                         size_t len, dl_time until);

/* Append the object to out, whole. DILOCO_ENOENT; DILOCO_EPROTO: longer than out->max, or what
 * takes the name is no object; out is as it was on error. */
DL_MUST_CHECK diloco_status dl_store_get(dl_store *store, dl_buf *out, const char *key,
                                         dl_time until);

/* Read the object in pieces, in order, as they arrive. */
DL_MUST_CHECK diloco_status dl_store_read(dl_store *store, const char *key, dl_sink sink,
                                          dl_time until);

/* Read a part of an object likewise; `begin` of the sink, which must be there, hears the length of
 * the whole object. dl_store_reads_parts: can the store do so? A folder and the buckets can.
 * Returns DILOCO_EPROTO if the object does not have part->version. */
bool dl_store_reads_parts(const dl_store *store);
DL_MUST_CHECK diloco_status dl_store_read_part(dl_store *store, const char *key,
                                               dl_store_part *part, dl_sink sink, dl_time until);

/* Call `found` for every key under a prefix that is a whole folder ("c/0000000012/"; "": the
 * whole store), in ascending byte order, with its size. The walk begins after `after` (NULL: from
 * the first). A status other than OK stops the walk and is returned. A prefix without objects has
 * no keys. The key is valid during the call; `found` must not use the handle. */
DL_MUST_CHECK diloco_status dl_store_list(dl_store *store, const char *prefix, const char *after,
                                          dl_found_fn found, void *context, dl_time until);

/* Gone afterwards; not there: OK. Only collection calls it, never for a key of the log. */
DL_MUST_CHECK diloco_status dl_store_delete(dl_store *store, const char *key, dl_time until);

/* Return when something under one of the prefixes may have changed since the last wait, or
 * at `until` (DILOCO_ETIMEDOUT). Returns early, so that the caller looks again: after 20 ms,
 * doubling from call to call up to 1 s, and reset by `progress`. On a bucket, where each look costs
 * money, this is 0.5 s to 10 s. A store with change events (inotify, a condition) wakes it sooner.
 * Fails only with DILOCO_ETIMEDOUT, _ECLOSED and _EINVAL (a bad prefix). */
DL_MUST_CHECK diloco_status dl_store_wait(dl_store *store, const char *const *prefixes,
                                          size_t n_prefixes, bool progress, dl_time until);

/* The probe of PROTOCOL P26: 8 concurrent creates of one random name under probe/; exactly
 * one wins and reads back its own bytes. DILOCO_EREFUSED names what the store did. Cleans up.
 * Speed is measured with an object of 256 KiB, then with one of 8 MiB where that takes little time.
 * No object is longer than `largest` bytes; below DL_PROBE_LEAST the speed is not measured. */
enum { DL_PROBE_MOST = 8 << 20, DL_PROBE_LEAST = 16 << 10 };
typedef struct dl_probe {
    double create_ms, read_ms;            /* median latency of a small object */
    double write_mb_per_s, read_mb_per_s; /* of the longest object; 0: not measured */
    int winners;                          /* of 8; 1 is right */
} dl_probe;
/* `tally` may be NULL. */
DL_MUST_CHECK diloco_status dl_store_probe(dl_probe *out, const dl_store_address *address,
                                           size_t largest, dl_moved *tally, dl_time until);
/* dl_store_probe over eight open handles of one store. */
enum { DL_PROBE_HANDLES = 8 };
DL_MUST_CHECK diloco_status dl_store_probe_handles(dl_probe *out,
                                                   dl_store *handles[DL_PROBE_HANDLES],
                                                   size_t largest, dl_time until);

#endif
