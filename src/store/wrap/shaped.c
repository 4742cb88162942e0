/* shaped.c - see shaped.h.
 *
 * Each direction is two queues of one rate. `free_at` is the time at which all bytes given to the
 * link will have passed. Large objects are sent in quanta, each begun when the link is free, so
 * that several of them take turns. `small_free_at` is the same for small objects alone: they wait
 * for each other only. They delay `free_at` by their own time, so both kinds together never exceed
 * the rate for longer than one quantum. */
#include "store/wrap/shaped.h"

#include "base/rng.h"
#include "store/kind.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double QUANTUM_S = 0.02;
static const dl_time NOTICED = DL_SECOND; /* the first retransmission time-out of RFC 6298 */

typedef struct lane {
    double bytes_per_s; /* 0: at once */
    dl_time free_at, small_free_at;
} lane;

struct dl_shaper {
    dl_link link;
    dl_shaper_clock clock;
    pthread_mutex_t lock; /* guards the lanes' times and rng */
    lane up, down;
    dl_rng rng;
};

typedef struct shaped_store {
    dl_store *inner; /* owned */
    dl_shaper *shaper;
    const atomic_bool *aborted;
} shaped_store;

/* ---- the link ---------------------------------------------------------------------------- */

static dl_time real_now(void *context)
{
    (void)context;
    return dl_clock_now();
}

static void real_sleep(void *context, dl_time duration)
{
    (void)context;
    dl_clock_sleep(duration);
}

diloco_status dl_shaper_create(dl_shaper **out, const dl_link *link, uint64_t seed,
                               const dl_shaper_clock *clock)
{
    static const dl_shaper_clock real = {NULL, real_now, real_sleep};
    dl_shaper *shaper = *out = calloc(1, sizeof *shaper);
    if (!shaper) return dl_fail(DILOCO_ENOMEM, "out of memory for a link");
    shaper->link = *link;
    shaper->clock = clock ? *clock : real;
    shaper->up.bytes_per_s = link->up_bps / 8;
    shaper->down.bytes_per_s = link->down_bps / 8;
    pthread_mutex_init(&shaper->lock, NULL);
    dl_rng_init(&shaper->rng, seed, DL_STREAM(DL_STREAM_JITTER, 1), 0);
    return DILOCO_OK;
}

void dl_shaper_destroy(dl_shaper *shaper)
{
    if (!shaper) return;
    pthread_mutex_destroy(&shaper->lock);
    free(shaper);
}

static dl_time later(dl_time a, dl_time b)
{
    return a > b ? a : b;
}

/* Give len bytes that are there from `from` on to the lane; when they will have passed. A small
 * object is not delayed by large ones, but delays them: it moves free_at as well. */
static dl_time give(dl_shaper *shaper, lane *l, size_t len, bool small, dl_time from)
{
    const dl_time takes = dl_time_from_seconds((double)len / l->bytes_per_s);
    pthread_mutex_lock(&shaper->lock);
    const dl_time passed = later(from, small ? l->small_free_at : l->free_at) + takes;
    l->free_at = later(from, l->free_at) + takes;
    if (small) l->small_free_at = passed;
    pthread_mutex_unlock(&shaper->lock);
    return passed;
}

/* Until then on the shaper's clock; in slices, so that an abort is heard. */
static diloco_status sleep_until(const shaped_store *s, dl_time then, const char *key,
                                 dl_time until)
{
    const dl_shaper_clock *clock = &s->shaper->clock;
    for (;;) {
        const dl_time now = clock->now(clock->context);
        if (atomic_load(s->aborted) || (until != DL_NEVER && now >= until))
            return dl_store_check(s->aborted, 0, key); /* it says which */
        if (now >= then) return DILOCO_OK;
        dl_time left = then < until ? then - now : until - now;
        clock->sleep(clock->context, left < DL_STORE_SLICE ? left : DL_STORE_SLICE);
    }
}

/* A line does not stop while its watcher oversleeps: the next slice follows the previous one. A
 * large object is sent in quanta of QUANTUM_S, so that others get their turn in between. */
static diloco_status carry(const shaped_store *s, lane *l, size_t len, bool small, const char *key,
                           dl_time until)
{
    if (!(l->bytes_per_s > 0)) return DILOCO_OK;
    const size_t quantum = dl_size_max((size_t)(QUANTUM_S * l->bytes_per_s), 1);
    dl_time passed = s->shaper->clock.now(s->shaper->clock.context);
    while (len > 0) {
        const size_t n = small ? len : dl_size_min(len, quantum);
        passed = give(s->shaper, l, n, small, passed);
        DL_TRY(sleep_until(s, passed, key, until));
        len -= n;
    }
    return DILOCO_OK;
}

