/* shipper.c - see shipper.h. dl_shipper_add appends to `gathered`. The thread moves a part of that
 * to `sending`, which stays the same until it is in the store: so a create may be repeated. */
#include "launch/shipper.h"

#include "base/log.h"
#include "base/thread.h"
#include "log/layout.h"
#include "log/zstd_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are enough for a part, and bytes that wait in memory. */
enum { PART_ENOUGH = 256 << 10, WAITING_MAX = 4 << 20 };

/* The age of bytes at which a part is uploaded, whatever its size. The time for one request. The
 * pauses after a failed one, which double from the first to the last. */
static const dl_time PART_AGE = 5 * DL_SECOND, PATIENCE = 30 * DL_SECOND;
static const dl_time FIRST_PAUSE = 1 * DL_SECOND, LAST_PAUSE = 60 * DL_SECOND;

/* A part in the store. */
typedef struct kept {
    uint64_t process, part;
    size_t len;
} kept;

/* The number of a process that no job reaches. */
static const uint64_t UNREACHED = 1000000000;

/* Room for the parts of one listing. */
enum { KEPT_ROOM = 2 * DL_OUTPUT_PARTS };

struct dl_shipper {
    char *url, job[DL_OUTPUT_JOB_MAX + 1];
    pthread_t thread;

    pthread_mutex_t lock; /* guards the fields up to `finished` */
    pthread_cond_t wake;
    dl_buf gathered;
    size_t lost;        /* bytes that were dropped before those in `gathered` */
    dl_time since;      /* when `gathered` got its first byte */
    dl_time retry;      /* nothing is taken or sent before this time */
    dl_time until;      /* not DL_NEVER: close the shipper at this time */
    dl_store *at_store; /* the request in progress may be aborted; or NULL */
    bool finished;

    /* Of the thread alone. */
    dl_store *store;
    dl_buf sending;
    dl_zipper *zipper;
    bool begun; /* `process` is known */
    uint64_t process, part;
    kept *parts; /* [KEPT_ROOM], oldest first */
    size_t n_parts, bytes;
    dl_time pause; /* after the next failure; FIRST_PAUSE: the last request succeeded */
};

/* ---- adding */

/* Drop the older half of what waits if there is no room. */
static void make_room(dl_shipper *s, size_t n)
{
    if (s->gathered.len + n <= WAITING_MAX) return;
    const size_t drop = dl_size_min(s->gathered.len, dl_size_max(WAITING_MAX / 2, n));
    memmove(s->gathered.data, s->gathered.data + drop, s->gathered.len - drop);
    s->gathered.len -= drop;
    s->lost += drop;
}

