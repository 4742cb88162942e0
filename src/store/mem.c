/* mem.c - "mem://name": a store in this process's memory, for tests and for replicas that are
 * threads of one program.
 *
 * All handles of a name share one `place`, found in a process-wide list and gone with the
 * last handle. Its objects are in a sorted array of pointers. An object never changes after it was
 * published, and has a reference count. So a reader holds the object, not the lock, while its sink
 * runs. A listing holds a few objects at a time, and others after a change. `found` runs without
 * the lock. */
#include "base/thread.h"
#include "store/kind.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct object {
    size_t refs; /* under the place's lock: the array, and each reader */
    size_t len;
    char key[DL_KEY_MAX + 1];
    _Alignas(16) unsigned char data[];
} object;

typedef struct place {
    struct place *next; /* under places_lock */
    size_t handles;     /* under places_lock */
    char *name;

    pthread_mutex_t lock; /* guards all below, and every object's refs */
    pthread_cond_t changed;
    atomic_uint_least64_t n_changes; /* read without it, too */
    object **objects;                /* ascending by key */
    size_t n, cap;
} place;

enum { BATCH = 64, FETCHED_AHEAD = 8 }; /* objects that a listing holds, and has in the cache */

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static place *places;

typedef struct mem_store {
    place *place;
    const atomic_bool *aborted;
    uint64_t seen; /* n_changes when the last wait ended */
} mem_store;

/* ---- places */

static place *place_new(const char *name)
{
    place *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    if (!(p->name = strdup(name))) {
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    dl_cond_init(&p->changed);
    return p;
}

static void place_free(place *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->objects[i]);
    free(p->objects);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->name);
    free(p);
}

/* Finds the place, or makes it. Handles are counted under the list's lock, so a place cannot
 * disappear between the search and the count. */
static diloco_status mem_open(void *self, const char *name, bool create, const atomic_bool *aborted)
{
    mem_store *m = self;
    m->aborted = aborted;
    if (!dl_store_key_ok(name))
        return dl_fail(DILOCO_EINVAL, "mem://%s: a name is made of letters, digits and ._=-", name);

    pthread_mutex_lock(&places_lock);
    place *p = places;
    while (p && strcmp(p->name, name))
        p = p->next;
    bool missing = !p;
    if (missing && create && (p = place_new(name))) {
        p->next = places;
        places = p;
    }
    if (p) p->handles++;
    m->place = p;
    pthread_mutex_unlock(&places_lock);

    if (p) return DILOCO_OK;
    if (!create) return dl_fail(DILOCO_ENOENT, "mem://%s: no handle of that store is open", name);
    return dl_fail(DILOCO_ENOMEM, "mem://%s: no memory", name);
}

/* The last handle removes the place and its objects. */
static void mem_close(void *self)
{
    place *p = ((mem_store *)self)->place;
    if (!p) return;
    pthread_mutex_lock(&places_lock);
    bool last = --p->handles == 0;
    if (last) {
        place **at = &places;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
    }
    pthread_mutex_unlock(&places_lock);
    if (last) place_free(p);
}

/* ---- objects; all under the lock */

/* The index of the first key >= key; *there: it is that key. */
static size_t find(const place *p, const char *key, bool *there)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(p->objects[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *there = low < p->n && !strcmp(p->objects[low]->key, key);
    return low;
}

/* The number of keys up to the last one with that prefix, if the first one is at `from` or later.
 */
static size_t end_of(const place *p, const char *prefix, size_t from)
{
    const size_t len = strlen(prefix);
    size_t low = from, high = p->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strncmp(p->objects[middle]->key, prefix, len) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* An object that a reader still holds survives its removal. */
static void unref(object *o)
{
    if (--o->refs == 0) free(o);
}

/* Every change wakes all waiting handles, and each compares the count with what it has seen. */
static void notify(place *p)
{
    p->n_changes++;
    pthread_cond_broadcast(&p->changed);
}

/* Returns false if there is no memory; then nothing has changed. */
static bool insert(place *p, size_t at, object *o)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 16;
        object **more = reallocarray(p->objects, cap, sizeof(object *));
        if (!more) return false;
        p->objects = more;
        p->cap = cap;
    }
    memmove(p->objects + at + 1, p->objects + at, (p->n - at) * sizeof(object *));
    p->objects[at] = o;
    p->n++;
    return true;
}

/* ---- the calls */

/* Copies the spans into one block. The sum of the lengths is checked for overflow. */
static object *object_new(const char *key, const dl_span *spans, size_t n_spans)
{
    size_t size = sizeof(object);
    for (size_t i = 0; i < n_spans; i++)
        if (!dl_size_add(&size, size, spans[i].len)) return NULL;
    object *o = malloc(size);
    if (!o) return NULL;
    o->refs = 1;
    o->len = 0;
    strcpy(o->key, key);
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].len) memcpy(o->data + o->len, spans[i].data, spans[i].len);
        o->len += spans[i].len;
    }
    return o;
}

/* Publish, or with `taken` leave alone what is there. The object is built before the lock is taken,
 * so readers never wait for the copy. */
static diloco_status publish(place *p, const char *key, const dl_span *spans, size_t n_spans,
                             bool *taken)
{
    object *o = object_new(key, spans, n_spans);
    if (!o) return dl_fail(DILOCO_ENOMEM, "%s: no memory in mem://%s", key, p->name);

    bool there, kept = true; /* kept: o belongs to the place now */
    pthread_mutex_lock(&p->lock);
    size_t at = find(p, key, &there);
    if (there && taken) {
        kept = false;
    } else if (there) {
        unref(p->objects[at]);
        p->objects[at] = o;
    } else {
        kept = insert(p, at, o);
    }
    if (kept) notify(p);
    pthread_mutex_unlock(&p->lock);

    if (!kept) free(o);
    if (taken) *taken = there;
    if (!kept && !there) return dl_fail(DILOCO_ENOMEM, "%s: no memory in mem://%s", key, p->name);
    return DILOCO_OK;
}

