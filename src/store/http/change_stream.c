/* change_stream.c - see change_stream.h.
 *
 * The stream is subscribed to the first folders of all prefixes that were ever waited for. For
 * "c/0000000012/" and "log/" these are c/ and log/, so it need not start again with every entry.
 * Any event sets `heard`, which one wait takes. */
#include "store/http/change_stream.h"

#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TRY_AGAIN           (DL_SECOND / 2)
#define LOOK_WITHOUT_STREAM DL_SECOND

enum { FOLDERS_MAX = 4096, ALL_FOLDERS = 14 /* more: all keys; the hub takes 16 prefixes */ };

struct dl_change_stream {
    dl_change_stream_args a;
    dl_web *web;
    pthread_t thread;
    dl_time looked; /* without a stream; the waiter's */

    atomic_bool restart;  /* the stream in flight ends: web.c looks at it */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    bool quit, heard, connected;
    dl_buf folders; /* "c/", "log/", zero-terminated each; "": all */
};

/* ---- the thread */

/* Runs on the ear's thread. `connected` also stops the waiter from polling. */
static diloco_status on_piece(void *context, const void *data, size_t len)
{
    dl_change_stream *stream = context;
    if (stream->a.is_event && !stream->a.is_event(stream->a.context, data, len)) return DILOCO_OK;
    pthread_mutex_lock(&stream->lock);
    stream->heard = stream->connected = true;
    pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&stream->lock);
    return DILOCO_OK;
}

/* As many as a store takes in one subscription; else all keys. Returns 0 if one subscription cannot
 * take all folders; then every key is watched. */
static size_t folders_len(const dl_change_stream *stream)
{
    const char *all = (const char *)stream->folders.data;
    size_t n = 0;
    for (size_t at = 0; at < stream->folders.len; at += strlen(all + at) + 1)
        if (!all[at] || ++n > ALL_FOLDERS) return 0;
    return stream->folders.len;
}

static diloco_status prepare(void *context, dl_web_exchange *x)
{
    dl_change_stream *stream = context;
    x->sink = (dl_sink){.context = stream, .piece = on_piece};
    pthread_mutex_lock(&stream->lock);
    diloco_status status = stream->a.prepare(
        stream->a.context, x, (const char *)stream->folders.data, folders_len(stream));
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* For a while, or until it is over. With the lock. */
static void pause_a_while(dl_change_stream *stream)
{
    dl_time t = dl_clock_now() + TRY_AGAIN;
    struct timespec until = {.tv_sec = t / DL_SECOND, .tv_nsec = t % DL_SECOND};
    while (!stream->quit && !atomic_load(&stream->restart) && dl_clock_now() < t)
        pthread_cond_timedwait(&stream->wake, &stream->lock, &until);
}

/* However a stream ends, there will be another. Runs until the end, one stream after the other.
 * `restart` ends a stream, because its folders have changed. */
static void *follow(void *context)
{
    dl_change_stream *stream = context;
    const dl_web_batch batch = {.n = 1, .width = 1, .context = stream, .prepare = prepare};
    pthread_mutex_lock(&stream->lock);
    while (!stream->quit) {
        atomic_store(&stream->restart, false);
        pthread_mutex_unlock(&stream->lock);
        diloco_status status = dl_web_run(stream->web, &batch, DL_NEVER);
        pthread_mutex_lock(&stream->lock);
        stream->connected = false;
        if (status != DILOCO_ECLOSED) pause_a_while(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* ---- making and unmaking */

/* The thread has an HTTP client of its own, since a dl_web belongs to one thread. It blocks all
 * signals, which are the program's. */
static diloco_status start(dl_change_stream *stream)
{
    dl_web_options options = *stream->a.web;
    sigset_t all, old;
    options.tries = 1; /* the thread tries again by itself */
    DL_TRY(dl_web_create(&stream->web, &options, &stream->restart));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&stream->thread, NULL, follow, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed ? dl_fail(DILOCO_ENOMEM, "the system cannot start another thread") : DILOCO_OK;
}

static void ear_free(dl_change_stream *stream)
{
    dl_web_destroy(stream->web);
    dl_buf_deinit(&stream->folders);
    pthread_cond_destroy(&stream->wake);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

diloco_status dl_change_stream_create(dl_change_stream **out, const dl_change_stream_args *args)
{
    *out = NULL;
    dl_change_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return dl_fail(DILOCO_ENOMEM, "not enough memory to follow a store's events");
    stream->a = *args;
    dl_buf_init(&stream->folders, FOLDERS_MAX);
    pthread_mutex_init(&stream->lock, NULL);
    dl_cond_init(&stream->wake);
    diloco_status status = start(stream);
    if (status) {
        ear_free(stream);
        return status;
    }
    *out = stream;
    return DILOCO_OK;
}

/* Ends the stream by `restart`, which its client checks at least ten times a second. */
void dl_change_stream_destroy(dl_change_stream *stream)
{
    if (!stream) return;
    pthread_mutex_lock(&stream->lock);
    stream->quit = true;
    atomic_store(&stream->restart, true);
    pthread_cond_broadcast(&stream->wake);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    ear_free(stream);
}

/* ---- the waiter */

/* Add the first folder of a prefix; true: it is new. Folders are only ever added, so the stream
 * settles after the first waits. */
static bool add_folder(dl_change_stream *stream, const char *prefix)
{
    const char *all = (const char *)stream->folders.data;
    size_t len = strcspn(prefix, "/");
    if (prefix[len]) len++;
    for (size_t at = 0; at < stream->folders.len; at += strlen(all + at) + 1)
        if (!all[at] || (strlen(all + at) == len && !memcmp(all + at, prefix, len))) return false;
    char folder[DL_KEY_MAX + 2];
    memcpy(folder, prefix, len);
    folder[len] = '\0';
    /* No room: then all keys from here on, for which there is always some. */
    if (stream->folders.len + len + 2 > FOLDERS_MAX) folder[len = 0] = '\0';
    return dl_buf_add(&stream->folders, folder, len + 1) == DILOCO_OK;
}

static diloco_status wait_slice(dl_change_stream *stream, dl_time until)
{
    dl_time slice = dl_time_after(dl_clock_now(), DL_STORE_SLICE);
    if (slice > until) slice = until;
    struct timespec t = {.tv_sec = slice / DL_SECOND, .tv_nsec = slice % DL_SECOND};
    pthread_cond_timedwait(&stream->wake, &stream->lock, &t);
    return dl_store_check(stream->a.aborted, until, "waiting");
}

/* Returns OK if an event came since the last wait. Without a stream it returns OK once a second, so
 * that the caller looks. */
diloco_status dl_change_stream_wait(dl_change_stream *stream, const char *const *prefixes, size_t n,
                                    dl_time until)
{
    bool more = false;
    diloco_status status = DILOCO_OK;
    pthread_mutex_lock(&stream->lock);
    for (size_t i = 0; i < n; i++)
        more |= add_folder(stream, prefixes[i]);
    if (more) {
        atomic_store(&stream->restart, true);
        pthread_cond_broadcast(&stream->wake);
    }
    while (!stream->heard && !status)
        status = wait_slice(stream, until);
    if (stream->heard && status != DILOCO_ECLOSED) status = DILOCO_OK;
    if (!status) stream->heard = false;
    bool deaf = !stream->connected;
    pthread_mutex_unlock(&stream->lock);
    if (status == DILOCO_ETIMEDOUT && deaf &&
        dl_clock_now() - stream->looked > LOOK_WITHOUT_STREAM) {
        stream->looked = dl_clock_now();
        return DILOCO_OK;
    }
    return status;
}
