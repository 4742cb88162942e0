/* bucket.h - the common part of the stores over object services (S3, Google, Azure).
 *
 * A service fills one dl_dialect and a row of store_open.c; every kind of call is bucket.c's, with
 * big objects in bucket_bulk.c. The url is
 *
 *     scheme://bucket[/prefix][?option=value&…]
 *
 * with options endpoint, ca (a PEM file), pin (web.h), part_mib, parallel, halves and the dialect's
 * own.
 * Nothing secret is in a url: one with userinfo is refused, credentials come from where
 * each provider's own tools take them (docs/stores.md). */
#ifndef DL_STORE_HTTP_BUCKET_H
#define DL_STORE_HTTP_BUCKET_H

#include "store/http/sigv4.h"
#include "store/http/web.h"

typedef struct dl_bucket dl_bucket;

enum {
    DL_BUCKET_PREFIX = 400, /* the longest: below 1024 with a bulk object's name appended */
    DL_BUCKET_NAME = 1024,
    DL_BUCKET_PAIRS = 8,
    DL_BUCKET_OPTIONS = 16,
    DL_BUCKET_PAGE = 4 << 20, /* the XML of a thousand keys is below 1.6 MiB */
};

/* A request, before the dialect gives it a url and a signature. All borrowed. */
typedef struct dl_bucket_request {
    const char *method;
    const char *name; /* below the prefix: a key, or one of bucket_bulk.c; NULL: the bucket */
    dl_pair query[DL_BUCKET_PAIRS], headers[DL_BUCKET_PAIRS];
    size_t n_query, n_headers;
    const dl_span *body;
    size_t n_body;
    bool bulk;        /* a piece of a big object: may go unsigned, where TLS guards it */
    dl_time patience; /* as in web.h, and so is */
    bool lists;
} dl_bucket_request;

/* Where a listing's XML has what. */
typedef struct dl_bucket_listing {
    const char *root, *entry, *key, *size, *etag, *modified; /* paths of xml.h */
    const char *truncated; /* "true" there: more to come, after the last key; NULL: by marker */
    const char *marker;    /* not empty: more to come; NULL */
} dl_bucket_listing;

typedef struct dl_dialect {
    const char *scheme;
    const char *const *options; /* of the url, its own; until NULL */
    dl_pair if_absent;          /* the header that makes a PUT a create */
    dl_bucket_listing listing;

    /* Fill in url and headers, signed with b->now. Like a prepare: does not call the dl_web. */
    diloco_status (*dress)(dl_bucket *b, dl_web_exchange *x, const dl_bucket_request *r);
    /* The query of one page: names that begin with `prefix` (whole, with the bucket's own), after
     * `after` (likewise; NULL: from the first) or from `marker` ("": from the first). */
    void (*list)(dl_bucket_request *r, const char *prefix, const char *after, const char *marker,
                 const char *max);
    /* Read b's credentials again; those there stay when it fails. May call the dl_web. Optional. */
    diloco_status (*renew)(dl_bucket *b, dl_time until);
    /* The service's code of a refusal means that the credentials have expired. */
    bool (*expired)(const char *code);
    /* Store a big object in parts, under a name that no other writer uses. It is whole at
     * return. */
    diloco_status (*upload)(dl_bucket *b, const char *name, const dl_span *spans, size_t n_spans,
                            dl_time until);
    /* Remove leftovers of unfinished uploads that are older than a day. Optional. */
    diloco_status (*sweep)(dl_bucket *b, dl_time until);
} dl_dialect;

/* The private state of a store begins with this. */
/* A handle of a bucket: the url's parts, the HTTP client, and what is known of clock and
 * credentials. One thread uses it at a time. */
struct dl_bucket {
    const dl_dialect *dialect;
    const atomic_bool *aborted;
    dl_web *web;
    char *text;            /* owned: the url's parts, zero-terminated */
    char *bucket, *prefix; /* prefix: "" or ending with '/' */
    dl_pair options[DL_BUCKET_OPTIONS];
    size_t n_options;
    char label[DL_BUCKET_NAME];    /* "s3://bucket/prefix", for people */
    size_t part_bytes, parallel;   /* of big objects and ranged reads */
    bool vouched;                  /* all bodies of the create in flight came back as digests */
    bool halves;                   /* the store shows objects that are still being written */
    int64_t skew_s;                /* the service's clock minus ours, once that mattered */
    int64_t expires;               /* of the credentials, on the service's clock; 0: never */
    bool stale, renewed;           /* they were refused as expired; some were read once */
    dl_time look_again;            /* not before, where they are to be renewed */
    dl_buf entries, names;         /* of a listing's page */
    struct dl_bucket_sizes *sizes; /* owned: state of bucket_bulk.c about big objects */
};

