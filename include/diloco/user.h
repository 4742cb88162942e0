/* user.h - parts of a run that the caller supplies: an outer optimizer, a combiner, a codec, a
 * store. Each is a struct of functions; diloco_run_open_with takes them.
 *
 *     diloco_user_outer outer = {.size = sizeof outer, .name = "sign", .step = step};
 *     diloco_user_parts parts = {.outer = &outer};
 *     diloco_run_open_with(&run, config, "r0", &parts);
 *
 * A part is used like one of the library's own. Its option is "user:" and its name
 * (server.diloco.outer_optimizer = "user:sign"), which giving the part sets. So the option is in
 * run.json and in the digest of the options. A replica, a replay or a program without a part of
 * that name is refused, and the error names the part. The caller gives a name its meaning: a part
 * that computes something else needs another name ("sign-2").
 *
 * Every replica and every replay of the log calls outer optimizer, combiner and codec for itself,
 * and must get the same bits. So they are pure functions of their arguments. They do not depend on
 * the time, on random numbers that others do not draw, on addresses, or on anything kept from call
 * to call. The order of their sums does not depend on threads. If machines differ (another
 * instruction set, another math library), the caller has to ensure equal bits. The library computes
 * digests and reports the entry that differs. They are called with rounding to nearest, denormal
 * numbers as they are.
 *
 * Threads: outer optimizer and combiner `coefficients` are called one at a time in a run, on a
 * thread of the library's or the caller's. Combiner `elements` and the codec's functions are called
 * on several at once. Store functions are called on several threads, those of one handle one at a
 * time. No function may call the run. The object of `user` is the caller's and stays until
 * diloco_run_close; the structs are copied.
 *
 * Names are 1 to 26 letters, digits and ._- signs. `size` is each struct's sizeof (status.h); a
 * member that is 0 or NULL has its default. */
#ifndef DILOCO_USER_H
#define DILOCO_USER_H

#include <diloco/config.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DILOCO_USER_VECTORS = 2 };

/* ---- outer optimizer: the step of a commit from one shared model to the next */

/* One outer step of a fragment, in place: theta and the vectors are before, and shall be after. */
typedef struct diloco_user_step {
    uint32_t fragment;
    uint64_t commits;              /* outer steps that were taken on it: 0 at the first */
    float learning_rate, momentum; /* of the entry: server.diloco.outer_learning_rate by its
                                    * schedule, server.diloco.outer_momentum */
    size_t n;     /* elements: the fragment's parameters one after the other, as registered */
    float *theta; /* [n] */
    float *vectors[DILOCO_USER_VECTORS]; /* [n] each, n_vectors of them; 0 at first */
    const float *g;                      /* [n] the combined movement, before - after: step against
                                          * it (theta - learning_rate g is plain SGD) */
} diloco_user_step;

/* Called once for each committed entry that this replica applies, and once more if it proposed an
 * entry and another's was committed. It is called again for entries that a join, a resume or a
 * replay applies. So its memory has to be in the vectors, which are part of the shared state
 * (digests, snapshots, joins). It costs the run a buffer of its largest fragment, and is not
 * divided among threads. `step` returns DILOCO_OK, or DILOCO_ENUMERIC to abort the entry. Any other
 * status ends the call in progress and the run with that status; DILOCO_EUNREACHABLE and invalid
 * statuses end it with DILOCO_EIO. */
typedef struct diloco_user_outer {
    size_t size;
    const char *name;
    void *user;
    int n_vectors;                                 /* 0 … DILOCO_USER_VECTORS */
    const char *vector_names[DILOCO_USER_VECTORS]; /* in snapshots; NULL: "vector0", "vector1" */
    diloco_status (*step)(void *user, const diloco_user_step *step);
} diloco_user_outer;

/* ---- combiner: how the members' movements become one */

typedef struct diloco_user_members {
    size_t n;
    const float *weights; /* [n] of server.diloco.aggregation_weighting; they add up to 1 */
    const double *norm2;  /* [n] each one's squared length over the fragment */
    const double *dots;   /* [n * n] dot products of each with each; NULL without `measures` */
} diloco_user_members;

/* One of the two functions, the other NULL:
 *
 *     coefficients   c[n]: the update is the sum of c[m] g_m
 *     elements       G[i] from x[0][i] … x[n_members - 1][i], i < n, for any cut of the fragment
 *                    into pieces of at most 4096. A zero may be a negative one here and not
 *                    there: its sign may not matter. Weights are not heeded: integers become the
 *                    median, booleans the majority of the members
 *
 * With exchange "sharded" each member calls them for its piece of the fragment: coefficients with
 * what all pieces have measured, so on every machine with the same numbers. */