static diloco_status mem_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                bool *taken, dl_time until)
{
    (void)until; /* nothing here waits */
    return publish(((mem_store *)self)->place, key, spans, n_spans, taken);
}

static diloco_status mem_put(void *self, const char *key, const void *data, size_t len,
                             dl_time until)
{
    (void)until;
    dl_span span = {data, len};
    return publish(((mem_store *)self)->place, key, &span, 1, NULL);
}

/* Gives the object in pieces, as a network store would, and looks at the abort flag in between. */
static diloco_status feed(const mem_store *m, const object *o, dl_sink sink, dl_time until)
{
    DL_TRY(sink.begin(sink.context, o->len));
    for (size_t at = 0; at < o->len; at += DL_STORE_PIECE) {
        DL_TRY(dl_store_check(m->aborted, until, o->key));
        DL_TRY(sink.piece(sink.context, o->data + at, dl_size_min(o->len - at, DL_STORE_PIECE)));
    }
    return DILOCO_OK;
}

/* The reference is taken under the lock, and the sink runs without it. */
static diloco_status mem_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    mem_store *m = self;
    place *p = m->place;
    bool there;
    pthread_mutex_lock(&p->lock);
    size_t at = find(p, key, &there);
    object *o = there ? p->objects[at] : NULL;
    if (o) o->refs++;
    pthread_mutex_unlock(&p->lock);
    if (!o) return dl_fail(DILOCO_ENOENT, "%s is not in mem://%s", key, p->name);

    diloco_status status = feed(m, o, sink, until);
    pthread_mutex_lock(&p->lock);
    unref(o);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* Some objects of a folder, in order, as they were at one moment. */
typedef struct batch {
    object *at[BATCH];
    size_t n;
    uint64_t n_changes;
} batch;

/* Holds the first objects with that prefix from `key` on, or after it. */
static void hold(batch *b, place *p, const char *prefix, const char *key, bool behind)
{
    bool there;
    b->n = 0;
    pthread_mutex_lock(&p->lock);
    b->n_changes = p->n_changes;
    size_t at = find(p, key, &there);
    at += there && behind;
    for (const size_t end = end_of(p, prefix, at); b->n < BATCH && at < end; at++) {
        if (at + FETCHED_AHEAD < end) __builtin_prefetch(p->objects[at + FETCHED_AHEAD]->key);
        p->objects[at]->refs++;
        b->at[b->n++] = p->objects[at];
    }
    pthread_mutex_unlock(&p->lock);
}

static void release(const batch *b, place *p)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < b->n; i++)
        unref(b->at[i]);
    pthread_mutex_unlock(&p->lock);
}

/* The walk holds no lock while `found` runs, so objects may come and go meanwhile. A key that stays
 * is shown once. */
static diloco_status mem_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                              void *context, dl_time until)
{
    mem_store *m = self;
    char key[DL_KEY_MAX + 1]; /* the last one shown; before any, `after` or the prefix */
    bool behind = after && strcmp(after, prefix) > 0;
    strcpy(key, behind ? after : prefix);
    for (;; behind = true) {
        diloco_status status = DILOCO_OK;
        batch b;
        hold(&b, m->place, prefix, key, behind);
        bool changed = false;
        for (size_t i = 0; i < b.n && !status && !changed; i++) {
            const object *o = b.at[i];
            status = dl_store_check(m->aborted, until, prefix);
            if (!status) status = found(context, o->key, o->len);
            changed = m->place->n_changes != b.n_changes;
            if (changed || i + 1 == b.n) strcpy(key, o->key);
        }
        release(&b, m->place);
        if (status || (b.n < BATCH && !changed)) return status;
    }
}

static diloco_status mem_remove(void *self, const char *key, dl_time until)
{
    (void)until;
    place *p = ((mem_store *)self)->place;
    bool there;
    pthread_mutex_lock(&p->lock);
    size_t at = find(p, key, &there);
    if (there) {
        unref(p->objects[at]);
        p->n--;
        memmove(p->objects + at, p->objects + at + 1, (p->n - at) * sizeof(object *));
        notify(p);
    }
    pthread_mutex_unlock(&p->lock);
    return DILOCO_OK;
}

/* Any change of the store wakes; the prefixes are left to the caller's look. In slices,
 * because a condition cannot be signalled from a signal handler, where abort may run. */
static diloco_status mem_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    (void)prefixes, (void)n;
    mem_store *m = self;
    place *p = m->place;
    diloco_status status = DILOCO_OK;
    pthread_mutex_lock(&p->lock);
    while (p->n_changes == m->seen && !(status = dl_store_check(m->aborted, until, "waiting"))) {
        dl_time slice = dl_time_after(dl_clock_now(), DL_STORE_SLICE);
        if (slice > until) slice = until;
        struct timespec t = {.tv_sec = slice / DL_SECOND, .tv_nsec = slice % DL_SECOND};
        pthread_cond_timedwait(&p->changed, &p->lock, &t);
    }
    m->seen = p->n_changes;
    pthread_mutex_unlock(&p->lock);
    return status;
}

const dl_store_kind dl_store_mem = {
    .scheme = "mem",
    .size = sizeof(mem_store),
    .open = mem_open,
    .close = mem_close,
    .create = mem_create,
    .put = mem_put,
    .read = mem_read,
    .list = mem_list,
    .remove = mem_remove,
    .wait = mem_wait,
};
