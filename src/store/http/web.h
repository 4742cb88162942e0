/* web.h - the HTTP client that every network store shares, above libcurl.
 *
 * A dl_web is one thread's: a pool of connections that stay open between calls, the clock of
 * retries, a count of bytes. It runs exchanges, a request and its answer each, one or several
 * at a time. The common work of every store is done here, once:
 *
 *   - `until` and the abort flag end a call within about 0.1 s: DILOCO_ETIMEDOUT, DILOCO_ECLOSED;
 *   - a connection that cannot be made, breaks, or moves nothing for `patience`, and the
 *     answers 408, 429 and 5xx (not 501, 505, 507) are tried again, after a jittered back-off from
 *     0.1 s doubling to 5 s (or what Retry-After asks, up to 30 s), DL_WEB_TRIES times in all;
 *     then DILOCO_EUNREACHABLE. So *a request may have had its effect more than once*: a
 *     conditional write that was cut answers its second try with "taken", and the bytes decide;
 *   - TLS: the server's certificate and name are verified; DILOCO_EREFUSED when they are wrong;
 *   - HTTP/1.1, no redirects but where an exchange `follows` them, no cookies, no proxy for
 * loopback and link-local addresses;
 *   - an error text names `what`, never a url or a header: those may hold secrets.
 *
 * SIGPIPE is kept from the program. Allocates in every call: a sync over a network store does. */
#ifndef DL_STORE_HTTP_WEB_H
#define DL_STORE_HTTP_WEB_H

#include "store/kind.h"

enum {
    DL_WEB_TRIES = 6,
    DL_WEB_WIDTH = 16,      /* the most exchanges at once */
    DL_WEB_TEXT = 64 << 10, /* how much of an error's body is kept */
    DL_WEB_URL = 8192,
};

typedef struct dl_web dl_web;

typedef struct dl_web_options {
    const char *ca_file; /* PEM, instead of the system's authorities; NULL: those */
    /* "sha256//<base64>" of the server's public key (curl's CURLOPT_PINNEDPUBLICKEY): then the key
     * alone is trusted, whatever its name and its signer. NULL: none. */
    const char *pin;
    const char *cert, *key; /* PEM texts: our identity, for a server that asks; NULL: no identity */
    int tries;              /* 0: DL_WEB_TRIES */
    dl_time patience;       /* of exchanges that name none; 0: 30 s */
} dl_web_options;

/* `options` may be NULL; its texts are copied. `aborted` is borrowed until destroy.
 * DILOCO_ENOMEM; DILOCO_EINVAL: the file or the pin cannot be used (noticed by the first call
 * over TLS). */
DL_MUST_CHECK diloco_status dl_web_create(dl_web **out, const dl_web_options *options,
                                          const atomic_bool *aborted);
void dl_web_destroy(dl_web *web); /* NULL is fine */

/* All that went over the connections so far, heads included, TLS and TCP not. */
typedef struct dl_web_traffic {
    uint64_t sent, received, n_requests;
    uint64_t n_reads, n_writes; /* of them, as a provider bills them; removing is free */
} dl_web_traffic;
dl_web_traffic dl_web_counts(const dl_web *web);
/* The bytes, as in a kind's `traffic`. */
void dl_web_add_traffic(dl_store_counters *counts, const dl_web *web);

/* Round trip of the line, as the kernel measured it, without the server's own time. The shortest so
 * far; 0: not known. */
dl_time dl_web_trip(const dl_web *web);

/* ---- an exchange */

typedef struct dl_web_exchange {
    /* The request: `prepare` fills it, again for each try; it is cleared before. */
    const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
    dl_buf url;         /* text; filled with dl_buf_addf */
    const char *what;   /* for people: "c/1/r0.0 in s3://bucket/run"; borrowed until finish */
    const dl_span *body;
    size_t n_body;    /* borrowed until finish. n_body 0: PUT and POST have an empty body */
    bool expect;      /* ask before sending the body (Expect: 100-continue) */
    dl_time patience; /* how long nothing may move; 0: the options' */
    bool lists;       /* a page of a listing, which is billed like a write */
    bool follows;     /* a GET whose redirections are followed (web_redirect.c) */
    int keeps;        /* a status such as 500 by which the server also refuses requests: `finish`
                       * sees it, and it is not tried again by itself; 0: none */

    /* Where the body of a 2xx answer goes, in order, as it arrives, at most DL_STORE_PIECE at once.
     * `begin`, when it is there, gets the length first (an answer without one is DILOCO_EPROTO
     * then). A status of theirs ends the call and is returned. piece NULL: into `text`. Set it in
     * `prepare`. Delivered bytes are not taken back: after the first one, a broken exchange is
     * tried again only if `resumes`. Then `prepare` asks for the rest. */
    dl_sink sink;
    bool resumes;

    /* The answer; `finish` sees only those that are not tried again by themselves. */
    int status;
    dl_buf text;      /* the body of an error, cut at DL_WEB_TEXT; of a 2xx without a sink, whole */
    size_t delivered; /* bytes given to the sink, over all tries */

    size_t index;             /* which of the batch */
    int attempt;              /* 0 at first */
    bool again;               /* `finish` sets it: not good, try it once more (same budget) */
    struct dl_web_slot *slot; /* web.c's */
} dl_web_exchange;

/* In `prepare`: one more header, "Name: value". Any '\r' or '\n' in it is DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_web_header(dl_web_exchange *x, const char *format, ...)
    DL_PRINTF(2, 3);

/* In `finish` (and the sink): the value of a header of the answer, NULL when the answer lacks it.
 * Valid until the next call. */
const char *dl_web_response_header(const dl_web_exchange *x, const char *name);

/* Seconds since 1970 of a date as HTTP writes it, or as ISO 8601 does, in UTC; 0: it is no date. */
int64_t dl_web_time(const char *date);
/* The same of the answer's Date; 0 when it has none. */
int64_t dl_web_date(const dl_web_exchange *x);

/* ---- running them */

typedef struct dl_web_batch {
    size_t n;     /* exchanges 0 … n-1; a sink or finish may let it grow */
    size_t width; /* at most that many at once; number i begins only when all below i - width + 1
                   * are finished. 1 to DL_WEB_WIDTH */
    size_t
        max_text; /* the longest 2xx body without a sink; longer is DILOCO_EPROTO. 0: DL_WEB_TEXT */
    void *context;
    /* Both may return an error, which ends the batch and is returned. Neither calls the dl_web. */
    diloco_status (*prepare)(void *context, dl_web_exchange *x);
    diloco_status (*finish)(void *context, dl_web_exchange *x); /* NULL: any 2xx is right, and
                                                                 * dl_web_unexpected what is not */
} dl_web_batch;

/* Run all; the first error ends the others. */
DL_MUST_CHECK diloco_status dl_web_run(dl_web *web, const dl_web_batch *batch, dl_time until);

/* "<what>: the server answered 403 (<code and message out of its body>)". Statuses: 401 and
 * 403 DILOCO_EREFUSED, 404 DILOCO_ENOENT, 507 DILOCO_EFULL, other 4xx DILOCO_EIO, else
 * DILOCO_EPROTO. */
diloco_status dl_web_unexpected(const dl_web_exchange *x);

/* Append `text` to out, all but letters, digits and -._~ (and '/' if `keep_slash`) as %XX. */
DL_MUST_CHECK diloco_status dl_web_escape(dl_buf *out, const char *text, bool keep_slash);

#endif
