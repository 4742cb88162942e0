/* event_stream.c - a list of streams; each has a queue of text, bounded, and an eventfd to wake it.
 *
 * A change is put into the queue of every stream it concerns, under one lock, without waiting. A
 * full queue is emptied and says "lost" instead: a slow reader costs memory DL_STREAM_QUEUE
 * and does not slow others. The reader polls its eventfd beside its connection, so that a stream
 * whose reader went away ends at once. */
#include "hub/event_stream.h"

#include "base/buf.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* One open stream. The thread of its connection reads it; any thread adds to its queue under
 * events->lock. */
struct dl_stream {
    dl_stream *next;      /* of the list; guarded by its lock */
    dl_events *events;    /* that the stream is in */
    int wake, connection; /* eventfd, owned; and the client's socket, borrowed until the close */
    char *base;           /* "run/", owned; the reported keys are relative to it */
    char *prefixes[DL_STREAM_PREFIXES]; /* owned; below base */
    size_t n_prefixes;
    bool awaited;   /* it is not read */
    dl_buf queue;   /* at most DL_STREAM_QUEUE */
    size_t n_taken; /* of the queue, copied out */
};

void dl_events_init(dl_events *events)
{
    pthread_mutex_init(&events->lock, NULL);
    events->streams = NULL;
    events->closed = false;
}

void dl_events_deinit(dl_events *events)
{
    DL_ASSERT(!events->streams);
    pthread_mutex_destroy(&events->lock);
}

static void wake(const dl_stream *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wake, &one, sizeof one); /* full: it is awake already */
    (void)n;
}

/* Each reader finds `closed` when it wakes, and ends its reply. Streams that are opened later
 * end at once. */
void dl_events_close(dl_events *events)
{
    pthread_mutex_lock(&events->lock);
    events->closed = true;
    for (const dl_stream *s = events->streams; s; s = s->next)
        wake(s);
    pthread_mutex_unlock(&events->lock);
}

size_t dl_events_count(dl_events *events)
{
    size_t n = 0;
    pthread_mutex_lock(&events->lock);
    for (const dl_stream *s = events->streams; s; s = s->next)
        n += !s->awaited;
    pthread_mutex_unlock(&events->lock);
    return n;
}

/* Return the key that the stream reports for `path`, or NULL if it has not subscribed to it. The
 * result points into `path`. */
static const char *concerns(const dl_stream *s, const char *path)
{
    size_t base = strlen(s->base);
    if (strncmp(path, s->base, base) != 0) return NULL;
    const char *key = path + base;
    bool any = s->n_prefixes == 0;
    for (size_t i = 0; i < s->n_prefixes && !any; i++)
        any = strncmp(key, s->prefixes[i], strlen(s->prefixes[i])) == 0;
    return any ? key : NULL;
}

/* Add a message to the queue of every stream that the path concerns. The queue is bounded and
 * nothing waits, so the writer of an object is never held up by a reader. */
void dl_events_report(dl_events *events, const char *path)
{
    pthread_mutex_lock(&events->lock);
    for (dl_stream *s = events->streams; s; s = s->next) {
        const char *key = concerns(s, path);
        if (!key) continue;
        if (dl_buf_addf(&s->queue, "data: %s\n\n", key)) {
            dl_buf_clear(&s->queue);
            s->n_taken = 0;
            /* A line cut in the middle by this ends with the first newline. */
            if (dl_buf_addf(&s->queue, "\n\nevent: lost\ndata:\n\n"))
                continue; /* then at the beat */
        }
        wake(s);
    }
    pthread_mutex_unlock(&events->lock);
}

/* Allocate the copies and the eventfd. After an error stream_free releases whatever was made.
 * The eventfd begins at 1, so the first read returns the "open" event at once. */
static diloco_status fill(dl_stream *s, const char *base, const char *const *prefixes, size_t n)
{
    bool full = !(s->base = strdup(base));
    for (; s->n_prefixes < n && !full; s->n_prefixes += !full)
        full = !(s->prefixes[s->n_prefixes] = strdup(prefixes[s->n_prefixes]));
    dl_buf_init(&s->queue, DL_STREAM_QUEUE);
    if (full) return dl_fail(DILOCO_ENOMEM, "out of memory for an event stream");
    DL_TRY(dl_buf_addf(&s->queue, "event: open\ndata: %s\n\n", base));
    s->wake = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->wake < 0 ? dl_fail(DILOCO_EIO, "no descriptor for an event stream") : DILOCO_OK;
}

