/* http_store.h - what the two files of the hub's store share: http.c (objects) and http_ear.c
 * (being told of changes). */
#ifndef DL_STORE_HTTP_STORE_H
#define DL_STORE_HTTP_STORE_H

#include "store/web.h"

/* How the hub is reached; texts owned. */
typedef struct dl_http_place {
    char *base;          /* "https://host:8765" */
    char *bucket;        /* the path's first component */
    char *prefix;        /* what stands before every key: "", or "more/" */
    char *authorization; /* the header, or NULL */
    dl_web_options web;  /* its texts are the environment's */
} dl_http_place;

/* Hears of what changes in the place, on a connection and a thread of its own. */
typedef struct dl_http_ear dl_http_ear;

/* Borrows both until destroy. Connects at the first wait. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_http_ear_create(dl_http_ear **out, const dl_http_place *place,
                                               const atomic_bool *aborted);
void dl_http_ear_destroy(dl_http_ear *ear); /* NULL is fine; takes 0.1 s */

/* As dl_store_kind.wait. */
DL_MUST_CHECK diloco_status dl_http_ear_wait(dl_http_ear *ear, const char *const *prefixes,
                                             size_t n, dl_time until);

/* "/list?run=bucket%2Fmore" and its kin: append that to `url`. */
DL_MUST_CHECK diloco_status dl_http_url(dl_buf *url, const dl_http_place *place, const char *path);

#endif
