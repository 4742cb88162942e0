/* change_stream.h - a thread that follows a network store's change events on its own connection,
 * and reports when there is reason to look. A store of web.h implements dl_store_kind.wait with it.
 *
 * The store makes the request for its stream and may say which bytes of it mean something. */
#ifndef DL_STORE_HTTP_CHANGE_STREAM_H
#define DL_STORE_HTTP_CHANGE_STREAM_H

#include "store/http/web.h"

/* `folders`: the first folders of all prefixes that were ever waited for, zero-terminated each, in
 * len bytes; len 0: all keys. Both functions are called from the ear's thread only. */
typedef struct dl_change_stream_args {
    const dl_web_options *web;
    const atomic_bool *aborted;
    void *context;
    diloco_status (*prepare)(void *context, dl_web_exchange *x, const char *folders, size_t len);
    /* Is there an event in these bytes? NULL: in any. */
    bool (*is_event)(void *context, const void *data, size_t len);
} dl_change_stream_args;

typedef struct dl_change_stream dl_change_stream;

/* Connects at the first wait. The first event of a stream says that the subscription is active, so
 * the look that follows finds earlier changes. `args` is copied; its pointers are borrowed until
 * destroy. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_change_stream_create(dl_change_stream **out,
                                                    const dl_change_stream_args *args);
void dl_change_stream_destroy(dl_change_stream *stream); /* NULL is fine; takes 0.1 s */

/* As dl_store_kind.wait. While there is no stream it ends once a second. */
DL_MUST_CHECK diloco_status dl_change_stream_wait(dl_change_stream *stream,
                                                  const char *const *prefixes, size_t n,
                                                  dl_time until);

#endif