/* ---- requests ---------------------------------------------------------------------------- */

typedef enum fate { ARRIVES, LOST, ANSWER_LOST } fate;

/* Both numbers are drawn each time, so the sequence of fates depends on the seed alone. */
static fate draw(dl_shaper *shaper)
{
    pthread_mutex_lock(&shaper->lock);
    const bool lost = dl_rng_f64(&shaper->rng) < shaper->link.loss;
    const bool before = dl_rng_u32(&shaper->rng) & 1;
    pthread_mutex_unlock(&shaper->lock);
    return !lost ? ARRIVES : before ? LOST : ANSWER_LOST;
}

/* One call of any kind: the arguments with which `make` calls the inner store. */
typedef struct request {
    const char *key;
    diloco_status (*make)(const shaped_store *s, struct request *r, dl_time until);
    size_t up;            /* object bytes that go up with it */
    const dl_span *spans; /* create */
    size_t n_spans;
    bool *taken;
    const void *data;      /* put */
    const shaped_store *s; /* read: until the end of make */
    dl_sink sink;
    bool small;
    dl_time until;
    const char *after; /* list */
    dl_found_fn found;
    void *context;
} request;

/* The delay comes first, then the bytes that go up, then the call. A lost request takes the time
 * and has no effect. */
static diloco_status try_once(const shaped_store *s, request *r, fate drawn, dl_time until)
{
    dl_shaper *shaper = s->shaper;
    const dl_time begins = shaper->clock.now(shaper->clock.context);
    const dl_time delay = dl_time_from_seconds(shaper->link.delay_s);
    DL_TRY(sleep_until(s, dl_time_after(begins, delay), r->key, until));
    DL_TRY(carry(s, &shaper->up, r->up, r->up <= DL_SHAPED_SMALL, r->key, until));
    return drawn == LOST ? DILOCO_OK : r->make(s, r, until);
}

/* The caller already has the read or listed bytes when their answer could be lost. So of a read the
 * whole request is lost. */
static diloco_status run(const shaped_store *s, request *r, bool has_effect, dl_time until)
{
    dl_time noticed = NOTICED;
    for (int i = 0; i < DL_SHAPED_TRIES; i++, noticed *= 2) {
        fate drawn = draw(s->shaper);
        if (drawn == ANSWER_LOST && !has_effect) drawn = LOST;
        DL_TRY(try_once(s, r, drawn, until));
        if (drawn == ARRIVES) return DILOCO_OK;
        const dl_time now = s->shaper->clock.now(s->shaper->clock.context);
        DL_TRY(sleep_until(s, dl_time_after(now, noticed), r->key, until));
    }
    return dl_fail(DILOCO_EUNREACHABLE, "%s in %s: lost on the link %d times", r->key,
                   dl_store_url(s->inner), DL_SHAPED_TRIES);
}

static diloco_status make_create(const shaped_store *s, request *r, dl_time until)
{
    return dl_store_claim(s->inner, r->key, r->spans, r->n_spans, r->taken, until);
}

static diloco_status shaped_create(void *self, const char *key, const dl_span *spans,
                                   size_t n_spans, bool *taken, dl_time until)
{
    request r = {.key = key, .make = make_create, .spans = spans, .n_spans = n_spans};
    r.taken = taken;
    for (size_t i = 0; i < n_spans; i++)
        r.up += spans[i].len;
    return run(self, &r, true, until);
}

static diloco_status make_put(const shaped_store *s, request *r, dl_time until)
{
    return dl_store_put(s->inner, r->key, r->data, r->up, until);
}

static diloco_status shaped_put(void *self, const char *key, const void *data, size_t len,
                                dl_time until)
{
    request r = {.key = key, .make = make_put, .data = data, .up = len};
    return run(self, &r, true, until);
}

static diloco_status make_remove(const shaped_store *s, request *r, dl_time until)
{
    return dl_store_delete(s->inner, r->key, until);
}

static diloco_status shaped_remove(void *self, const char *key, dl_time until)
{
    request r = {.key = key, .make = make_remove};
    return run(self, &r, true, until);
}

/* ---- reading: the bytes pass as they are handed on */

static diloco_status read_begin(void *context, size_t len)
{
    request *r = context;
    r->small = len <= DL_SHAPED_SMALL;
    return r->sink.begin(r->sink.context, len);
}

