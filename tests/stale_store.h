/* stale_store.h - a store whose listings leave out what is newest, as an eventually consistent one
 * does. Creates and reads are those of the store inside. */
#ifndef DL_TESTS_STALE_STORE_H
#define DL_TESTS_STALE_STORE_H

#include "check.h"
#include "store/kind.h"

#include <string.h>

/* A store whose next `n_stale` listings leave out every key that has `hidden` in it. */
typedef struct stale {
    dl_store *inner;
    const char *hidden;
    int n_stale;
    dl_found_fn found;
    void *context;
} stale;

static inline diloco_status stale_create(void *self, const char *key, const dl_span *spans,
                                         size_t n_spans, bool *taken, dl_time until)
{
    return dl_store_claim(((stale *)self)->inner, key, spans, n_spans, taken, until);
}
static inline diloco_status stale_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    return dl_store_read(((stale *)self)->inner, key, sink, until);
}
static inline diloco_status found_recent(void *context, const char *key, size_t len)
{
    const stale *s = context;
    return strstr(key, s->hidden) ? DILOCO_OK : s->found(s->context, key, len);
}
static inline diloco_status stale_list(void *self, const char *prefix, const char *after,
                                       dl_found_fn found, void *context, dl_time until)
{
    stale *s = self;
    if (s->n_stale == 0) return dl_store_list(s->inner, prefix, after, found, context, until);
    s->n_stale--;
    s->found = found;
    s->context = context;
    return dl_store_list(s->inner, prefix, after, found_recent, s, until);
}
static inline void stale_close(void *self)
{
    dl_store_close(((stale *)self)->inner);
}
static const dl_store_kind stale_kind = {.scheme = "stale",
                                         .size = sizeof(stale),
                                         .close = stale_close,
                                         .create = stale_create,
                                         .read = stale_read,
                                         .list = stale_list};

/* Opens a handle of the store at `url`, which exists; it is fresh until n_stale is set. */
static inline dl_store *stale_open(stale **out, const char *url)
{
    const atomic_bool *aborted;
    dl_store *store;
    void *self;
    CHECK_OK(dl_store_wrap(&store, &stale_kind, "stale", &self, &aborted));
    *out = self;
    (*out)->hidden = "";
    CHECK_OK(dl_store_open(&(*out)->inner, url, true));
    return store;
}

#endif