static void stream_free(dl_stream *s)
{
    if (s->wake >= 0) close(s->wake);
    for (size_t i = 0; i < s->n_prefixes; i++)
        free(s->prefixes[i]);
    free(s->base);
    dl_buf_deinit(&s->queue);
    free(s);
}

/* The stream is in the list before the first byte is sent. So a change after "open" is in its
 * queue, and none is missed between a listing and the subscription. */
static void enlist(dl_stream *s)
{
    pthread_mutex_lock(&s->events->lock);
    s->next = s->events->streams;
    s->events->streams = s;
    pthread_mutex_unlock(&s->events->lock);
}

static diloco_status make(dl_stream **out, dl_events *events, const char *base,
                          const char *const *prefixes, size_t n, int fd)
{
    DL_ASSERT(n <= DL_STREAM_PREFIXES);
    *out = NULL;
    dl_stream *s = calloc(1, sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for an event stream");
    s->events = events;
    s->connection = fd;
    s->wake = -1;
    const diloco_status status = fill(s, base, prefixes, n);
    if (status)
        stream_free(s);
    else
        *out = s;
    return status;
}

diloco_status dl_stream_open(dl_stream **out, dl_events *events, const char *base,
                             const char *const *prefixes, size_t n, int fd)
{
    DL_TRY(make(out, events, base, prefixes, n, fd));
    enlist(*out);
    return DILOCO_OK;
}

diloco_status dl_stream_open_awaited(dl_stream **out, dl_events *events, const char *base,
                                     const char *key, int fd)
{
    DL_TRY(make(out, events, base, &key, 1, fd));
    (*out)->awaited = true;
    enlist(*out);
    return DILOCO_OK;
}

/* The lock keeps a writer from adding to the stream while it leaves the list; afterwards only
 * this thread knows it. */
void dl_stream_close(dl_stream *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->events->lock);
    dl_stream **at = &s->events->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&s->events->lock);
    stream_free(s);
}

/* Wait for a wake, for the end of the connection, or for `most`. Returns false if the reader has
 * gone. *beat is true if nothing happened. */
static bool sleep_until_woken(const dl_stream *s, dl_time most, bool *beat)
{
    struct pollfd polls[] = {{.fd = s->wake, .events = POLLIN},
                             {.fd = s->connection, .events = POLLRDHUP}};
    int n = poll(polls, 2, (int)((most + DL_MILLISECOND - 1) / DL_MILLISECOND));
    uint64_t count;
    *beat = n == 0;
    if (n > 0 && polls[0].revents && read(s->wake, &count, sizeof count) < 0) *beat = false;
    return n <= 0 || !polls[1].revents;
}

/* Copy up to `cap` bytes out of the queue. The queue is emptied once all of it was copied, so
 * its memory is reused. */
static size_t take(dl_stream *s, char *out, size_t cap, bool *closed)
{
    pthread_mutex_lock(&s->events->lock);
    size_t n = dl_size_min(cap, s->queue.len - s->n_taken);
    if (n) memcpy(out, s->queue.data + s->n_taken, n);
    s->n_taken += n;
    if (s->n_taken == s->queue.len) {
        dl_buf_clear(&s->queue);
        s->n_taken = 0;
    }
    *closed = s->events->closed;
    pthread_mutex_unlock(&s->events->lock);
    return n;
}

/* Copy out text if there is any, else sleep. A beat also finds a connection that broke without a
 * word, since sending to it fails. */
size_t dl_stream_read(dl_stream *s, char *out, size_t cap)
{
    static const char still[] = ": still here\n\n";
    DL_ASSERT(cap >= sizeof still);
    for (bool beat;;) {
        bool closed;
        size_t n = take(s, out, cap, &closed);
        if (closed || n) return closed ? 0 : n;
        if (!sleep_until_woken(s, DL_STREAM_BEAT, &beat)) return 0;
        if (beat) {
            memcpy(out, still, sizeof still - 1);
            return sizeof still - 1;
        }
    }
}

/* A change that comes before the sleep has set the eventfd, which ends the sleep at once. */
bool dl_stream_await(dl_stream *s, dl_time until)
{
    bool beat;
    pthread_mutex_lock(&s->events->lock);
    dl_buf_clear(&s->queue);
    s->n_taken = 0;
    const bool closed = s->events->closed;
    pthread_mutex_unlock(&s->events->lock);
    const dl_time left = until - dl_clock_now();
    if (closed || left <= 0) return false;
    return sleep_until_woken(s, left < DL_STREAM_BEAT ? left : DL_STREAM_BEAT, &beat);
}