void dl_shipper_add(dl_shipper *s, const void *bytes, size_t n)
{
    const char *at = bytes;
    if (n > WAITING_MAX / 2) { /* more than a pipe gives at once */
        dl_shipper_add(s, at, n - WAITING_MAX / 2);
        at += n - WAITING_MAX / 2;
        n = WAITING_MAX / 2;
    }
    pthread_mutex_lock(&s->lock);
    make_room(s, n);
    if (s->gathered.len == 0) s->since = dl_clock_now();
    if (dl_buf_add(&s->gathered, at, n)) s->lost += n;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the parts in the store */

static void forget_oldest(dl_shipper *s)
{
    s->bytes -= s->parts[0].len;
    s->n_parts--;
    memmove(s->parts, s->parts + 1, s->n_parts * sizeof *s->parts);
}

static void remember(dl_shipper *s, uint64_t process, uint64_t part, size_t len)
{
    if (s->n_parts == KEPT_ROOM) forget_oldest(s);
    s->parts[s->n_parts++] = (kept){process, part, len};
    s->bytes += len;
}

/* Other objects in this folder are left alone. Keys come in ascending order, so afterwards
 * `process` is the first free number after those of all processes. It has 10 digits even if a
 * party has forged the greatest number: a number that no job reaches is only followed if it is
 * taken. */
static diloco_status on_found(void *context, const char *key, size_t len)
{
    dl_shipper *s = context;
    char job[DL_OUTPUT_JOB_MAX + 1];
    uint64_t process, part;
    if (!dl_key_parse_output(job, &process, &part, key)) return DILOCO_OK;
    if (process >= UNREACHED && process > s->process) return DILOCO_OK;
    remember(s, process, part, len);
    if (process >= s->process) s->process = process + 1;
    return DILOCO_OK;
}

static dl_time limit(dl_shipper *s)
{
    pthread_mutex_lock(&s->lock);
    const dl_time until = s->until;
    pthread_mutex_unlock(&s->lock);
    const dl_time by_patience = dl_time_after(dl_clock_now(), PATIENCE);
    return until < by_patience ? until : by_patience;
}

/* This process is the next one of the job. Its first part decides between two that begin at the
 * same time. */
static diloco_status begin(dl_shipper *s)
{
    char folder[DL_OUTPUT_JOB_MAX + 8];
    snprintf(folder, sizeof folder, "out/%s/", s->job);
    s->n_parts = s->bytes = 0;
    s->process = 1;
    s->part = 0;
    DL_TRY(dl_store_list(s->store, folder, NULL, on_found, s, limit(s)));
    s->begun = true;
    return DILOCO_OK;
}

/* A part that cannot be deleted now is tried again after the next one. */
static diloco_status trim(dl_shipper *s)
{
    dl_key key;
    while (s->n_parts > DL_OUTPUT_PARTS || s->bytes > DL_OUTPUT_BYTES) {
        dl_key_output(key, s->job, s->parts[0].process, s->parts[0].part);
        DL_TRY(dl_store_delete(s->store, key, limit(s)));
        forget_oldest(s);
    }
    return DILOCO_OK;
}

/* ---- sending */

static diloco_status open_store(dl_shipper *s)
{
    if (s->store) return DILOCO_OK;
    DL_TRY(dl_store_open(&s->store, s->url, false));
    pthread_mutex_lock(&s->lock);
    s->at_store = s->store;
    pthread_mutex_unlock(&s->lock);
    return DILOCO_OK;
}

/* Upload `sending` as one object. DILOCO_EEXIST: another process has this name, or a party has
 * forged it. Then this process takes the next free number. */
static diloco_status send_part(dl_shipper *s)
{
    dl_key key;
    dl_span frame;
    DL_TRY(open_store(s));
    if (!s->begun) DL_TRY(begin(s));
    dl_key_output(key, s->job, s->process, s->part);
    DL_TRY(dl_zip(s->zipper, &frame, s->sending.data, s->sending.len));
    const diloco_status status = dl_store_create(s->store, key, &frame, 1, NULL, limit(s));
    if (status == DILOCO_EEXIST) s->begun = false;
    if (status) return status;
    remember(s, s->process, s->part++, frame.len);
    dl_buf_clear(&s->sending);
    return DILOCO_OK;
}

/* A failure is reported once, until a request has succeeded. The report goes to this process's own
 * stderr, and not into the output. */
static void note(dl_shipper *s, diloco_status status)
{
    if (!status) {
        s->pause = FIRST_PAUSE;
        return;
    }
    if (s->pause == FIRST_PAUSE && status != DILOCO_EEXIST)
        dl_log(DILOCO_LOG_WARN, "the output is not in the store for now: %s", diloco_error_text());
    s->pause = s->pause * 2 < LAST_PAUSE ? s->pause * 2 : LAST_PAUSE;
}

/* ---- the thread */

/* Move at most one part of what waits to `sending`, with a line for the bytes that were dropped
 * before it. Without memory `sending` stays empty, and the bytes wait for a second. */
static void take_part(dl_shipper *s)
{
    const size_t n = dl_size_min(s->gathered.len, DL_OUTPUT_TEXT - 128);
    diloco_status status = DILOCO_OK;
    if (s->lost)
        status = dl_buf_addf(&s->sending,
                             "\ndiloco: %zu bytes of output are missing here: the store took no "
                             "more\n",
                             s->lost);
    if (!status) status = dl_buf_add(&s->sending, s->gathered.data, n);
    if (status) {
        dl_buf_clear(&s->sending);
        s->retry = dl_time_after(dl_clock_now(), FIRST_PAUSE);
        return;
    }
    s->lost = 0;
    memmove(s->gathered.data, s->gathered.data + n, s->gathered.len - n);
    s->gathered.len -= n;
    s->since = dl_clock_now();
}

/* Wait until there is a part to send, or the time after a failure is over. Returns false if nothing
 * is left to do. */
static bool wait_for_part(dl_shipper *s)
{
    bool more;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        const dl_time now = dl_clock_now(), closing = s->until;
        const bool sends = s->sending.len > 0, waits = s->gathered.len > 0;
        dl_time next = sends ? now : waits ? s->since + PART_AGE : DL_NEVER;
        if (!sends && (s->gathered.len >= PART_ENOUGH || closing != DL_NEVER)) next = now;
        more = (sends || waits) && now < closing;
        if (next < s->retry) next = s->retry;
        if (next > closing) next = closing;
        if (next <= now || (closing != DL_NEVER && !more)) break;
        if (next == DL_NEVER) {
            pthread_cond_wait(&s->wake, &s->lock);
        } else {
            const struct timespec at = {next / DL_SECOND, next % DL_SECOND};
            pthread_cond_timedwait(&s->wake, &s->lock, &at);
        }
    }
    if (more && s->sending.len == 0) take_part(s);
    pthread_mutex_unlock(&s->lock);
    return more;
}

