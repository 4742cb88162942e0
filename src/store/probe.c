/* probe.c - is this a store that creates a name exactly once, and how fast is it?
 *
 * Eight handles on eight threads meet at a barrier and create one random name, each with
 * bytes of its own. Right is: one create succeeds, and every handle then reads the winner's
 * bytes. The first handle alone measures. PROTOCOL P26. */
#include "store/kind.h"

#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"
#include "store/store.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 64, SMALL_OBJECTS = 5, MEDIUM_BYTES = 256 << 10, TEXT_MAX = 256 };

static const double FAST_S = 0.2; /* of the medium object: 8 MiB take 32 times as long */

/* The result of one thread; the error's text is the thread's own, so it is carried over. */
typedef struct attempt {
    diloco_status status;
    bool won;
    int read; /* whose bytes came back */
    char text[TEXT_MAX];
} attempt;

/* One probe of one store. Each thread writes only its own attempt. */
typedef struct probe {
    dl_store **handles;
    char key[64];
    size_t largest;
    dl_time until;
    atomic_int arrived;
    attempt attempts[DL_PROBE_HANDLES];
} probe;

/* ---- the race */

/* One handle's part. A name that was taken is a normal outcome; then the winner's bytes are
 * read. */
static diloco_status race(probe *p, int me)
{
    unsigned char mine[SMALL_BYTES];
    attempt *a = &p->attempts[me];
    dl_span span = {mine, sizeof mine};
    memset(mine, me, sizeof mine);

    diloco_status status = dl_store_create(p->handles[me], p->key, &span, 1, NULL, p->until);
    a->won = !status; /* "taken" by equal bytes: its own, of a try whose answer was lost */
    if (status && status != DILOCO_EEXIST) return status;

    dl_buf read;
    dl_buf_init(&read, sizeof mine);
    status = dl_store_get(p->handles[me], &read, p->key, p->until);
    a->read = read.len == sizeof mine ? read.data[0] : -1;
    dl_buf_deinit(&read);
    return status;
}

/* The barrier makes the creations as simultaneous as possible. */
static void race_part(void *context, int part, int n_parts)
{
    probe *p = context;
    attempt *a = &p->attempts[part];
    atomic_fetch_add(&p->arrived, 1);
    while (atomic_load(&p->arrived) < n_parts)
        sched_yield();
    a->status = race(p, part);
    if (a->status) snprintf(a->text, sizeof a->text, "%s", diloco_error_text());
}

/* Two conditions have to hold: one winner, and every reader gets the winner's bytes. Returns
 * DILOCO_EREFUSED and says which one failed. */
static diloco_status judge(dl_probe *out, const probe *p)
{
    const char *url = dl_store_url(p->handles[0]);
    int winner = -1;
    for (int i = 0; i < DL_PROBE_HANDLES; i++) {
        const attempt *a = &p->attempts[i];
        if (a->status) return dl_fail(a->status, "probing the store: %s", a->text);
        out->winners += a->won;
        if (a->won) winner = i;
    }
    if (out->winners != 1)
        return dl_fail(
            DILOCO_EREFUSED,
            "store %s let %d of %d concurrent creates of one name win; a run needs a store "
            "that lets exactly one, or single_committer = <replica>",
            url, out->winners, DL_PROBE_HANDLES);
    for (int i = 0; i < DL_PROBE_HANDLES; i++)
        if (p->attempts[i].read != winner)
            return dl_fail(
                DILOCO_EREFUSED,
                "store %s gave reader %d other bytes than the one winner of a create wrote", url,
                i);
    return DILOCO_OK;
}

static diloco_status run_race(dl_probe *out, probe *p)
{
    dl_pool *pool;
    DL_TRY(dl_pool_create(&pool, DL_PROBE_HANDLES));
    dl_pool_run(pool, race_part, p);
    dl_pool_destroy(pool);
    return judge(out, p);
}

/* ---- speed */

