/* web_read.h - one object read over HTTP: in ranges, resumed where a connection broke, all of
 * them of the object that the first answer showed.
 *
 * The first request asks for bytes 0 to `range` - 1; the head of its answer gives length and ETag.
 * The rest is read at the same time in ranges of that size, several at once. Each has If-Match on
 * that ETag, so halves of two objects never mix. A range that breaks off continues where it was.
 * The sink gets all in order; early bytes wait in memory, at most width * range.
 */
#ifndef DL_STORE_HTTP_WEB_READ_H
#define DL_STORE_HTTP_WEB_READ_H

#include "store/http/web.h"

/* Where a read of an object begins and ends, and of which version. */
typedef struct dl_web_position {
    size_t begin; /* the bytes before are not read; below the object's length */
    /* The bytes from here on are not read; 0, or beyond the object's end: all are. A server that
     * answers with the whole object is then refused with DILOCO_EPROTO. */
    size_t end;
    /* The strong ETag that the object must have; "" with begin 0: any. Set by the first answer;
     * "" if the server gives none. */
    char etag[256];
} dl_web_position;

typedef struct dl_web_source {
    size_t range; /* bytes of one request, at least 1 */
    size_t width; /* requests at once, 1 to DL_WEB_WIDTH */
    void *context;
    /* As of a batch: make a GET of the object. `range` ("bytes=0-99") and `if_match` are values of
     * headers to send; NULL: leave that one out. */
    diloco_status (*prepare)(void *context, dl_web_exchange *x, const char *range,
                             const char *if_match);
    /* As of a batch, for answers other than 200, 206, 412 and 416: words them, or asks for
     * another try. */
    diloco_status (*refused)(void *context, dl_web_exchange *x);
    dl_web_position *at; /* NULL: the whole object, of any version */
} dl_web_source;

/* Both functions of the sink must be there. The first one gets the length of the whole object.
 * DILOCO_EPROTO: the object changed meanwhile, or is not that of `at`, or the answers do not fit
 * together. */
DL_MUST_CHECK diloco_status dl_web_read(dl_web *web, const dl_web_source *source, dl_sink sink,
                                        dl_time until);

#endif