typedef struct diloco_user_combiner {
    size_t size;
    const char *name;
    void *user;
    bool measures; /* coefficients needs dots */
    size_t needed; /* fewest members; 0: 1. With fewer server.diloco.robust_fallback decides */
    void (*coefficients)(void *user, double *c, const diloco_user_members *members);
    void (*elements)(void *user, float *G, const float *const *x, size_t n_members, size_t n);
} diloco_user_combiner;

/* ---- codec: how a fragment's movement is written on the wire
 *
 * exchange "sharded" cuts payloads and refuses a caller's codec. */
typedef struct diloco_user_codec {
    size_t size;
    const char *name;
    void *user;
    bool lossy;  /* decode(encode(g)) may differ from g */
    bool sparse; /* many elements decode to 0: combiners that sort elements refuse it */

    /* The most bytes that a payload of n elements has. */
    size_t (*bound)(void *user, size_t n);
    /* Write the payload of g[n] to out[bound(n)] and return its length. g is finite. */
    size_t (*encode)(void *user, unsigned char *out, const float *g, size_t n);
    /* Return true if decode can read this payload. The bytes are untrusted. */
    bool (*check)(void *user, const unsigned char *payload, size_t len, size_t n);
    /* out[count] = elements [first, first + count) of the n of a payload that passed check; first
     * is a multiple of 4096, count at most that. The library refuses values that are not finite. */
    void (*decode)(void *user, float *out, const unsigned char *payload, size_t len, size_t n,
                   size_t first, size_t count);
} diloco_user_codec;

/* ---- store: named objects, created exactly once
 *
 * Its URL is user://NAME or user://NAME/PLACE; with run.store empty it is the first. The name is
 * known in this process as long as a run that was opened with it is open. Other runs, and the
 * functions of <diloco/inspect.h>, find the store by it. Two stores of one name at a time are
 * refused.
 *
 * Keys are "a/b/c" of letters, digits and ._=- signs, at most 512 bytes. Functions return
 * DILOCO_OK, or: DILOCO_ENOENT not there; DILOCO_EUNREACHABLE it may come back (it is asked again);
 * DILOCO_ETIMEDOUT timeout_s have passed; DILOCO_EFULL, DILOCO_EIO, DILOCO_EREFUSED. The functions
 * that they are given to call (reader, found) may return a status: then return that. */
typedef struct diloco_user_bytes { /* this struct does not grow */
    const void *data;
    size_t len;
} diloco_user_bytes;

/* Hear an object: begin once with its length, then piece by piece, in order. */
typedef struct diloco_user_reader {
    void *context;
    diloco_status (*begin)(void *context, size_t len);
    diloco_status (*piece)(void *context, const void *data, size_t len);
} diloco_user_reader;

typedef diloco_status (*diloco_user_found_fn)(void *context, const char *key, size_t len);

typedef struct diloco_user_store {
    size_t size;
    const char *name;
    void *user;

    /* Open a handle, into *handle. `place`: the text after the name and a slash, or "". `create`:
     * make the place if it does not exist; otherwise return DILOCO_ENOENT. close is called only for
     * handles of open. */
    diloco_status (*open)(void *user, void **handle, const char *place, bool create);
    void (*close)(void *user, void *handle);

    /* Publish the parts, one after the other, as one object if the name is free. It is all or
     * nothing to any reader and durable at return, and of several writers at once exactly one
     * succeeds. *taken = true and DILOCO_OK: it was there already. */
    diloco_status (*create)(void *user, void *handle, const char *key,
                            const diloco_user_bytes *parts, size_t n_parts, bool *taken,
                            double timeout_s);
    /* Publish, replacing what is there: a reader sees the old or the new. */
    diloco_status (*put)(void *user, void *handle, const char *key, const void *data, size_t len,
                         double timeout_s);
    diloco_status (*read)(void *user, void *handle, const char *key,
                          const diloco_user_reader *reader, double timeout_s);
    /* Call found for every key that begins with `prefix` ("" or ending in a slash) and is greater
     * than `after` (NULL: all) in byte order, ascending, with its object's length. */
    diloco_status (*list)(void *user, void *handle, const char *prefix, const char *after,
                          diloco_user_found_fn found, void *context, double timeout_s);
    /* Gone afterwards; not there: DILOCO_OK. */
    diloco_status (*remove)(void *user, void *handle, const char *key, double timeout_s);

    /* Optional: let the call in progress on this handle return soon. Any thread, async-signal-safe.
     */
    void (*abort)(void *user, void *handle);
} diloco_user_store;

/* ---- all of them; NULL: the library's, as the options say */
typedef struct diloco_user_parts {
    const diloco_user_outer *outer;
    const diloco_user_combiner *combiner;
    const diloco_user_codec *codec;
    const diloco_user_store *store;
} diloco_user_parts;

#ifdef __cplusplus
}
#endif
#endif
