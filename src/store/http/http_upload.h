/* http_upload.h - a long object to a hub in parts, several at a time, over as many connections: one
 * alone does not fill a long line. docs/hub.md has the requests, which are those of S3.
 *
 * The parts are stored beside the store's objects until the last request joins them, so the object
 * is there at once or not at all. No part is sent twice: a broken upload is kept, and the same
 * object under the same key continues it. Parts without further use (another object comes, the name
 * is taken, the hub refuses) are removed from the hub first. */
#ifndef DL_STORE_HTTP_HTTP_UPLOAD_H
#define DL_STORE_HTTP_HTTP_UPLOAD_H

#include "base/hash.h"
#include "store/http/web.h"

typedef struct dl_http_upload {
    size_t part_bytes; /* the least; 0: 2 MiB */

    /* of the one that broke; id "": none did */
    char key[DL_KEY_MAX + 1], id[64];
    dl_hash digest;
    size_t len, n_parts;
    char (*tags)[64]; /* owned, [n_parts]: "" for a part that is not there yet */
    bool vouched;     /* each part that is there came back as its digest */
    bool none;        /* this hub does not know of parts */
} dl_http_upload;

/* A body was sent, and this is the 2xx: does it have the digest of that body (docs/hub.md)? */
bool dl_http_took(const dl_web_exchange *x);

/* How the object is reached. */
typedef struct dl_http_object {
    const char *key;
    void *context;
    /* As a prepare, but for the method: `what`, the url of the key without a query, headers that
     * all have. The key is this one, or that of an upload before. */
    diloco_status (*address)(void *context, const char *key, dl_web_exchange *x);
    diloco_status (*refused)(const dl_web_exchange *x); /* words an answer that is not right */
} dl_http_object;

/* Create it. *taken: the name was there; else upload->vouched says whether all of it is confirmed.
 * DILOCO_OK with upload->none: nothing was done, put it whole. Errors of dl_web_run;
 * DILOCO_EUNREACHABLE also where the hub has lost the parts: start again. */
DL_MUST_CHECK diloco_status dl_http_upload_run(dl_http_upload *upload, dl_web *web,
                                               const dl_http_object *object, const dl_span *spans,
                                               size_t n_spans, bool *taken, dl_time until);

void dl_http_upload_deinit(dl_http_upload *upload);

#endif
