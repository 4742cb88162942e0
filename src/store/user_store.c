/* user_store.c - see user_store.h: a table of known stores, and the row of store_open.c that calls
 * their functions.
 *
 * The results of the caller's functions are checked like those of other kinds (store.c). An invalid
 * status becomes DILOCO_EIO, and pieces have to follow their length. A status of ours that they
 * return (the reader's, found's) keeps its text. */
#include "store/user_store.h"

#include "base/sized.h"
#include "store/kind.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the stores that are known */

/* A store of the caller's that runs of this process may open. It is freed when the last
 * registration is dropped. */
typedef struct known {
    struct known *next;
    size_t uses;
    char name[DL_STORE_USER_NAME];
    diloco_user_store store; /* its name is the one above */
} known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static known *all;

/* Returns the place of the name in the list, or the end of the list. Call it with the lock held. */
static known **find(const char *name, size_t len)
{
    known **at = &all;
    while (*at && (strncmp((*at)->name, name, len) || (*at)->name[len]))
        at = &(*at)->next;
    return at;
}

/* Returns whether two registrations have the same functions and the same user pointer. */
static bool same(const diloco_user_store *a, const diloco_user_store *b)
{
    return a->user == b->user && a->open == b->open && a->close == b->close &&
           a->create == b->create && a->put == b->put && a->read == b->read && a->list == b->list &&
           a->remove == b->remove && a->abort == b->abort;
}

/* A name is a component of keys and of urls. */
static diloco_status check(const diloco_user_store *s)
{
    const size_t len = s->name ? strnlen(s->name, DL_STORE_USER_NAME) : 0;
    if (len == 0 || len > 26 || strchr(s->name, '/') || strchr(s->name, '=') ||
        !dl_store_key_ok(s->name))
        return dl_fail(DILOCO_EINVAL,
                       "\"%.40s\" is not a valid name for a store of the caller's: take 1 to 26 "
                       "letters, digits and ._-, not beginning with a dot",
                       s->name ? s->name : "");
    if (s->open && s->close && s->create && s->put && s->read && s->list && s->remove)
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "store %s needs open, close, create, put, read, list and remove",
                   s->name);
}

/* A store that is registered twice is counted, so each registration may be dropped on its own. */
static diloco_status add(const diloco_user_store *s)
{
    known **at = find(s->name, strlen(s->name));
    if (*at && !same(&(*at)->store, s))
        return dl_fail(DILOCO_EINVAL, "there is another store of the name %s in this process",
                       s->name);
    if (!*at) {
        known *k = calloc(1, sizeof *k);
        if (!k) return dl_fail(DILOCO_ENOMEM, "out of memory for store %s", s->name);
        snprintf(k->name, sizeof k->name, "%s", s->name);
        k->store = *s;
        k->store.name = k->name;
        *at = k;
    }
    (*at)->uses++;
    return DILOCO_OK;
}

/* `given->size` is the caller's sizeof, so that an older program may have a shorter struct. The
 * name is copied; functions and the user pointer must stay valid until the registration is
 * dropped. */
diloco_status dl_store_add_user(char name[DL_STORE_USER_NAME], const diloco_user_store *given)
{
    diloco_user_store s;
    name[0] = 0;
    DL_TRY(dl_sized_in(&s, sizeof s, given, given->size, "diloco_user_store"));
    DL_TRY(check(&s));
    pthread_mutex_lock(&lock);
    const diloco_status status = add(&s);
    pthread_mutex_unlock(&lock);
    if (!status) snprintf(name, DL_STORE_USER_NAME, "%s", s.name);
    return status;
}

