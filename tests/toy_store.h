/* toy_store.h - a store of a caller's own, in terms of the public interface: its objects are those
 * of mem://user.<place>. */
#ifndef DL_TESTS_TOY_STORE_H
#define DL_TESTS_TOY_STORE_H

#include "store/kind.h"
#include <diloco/user.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int user_store_handles; /* that are open */

static inline diloco_status user_store_open(void *user, void **handle, const char *place,
                                            bool create)
{
    char url[128];
    dl_store *inner;
    if (*(char *)user != 'm') return dl_fail(DILOCO_EINVAL, "another user");
    snprintf(url, sizeof url, "mem://user.%s", place);
    DL_TRY(dl_store_open(&inner, url, create));
    atomic_fetch_add(&user_store_handles, 1);
    *handle = inner;
    return DILOCO_OK;
}

static inline void user_store_close(void *user, void *handle)
{
    (void)user;
    atomic_fetch_sub(&user_store_handles, 1);
    dl_store_close(handle);
}

static inline dl_time user_store_until(double timeout_s)
{
    return isinf(timeout_s) ? DL_NEVER
                            : dl_time_after(dl_clock_now(), dl_time_from_seconds(timeout_s));
}

static inline diloco_status user_store_create(void *user, void *handle, const char *key,
                                              const diloco_user_bytes *parts, size_t n, bool *taken,
                                              double timeout_s)
{
    (void)user;
    dl_span *spans = calloc(n + 1, sizeof *spans);
    if (!spans) return dl_fail(DILOCO_ENOMEM, "no memory");
    for (size_t i = 0; i < n; i++)
        spans[i] = (dl_span){parts[i].data, parts[i].len};
    const diloco_status status =
        dl_store_claim(handle, key, spans, n, taken, user_store_until(timeout_s));
    free(spans);
    return status;
}

static inline diloco_status user_store_put(void *user, void *handle, const char *key,
                                           const void *data, size_t len, double timeout_s)
{
    (void)user;
    return dl_store_put(handle, key, data, len, user_store_until(timeout_s));
}

static inline diloco_status user_store_read(void *user, void *handle, const char *key,
                                            const diloco_user_reader *reader, double timeout_s)
{
    (void)user;
    const dl_sink sink = {reader->context, reader->begin, reader->piece};
    return dl_store_read(handle, key, sink, user_store_until(timeout_s));
}

static inline diloco_status user_store_list(void *user, void *handle, const char *prefix,
                                            const char *after, diloco_user_found_fn found,
                                            void *context, double timeout_s)
{
    (void)user;
    return dl_store_list(handle, prefix, after, found, context, user_store_until(timeout_s));
}

static inline diloco_status user_store_remove(void *user, void *handle, const char *key,
                                              double timeout_s)
{
    (void)user;
    return dl_store_delete(handle, key, user_store_until(timeout_s));
}

static inline void user_store_abort(void *user, void *handle)
{
    (void)user;
    dl_store_abort(handle);
}

/* By the name "mine". */
static inline diloco_user_store user_store(void)
{
    static char me[] = "me";
    return (diloco_user_store){.size = sizeof(diloco_user_store),
                               .name = "mine",
                               .user = me,
                               .open = user_store_open,
                               .close = user_store_close,
                               .create = user_store_create,
                               .put = user_store_put,
                               .read = user_store_read,
                               .list = user_store_list,
                               .remove = user_store_remove,
                               .abort = user_store_abort};
}

#endif