static void *ship(void *context)
{
    dl_shipper *s = context;
    while (wait_for_part(s)) {
        if (s->sending.len == 0) continue; /* no memory */
        const diloco_status sent = send_part(s);
        note(s, sent ? sent : trim(s));
        pthread_mutex_lock(&s->lock);
        s->retry = sent ? dl_time_after(dl_clock_now(), s->pause / 2) : 0;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_lock(&s->lock);
    s->at_store = NULL;
    s->finished = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- creating and closing */

static void destroy(dl_shipper *s)
{
    dl_store_close(s->store);
    dl_zipper_destroy(s->zipper);
    dl_buf_deinit(&s->gathered);
    dl_buf_deinit(&s->sending);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->parts);
    free(s->url);
    free(s);
}

diloco_status dl_shipper_create(dl_shipper **out, const char *url, const char *job)
{
    *out = NULL;
    if (!dl_output_job_ok(job))
        return dl_fail(DILOCO_EINVAL, "DILOCO_JOB = \"%.80s\" is no name of a job", job);
    dl_shipper *s = calloc(1, sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for the output");
    strcpy(s->job, job);
    s->until = DL_NEVER;
    s->pause = FIRST_PAUSE;
    dl_buf_init(&s->gathered, WAITING_MAX);
    dl_buf_init(&s->sending, DL_OUTPUT_TEXT);
    pthread_mutex_init(&s->lock, NULL);
    dl_cond_init(&s->wake);
    s->url = strdup(url);
    s->parts = malloc(KEPT_ROOM * sizeof *s->parts);
    diloco_status status = dl_zipper_create(&s->zipper, DL_OUTPUT_TEXT);
    if (!status && (!s->url || !s->parts || dl_thread_start(&s->thread, ship, s)))
        status = dl_fail(DILOCO_ENOMEM, "out of memory for the output");
    if (status)
        destroy(s);
    else
        *out = s;
    return status;
}

/* Wait for the thread until this time. Called with the lock. */
static void wait_until(dl_shipper *s, dl_time until)
{
    const struct timespec at = {until / DL_SECOND, until % DL_SECOND};
    while (!s->finished && dl_clock_now() < until)
        pthread_cond_timedwait(&s->wake, &s->lock, &at);
}

/* A part that waits after a failure is sent once more, at once. A request that has not ended by
 * then is aborted, and gets a second to return. */
void dl_shipper_close(dl_shipper *s, dl_time patience)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->until = dl_time_after(dl_clock_now(), patience);
    s->retry = 0;
    pthread_cond_broadcast(&s->wake);
    wait_until(s, s->until);
    if (!s->finished && s->at_store) dl_store_abort(s->at_store);
    wait_until(s, dl_time_after(dl_clock_now(), DL_SECOND));
    const bool finished = s->finished;
    pthread_mutex_unlock(&s->lock);
    if (!finished) return;
    pthread_join(s->thread, NULL);
    destroy(s);
}