/* The caller gets a piece once the link would have delivered it. */
static diloco_status read_piece(void *context, const void *data, size_t len)
{
    request *r = context;
    DL_TRY(carry(r->s, &r->s->shaper->down, len, r->small, r->key, r->until));
    return r->sink.piece(r->sink.context, data, len);
}

static diloco_status make_read(const shaped_store *s, request *r, dl_time until)
{
    const dl_sink slow = {.context = r, .begin = read_begin, .piece = read_piece};
    r->s = s;
    r->until = until;
    return dl_store_read(s->inner, r->key, slow, until);
}

static diloco_status shaped_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    request r = {.key = key, .make = make_read, .sink = sink};
    return run(self, &r, false, until);
}

static diloco_status make_list(const shaped_store *s, request *r, dl_time until)
{
    return dl_store_list_unchecked(s->inner, r->key, r->after, r->found, r->context, until);
}

static diloco_status shaped_list(void *self, const char *prefix, const char *after,
                                 dl_found_fn found, void *context, dl_time until)
{
    request r = {.key = prefix, .make = make_list, .after = after, .found = found};
    r.context = context;
    return run(self, &r, false, until);
}

/* ---- the rest is passed through ---------------------------------------------------------- */

static diloco_status shaped_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    return dl_store_await(((shaped_store *)self)->inner, prefixes, n, until);
}

static bool shaped_vouches(const void *self)
{
    return dl_store_vouches(((const shaped_store *)self)->inner);
}

static void shaped_traffic(const void *self, dl_store_counters *counts)
{
    const dl_store_counters c = dl_store_counts(((const shaped_store *)self)->inner);
    counts->bytes_sent = c.bytes_sent;
    counts->bytes_received = c.bytes_received;
    counts->billed_reads = c.billed_reads;
    counts->billed_writes = c.billed_writes;
}

static void shaped_abort(void *self)
{
    dl_store_abort(((shaped_store *)self)->inner);
}

static void shaped_close(void *self)
{
    dl_store_close(((shaped_store *)self)->inner);
}

static const dl_store_kind shaped = {
    .scheme = "shaped", /* has no row in store.c: no url opens it */
    .size = sizeof(shaped_store),
    .close = shaped_close,
    .create = shaped_create,
    .put = shaped_put,
    .read = shaped_read,
    .list = shaped_list,
    .remove = shaped_remove,
    .vouches = shaped_vouches,
    .wait = shaped_wait,
    .traffic = shaped_traffic,
    .abort = shaped_abort,
};

diloco_status dl_store_shaped(dl_store **out, dl_store *inner, dl_shaper *shaper)
{
    void *self;
    const atomic_bool *aborted;
    const diloco_status status = dl_store_wrap(out, &shaped, dl_store_url(inner), &self, &aborted);
    if (status) {
        dl_store_close(inner);
        return status;
    }
    dl_store_look_like(*out, inner);
    *(shaped_store *)self = (shaped_store){inner, shaper, aborted};
    return DILOCO_OK;
}

/* ---- the link of this process ------------------------------------------------------------ */

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER; /* guards both */
static dl_shaper *process_link; /* NULL: none. Never freed: handles may outlive a change */
static char process_text[DL_LINK_TEXT];

/* The same text again is fine. Another one is refused, since open handles already share the
 * first. */
diloco_status dl_store_set_link(const char *text)
{
    dl_link link;
    DL_TRY(dl_link_parse(&link, "run.link", text));
    pthread_mutex_lock(&process_lock);
    diloco_status status = DILOCO_OK;
    if (process_link && strcmp(process_text, text) != 0)
        status = dl_fail(DILOCO_EINVAL,
                         "run.link %.60s: this process has the link %s already; a process has one",
                         text, process_text);
    else if (!process_link &&
             !(status = dl_shaper_create(&process_link, &link, (uint64_t)dl_clock_now(), NULL)))
        snprintf(process_text, sizeof process_text, "%s", text);
    pthread_mutex_unlock(&process_lock);
    return status;
}

const char *dl_store_link(void)
{
    pthread_mutex_lock(&process_lock);
    const char *text = process_link ? process_text : "";
    pthread_mutex_unlock(&process_lock);
    return text; /* never written again */
}

diloco_status dl_store_through_link(dl_store **store)
{
    pthread_mutex_lock(&process_lock);
    dl_shaper *link = process_link;
    pthread_mutex_unlock(&process_lock);
    return link ? dl_store_shaped(store, *store, link) : DILOCO_OK;
}