/* Read the url after "scheme://", make the HTTP client. DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_bucket_begin(dl_bucket *b, const dl_dialect *dialect,
                                            const char *place, const atomic_bool *aborted);
const char *dl_bucket_option(const dl_bucket *b, const char *name); /* NULL: not given */

/* The end of an open: is the bucket there, may we list it? Sweeps when `create`. DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_bucket_ready(dl_bucket *b, bool create);

/* Seconds since 1970, by the service's clock as far as we know it. */
int64_t dl_bucket_now(const dl_bucket *b);

/* One request. `answer` (NULL: any 2xx is right, dl_bucket_refusal what is not) sees what comes
 * after clock and credentials were mended. */
typedef diloco_status (*dl_bucket_response_fn)(void *context, dl_bucket *b, dl_web_exchange *x);
DL_MUST_CHECK diloco_status dl_bucket_send_request(dl_bucket *b, const dl_bucket_request *r,
                                                   dl_bucket_response_fn answer, void *context,
                                                   size_t max_text, dl_time until);

/* A big body in parts of b->part_bytes or more, several at once. `request` fills in all but the
 * body for part `index`; `answer` (may be NULL) sees its 2xx. */
typedef struct dl_bucket_cut {
    const dl_span *spans;
    size_t n_spans, part_bytes, n_parts;
    void *context;
    diloco_status (*request)(void *context, size_t index, dl_bucket_request *r);
    diloco_status (*answer)(void *context, size_t index, dl_web_exchange *x);
} dl_bucket_cut;
/* Sets all but what follows n_parts; parts grow so that there are max_parts at most. */
void dl_bucket_cut_up(dl_bucket_cut *cut, const dl_bucket *b, const dl_span *spans, size_t n_spans,
                      size_t max_parts);
DL_MUST_CHECK diloco_status dl_bucket_send(dl_bucket *b, const char *name, const dl_bucket_cut *cut,
                                           dl_time until);

/* The service's word for what is wrong: "NoSuchKey"; "" when it says none. */
void dl_bucket_code(char code[64], const dl_web_exchange *x);
bool dl_bucket_is_missing(const dl_web_exchange *x); /* the bucket itself, says the answer */
/* Words an answer that is not right: clock, credentials, permissions, no such bucket by name. */
diloco_status dl_bucket_refusal(const dl_bucket *b, const dl_web_exchange *x);

/* Add pairs; a bug if they do not fit. */
void dl_bucket_query(dl_bucket_request *r, const char *name, const char *value);
void dl_bucket_header(dl_bucket_request *r, const char *name, const char *value);

/* Has it been a day from `then` ("2026-01-31T12:00:00.000Z" or an HTTP date) to the answer? */
bool dl_bucket_is_old(const char *then, const dl_web_exchange *x);

/* ---- the members of a kind */

diloco_status dl_bucket_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                               bool *taken, dl_time until);
diloco_status dl_bucket_put(void *self, const char *key, const void *data, size_t len,
                            dl_time until);
diloco_status dl_bucket_read(void *self, const char *key, dl_sink sink, dl_time until);
diloco_status dl_bucket_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                             void *context, dl_time until);
diloco_status dl_bucket_read_part(void *self, const char *key, dl_store_part *part, dl_sink sink,
                                  dl_time until);
diloco_status dl_bucket_remove(void *self, const char *key, dl_time until);
bool dl_bucket_vouches(const void *self);
void dl_bucket_traffic(const void *self, dl_store_counters *counts);
void dl_bucket_close(void *self);

#define DL_BUCKET_PAUSE_MIN (500 * DL_MILLISECOND)
#define DL_BUCKET_PAUSE_MAX (10 * DL_SECOND)
#define DL_BUCKET_KIND                                                                             \
    .pause_min = DL_BUCKET_PAUSE_MIN, .pause_max = DL_BUCKET_PAUSE_MAX, .close = dl_bucket_close,  \
    .create = dl_bucket_create, .put = dl_bucket_put, .read = dl_bucket_read,                      \
    .read_part = dl_bucket_read_part, .list = dl_bucket_list, .remove = dl_bucket_remove,          \
    .vouches = dl_bucket_vouches, .traffic = dl_bucket_traffic

#endif