/* Measures one create and one read of an object, and checks that the same bytes come back. */
static diloco_status time_object(probe *p, int i, const void *data, size_t len, double *create_s,
                                 double *read_s)
{
    char key[sizeof p->key + 16];
    snprintf(key, sizeof key, "%s.%d", p->key, i);
    dl_store *store = p->handles[0];
    dl_span span = {data, len};
    dl_buf back;
    dl_buf_init(&back, len);

    dl_time t0 = dl_clock_now();
    diloco_status status = dl_store_create(store, key, &span, 1, NULL, p->until);
    dl_time t1 = dl_clock_now();
    if (!status) status = dl_store_get(store, &back, key, p->until);
    dl_time t2 = dl_clock_now();
    if (!status && (back.len != len || memcmp(back.data, data, len)))
        status = dl_fail(DILOCO_EREFUSED, "store %s gave other bytes back than were written",
                         dl_store_url(store));
    *create_s = dl_seconds(t1 - t0);
    *read_s = dl_seconds(t2 - t1);
    dl_buf_deinit(&back);
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mb_per_s(size_t bytes, double s, double request_s)
{
    return 1e-6 * (double)bytes / (s > request_s ? s - request_s : s);
}

/* The large object is probed only where it takes no more than some seconds. A small one's time is
 * that of the request, not of its bytes. The speed is that of the longest object that was tried,
 * without the fixed time of a request. */
static diloco_status run_throughput(dl_probe *out, probe *p, const void *data)
{
    size_t len = dl_size_min(MEDIUM_BYTES, p->largest);
    double write_s, read_s;
    if (len < DL_PROBE_LEAST) return DILOCO_OK;
    DL_TRY(time_object(p, SMALL_OBJECTS, data, len, &write_s, &read_s));
    if (write_s + read_s < FAST_S && len < p->largest) {
        len = p->largest;
        DL_TRY(time_object(p, SMALL_OBJECTS + 1, data, len, &write_s, &read_s));
    }
    out->write_mb_per_s = mb_per_s(len, write_s, 1e-3 * out->create_ms);
    out->read_mb_per_s = mb_per_s(len, read_s, 1e-3 * out->read_ms);
    return DILOCO_OK;
}

/* The median of several small objects is the time of a request, so one slow answer does not decide
 * it. */
static diloco_status run_speed(dl_probe *out, probe *p)
{
    double create_s[SMALL_OBJECTS], read_s[SMALL_OBJECTS];
    void *large = calloc(1, dl_size_max(p->largest, SMALL_BYTES));
    if (!large) return dl_fail(DILOCO_ENOMEM, "not enough memory to probe the store");
    diloco_status status = DILOCO_OK;
    for (int i = 0; i < SMALL_OBJECTS && !status; i++)
        status = time_object(p, i, large, SMALL_BYTES, &create_s[i], &read_s[i]);
    if (!status) {
        qsort(create_s, SMALL_OBJECTS, sizeof *create_s, by_size);
        qsort(read_s, SMALL_OBJECTS, sizeof *read_s, by_size);
        out->create_ms = 1e3 * create_s[SMALL_OBJECTS / 2];
        out->read_ms = 1e3 * read_s[SMALL_OBJECTS / 2];
        status = run_throughput(out, p, large);
    }
    free(large);
    return status;
}

/* ---- all of it */

/* A store that cannot delete keeps a few small objects; that is no reason to refuse it. */
static void clean_up(probe *p)
{
    char key[sizeof p->key + 16];
    diloco_status status = dl_store_delete(p->handles[0], p->key, p->until);
    for (int i = 0; i <= SMALL_OBJECTS + 1 && !status; i++) {
        snprintf(key, sizeof key, "%s.%d", p->key, i);
        status = dl_store_delete(p->handles[0], key, p->until);
    }
    if (status) dl_log(DILOCO_LOG_WARN, "the probe's objects stay: %s", diloco_error_text());
}

/* The race comes first: a store that fails it is refused without further requests. Objects are
 * removed in every case. */
diloco_status dl_store_probe_handles(dl_probe *out, dl_store *handles[DL_PROBE_HANDLES],
                                     size_t largest, dl_time until)
{
    *out = (dl_probe){0};
    uint64_t name;
    DL_TRY(dl_random_bytes(&name, sizeof name));
    probe p = {.handles = handles, .until = until};
    p.largest = dl_size_min(dl_size_min(largest, DL_PROBE_MOST), dl_store_max_object(handles[0]));
    snprintf(p.key, sizeof p.key, "probe/%016llx", (unsigned long long)name);

    diloco_status status = run_race(out, &p);
    if (!status) status = run_speed(out, &p);
    char text[TEXT_MAX]; /* cleaning up may fail as well, and would word over it */
    snprintf(text, sizeof text, "%s", diloco_error_text());
    clean_up(&p);
    return status ? dl_fail(status, "%s", text) : DILOCO_OK;
}

diloco_status dl_store_probe(dl_probe *out, const dl_store_address *address, size_t largest,
                             dl_moved *tally, dl_time until)
{
    dl_store *handles[DL_PROBE_HANDLES] = {0};
    diloco_status status = DILOCO_OK;
    *out = (dl_probe){0};
    for (int i = 0; i < DL_PROBE_HANDLES && !status; i++) {
        status = dl_store_open_at(&handles[i], address, true);
        if (!status) dl_store_count_into(handles[i], tally);
    }
    if (!status) status = dl_store_probe_handles(out, handles, largest, until);
    for (int i = 0; i < DL_PROBE_HANDLES; i++)
        dl_store_close(handles[i]);
    return status;
}
