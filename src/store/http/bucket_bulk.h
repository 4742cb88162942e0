/* bucket_bulk.h - objects too big for one conditional PUT: shared by bucket.c and
 * bucket_bulk.c. The pointer's format is in docs/formats.md. */
#ifndef DL_STORE_HTTP_BUCKET_BULK_H
#define DL_STORE_HTTP_BUCKET_BULK_H

#include "base/hash.h"
#include "store/http/bucket.h"
#include "store/http/web_read.h"

/* ---- pointers: the objects at the keys of big objects */

enum { DL_POINTER_BYTES = 128, DL_POINTER_ID = 16 };

typedef struct dl_pointer {
    uint64_t len; /* of the object */
    dl_hash digest;
    unsigned char id[DL_POINTER_ID]; /* random: the object is .b/<key>/<id in hex> */
} dl_pointer;

void dl_pointer_write(unsigned char out[DL_POINTER_BYTES], const dl_pointer *pointer);
bool dl_pointer_read(dl_pointer *out, const void *data, size_t len); /* false: it is no pointer */

/* ---- big objects below the interface */

/* Returns whether the object is to be stored by pointer: it is long, or would be taken for a
 * pointer. An entry of the log never is. */
bool dl_bulk_is(const dl_bucket *b, const char *key, const dl_span *spans, size_t n_spans);
diloco_status dl_bulk_publish(dl_bucket *b, const char *key, const dl_span *spans, size_t n_spans,
                              bool *taken, dl_time until); /* taken NULL: replace */
diloco_status dl_bulk_read(dl_bucket *b, const char *key, dl_sink sink, dl_time until);

typedef struct dl_bulk_look {
    bool there, is_pointer;
    bool half; /* where the store shows halves: of a pointer, so nothing yet */
    dl_pointer pointer;
} dl_bulk_look;
diloco_status dl_bulk_look_at(dl_bucket *b, const char *key, dl_bulk_look *out, dl_time until);
diloco_status dl_bulk_remove(dl_bucket *b, const char *key, const dl_pointer *pointer,
                             dl_time until);

/* An entry of a listing whose object is as long as a pointer, or half of one. `tag` distinguishes
 * successive objects at a key, so that each is read once. */
diloco_status dl_bulk_size(dl_bucket *b, const char *key, dl_hash tag, size_t *size, bool *there,
                           dl_time until);

/* The name after which a listing continues: past all of .b/ once it is in there, unless .b/ itself
 * is listed. */
const char *dl_bulk_skip(const char *prefix, const char *last);

/* Remove big objects that were not published within a day. */
diloco_status dl_bulk_sweep(dl_bucket *b, dl_time until);

/* ---- functions of bucket.c for this file, by name below the prefix */

diloco_status dl_bucket_put_small(dl_bucket *b, const char *key, const dl_span *spans,
                                  size_t n_spans, bool *taken, dl_time until);
diloco_status dl_bucket_read_plain(dl_bucket *b, const char *name, dl_web_position *at,
                                   dl_sink sink, dl_time until); /* `at` NULL: all of it */
diloco_status dl_bucket_delete(dl_bucket *b, const char *name, dl_time until);

/* Credentials that are good for a while. */
diloco_status dl_bucket_renew(dl_bucket *b, dl_time until);
/* Of an answer that is not right: is the exchange to be made again (x->again is set); have the
 * credentials expired (b->stale is)? */
bool dl_bucket_mends(dl_bucket *b, dl_web_exchange *x);
bool dl_bucket_has_expired(dl_bucket *b, const dl_web_exchange *x);

/* A body was sent, and this is the 2xx answer: b->vouched stays only if it gives the body's
 * digest. */
void dl_bucket_took(dl_bucket *b, const dl_web_exchange *x);

typedef struct dl_bucket_entry {
    size_t name_at, size;
    dl_hash tag; /* of the ETag */
    bool old;    /* a day at least */
} dl_bucket_entry;
typedef diloco_status (*dl_bucket_visit)(void *context, dl_bucket *b, const char *name,
                                         const dl_bucket_entry *entry, dl_time until);
/* All names under a prefix, whatever they are. A visit may make requests, not list. */
diloco_status dl_bucket_walk(dl_bucket *b, const char *prefix, const char *after,
                             dl_bucket_visit visit, void *context, dl_time until);

#endif