void dl_store_drop_user(const char *name)
{
    pthread_mutex_lock(&lock);
    known **at = find(name, strlen(name)), *k = *at;
    DL_ASSERT(k && k->uses > 0);
    if (--k->uses == 0) {
        *at = k->next;
        free(k);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- a handle */

typedef struct user_store {
    diloco_user_store store;
    char name[DL_STORE_USER_NAME];
    void *handle;
    bool is_open;
} user_store;

/* The caller's functions get seconds that remain, since they do not know our clock. */
static double left_s(dl_time until)
{
    return until == DL_NEVER ? (double)INFINITY : fmax(0, dl_seconds(until - dl_clock_now()));
}

/* The result of a function of the caller's. */
static diloco_status said(const user_store *s, const char *what, const char *key,
                          diloco_status status)
{
    if (!status) return DILOCO_OK;
    if ((unsigned)status >= DILOCO_N_STATUS) status = DILOCO_EIO;
    if (status == DILOCO_ENOENT)
        return dl_fail(status, "%s is not in " DL_STORE_USER "%s", key, s->name);
    return dl_fail(status, "%s in " DL_STORE_USER "%s: its %s says: %s", key, s->name, what,
                   diloco_status_name(status));
}

/* The functions are copied, so dropping the registration does not affect an open handle. */
static diloco_status user_open(void *self, const char *place, bool create,
                               const atomic_bool *aborted)
{
    user_store *s = self;
    const size_t len = strcspn(place, "/");
    (void)aborted; /* looked at by store.c before each call */
    pthread_mutex_lock(&lock);
    const known *k = *find(place, len);
    if (k) {
        s->store = k->store;
        memcpy(s->name, k->name, sizeof s->name);
    }
    pthread_mutex_unlock(&lock);
    if (!k)
        return dl_fail(DILOCO_EREFUSED,
                       DL_STORE_USER "%s is a store that a program supplies: only a process that "
                                     "opened its run with that store has it (diloco_run_open_with)",
                       place);
    DL_TRY(said(s, "open", place,
                s->store.open(s->store.user, &s->handle, place + len + !!place[len], create)));
    s->is_open = true;
    return DILOCO_OK;
}

static void user_close(void *self)
{
    user_store *s = self;
    if (s->is_open) s->store.close(s->store.user, s->handle);
}

/* The spans become the public type; the bytes are not copied. */
static diloco_status user_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                 bool *taken, dl_time until)
{
    user_store *s = self;
    diloco_user_bytes *parts = calloc(n_spans + 1, sizeof *parts);
    if (!parts) return dl_fail(DILOCO_ENOMEM, "%s: out of memory for %zu parts", key, n_spans);
    for (size_t i = 0; i < n_spans; i++)
        parts[i] = (diloco_user_bytes){spans[i].data, spans[i].len};
    *taken = false;
    const diloco_status status =
        s->store.create(s->store.user, s->handle, key, parts, n_spans, taken, left_s(until));
    free(parts);
    return said(s, "create", key, status);
}

static diloco_status user_put(void *self, const char *key, const void *data, size_t len,
                              dl_time until)
{
    user_store *s = self;
    return said(s, "put", key,
                s->store.put(s->store.user, s->handle, key, data, len, left_s(until)));
}

/* Between the caller's function and what it was handed to call. It has one error of ours: after
 * that, further calls of the caller's code are answered with it. */
typedef struct relay {
    const char *key;
    dl_sink sink;
    dl_found_fn found;
    void *context;
    bool begun;
    diloco_status ours; /* the returned status, with its text */
} relay;

static diloco_status relay_begin(void *context, size_t len)
{
    relay *r = context;
    if (r->ours) return r->ours;
    if (r->begun) return r->ours = dl_fail(DILOCO_EPROTO, "%s: its length was given twice", r->key);
    r->begun = true;
    return r->ours = r->sink.begin(r->sink.context, len);
}

/* The caller's code may give pieces of any length; they are cut to what a sink may get. */
static diloco_status relay_piece(void *context, const void *data, size_t len)
{
    relay *r = context;
    const unsigned char *bytes = data;
    if (!r->begun)
        return r->ours = dl_fail(DILOCO_EPROTO, "%s: a piece came before the length", r->key);
    for (size_t at = 0; at < len && !r->ours; at += DL_STORE_PIECE)
        r->ours = r->sink.piece(r->sink.context, bytes + at, dl_size_min(len - at, DL_STORE_PIECE));
    return r->ours;
}

/* A walk that was ended by our `found` stays ended, even if the caller's code calls on. */
static diloco_status relay_found(void *context, const char *key, size_t len)
{
    relay *r = context;
    if (!r->ours) r->ours = r->found(r->context, key, len);
    return r->ours;
}

/* Our own error takes precedence over the status that the caller's function returned for it. */
static diloco_status user_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    user_store *s = self;
    relay r = {.key = key, .sink = sink};
    const diloco_user_reader reader = {&r, relay_begin, relay_piece};
    const diloco_status status =
        s->store.read(s->store.user, s->handle, key, &reader, left_s(until));
    return r.ours ? r.ours : said(s, "read", key, status);
}

static diloco_status user_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                               void *context, dl_time until)
{
    user_store *s = self;
    relay r = {.key = prefix, .found = found, .context = context};
    const diloco_status status =
        s->store.list(s->store.user, s->handle, prefix, after, relay_found, &r, left_s(until));
    return r.ours ? r.ours : said(s, "list", prefix, status);
}

static diloco_status user_remove(void *self, const char *key, dl_time until)
{
    user_store *s = self;
    return said(s, "remove", key, s->store.remove(s->store.user, s->handle, key, left_s(until)));
}

/* Optional for the caller; it may run on any thread. */
static void user_abort(void *self)
{
    user_store *s = self;
    if (s->is_open && s->store.abort) s->store.abort(s->store.user, s->handle);
}

const dl_store_kind dl_store_user = {
    .scheme = "user",
    .size = sizeof(user_store),
    .open = user_open,
    .close = user_close,
    .create = user_create,
    .put = user_put,
    .read = user_read,
    .list = user_list,
    .remove = user_remove,
    .abort = user_abort,
};
