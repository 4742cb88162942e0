/* pipelined_upload.c - see pipelined_upload.h.
 *
 *     IDLE --begin--> IN_FLIGHT --uploaded, or given up--> ENDED --reap--> IDLE
 *
 * `lock` guards the marked fields. While IN_FLIGHT, only the thread uses its store and the
 * contribution that dl_exec made, without the lock. */
#include "exchange/pipelined_upload.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dl_time SLICE = 100 * DL_MILLISECOND; /* longest delay before it sees the end */
static const dl_time PAUSE_FIRST = 50 * DL_MILLISECOND, PAUSE_LONGEST = 5 * DL_SECOND;

typedef enum phase { IDLE, IN_FLIGHT, ENDED } phase;

struct dl_sending {
    dl_sending_args a;
    dl_store *store; /* used by the thread */
    pthread_t thread;
    bool started;
    atomic_bool quit;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    phase phase; /* guarded, as all fields below */
    uint64_t entry;
    diloco_status status;
    char text[1024]; /* of status */
    dl_store_counters traffic;
    double up_bps;
};

/* ---- the thread --------------------------------------------------------------------------- */

/* Sleeps in slices, so that dl_sending_destroy does not wait for a whole pause. */
static void pause_for(dl_sending *s, dl_time pause)
{
    for (dl_time left = pause; left > 0 && !atomic_load(&s->quit); left -= SLICE)
        dl_clock_sleep(left < SLICE ? left : SLICE);
}

/* Waits for the save of the private state (P16). Then it uploads until the store answers or has
 * failed for the given time. After `quit` no upload begins. A repeated upload is harmless: equal
 * bytes under a taken name are a success. */
static diloco_status send(dl_sending *s, uint64_t entry)
{
    DL_TRY(dl_exec_await_saved(s->a.exec, entry));
    if (atomic_load(&s->quit)) return dl_fail(DILOCO_EINTERRUPTED, "the exchange ends");
    const dl_time patience = dl_time_from_seconds(s->a.store_timeout_s);
    dl_time give_up = 0;
    for (dl_time pause = PAUSE_FIRST;;
         pause = pause * 2 < PAUSE_LONGEST ? pause * 2 : PAUSE_LONGEST) {
        const diloco_status status =
            dl_exec_send(s->a.exec, s->store, dl_time_after(dl_clock_now(), patience));
        if (!dl_store_may_recover(s->store, status)) return status;
        const dl_time now = dl_clock_now();
        if (!give_up) give_up = dl_time_after(now, patience);
        if (now >= give_up) return dl_store_lasting(status);
        pause_for(s, pause);
        if (atomic_load(&s->quit)) return status;
    }
}

/* Call it with the lock held. Copies error, traffic and speed, since the store's handle belongs to
 * this thread. */
static void end(dl_sending *s, diloco_status status)
{
    s->phase = ENDED;
    s->status = status;
    snprintf(s->text, sizeof s->text, "%s", status ? diloco_error_text() : "");
    s->traffic = dl_store_counts(s->store);
    s->up_bps = dl_store_speed_now(s->store).up_bps;
    atomic_store(s->a.ended, true);
    pthread_cond_broadcast(&s->changed);
}

/* The lock is released only while it sends. After `quit` a failed upload is not repeated. */
static void *body(void *context)
{
    dl_sending *s = context;
    pthread_mutex_lock(&s->lock);
    while (!atomic_load(&s->quit)) {
        if (s->phase == IN_FLIGHT) {
            const uint64_t entry = s->entry;
            pthread_mutex_unlock(&s->lock);
            const diloco_status status = send(s, entry);
            pthread_mutex_lock(&s->lock);
            end(s, status);
        } else {
            pthread_cond_wait(&s->changed, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the exchange's side ------------------------------------------------------------------ */

void dl_sending_begin(dl_sending *s, uint64_t entry)
{
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(s->phase == IDLE);
    s->phase = IN_FLIGHT;
    s->entry = entry;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

uint64_t dl_sending_now(dl_sending *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t now = s->phase == IDLE ? 0 : 1 + s->entry;
    pthread_mutex_unlock(&s->lock);
    return now;
}

bool dl_sending_wait(dl_sending *s, dl_time longest)
{
    const dl_time until = dl_time_after(dl_clock_now(), longest);
    const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
    pthread_mutex_lock(&s->lock);
    while (s->phase == IN_FLIGHT && dl_clock_now() < until)
        pthread_cond_timedwait(&s->changed, &s->lock, &t);
    const bool in_flight = s->phase == IN_FLIGHT;
    pthread_mutex_unlock(&s->lock);
    return in_flight;
}

/* The error's text is set for the calling thread, from the copy. */
bool dl_sending_reap(dl_sending *s, uint64_t *entry, diloco_status *status)
{
    pthread_mutex_lock(&s->lock);
    const bool ended = s->phase == ENDED;
    if (ended) {
        s->phase = IDLE;
        *entry = s->entry;
        *status = s->status ? dl_fail(s->status, "%s", s->text) : DILOCO_OK;
    }
    pthread_mutex_unlock(&s->lock);
    return ended;
}

dl_store_counters dl_sending_traffic(dl_sending *s)
{
    pthread_mutex_lock(&s->lock);
    const dl_store_counters traffic = s->traffic;
    pthread_mutex_unlock(&s->lock);
    return traffic;
}

double dl_sending_up_bps(dl_sending *s)
{
    pthread_mutex_lock(&s->lock);
    const double up_bps = s->up_bps;
    pthread_mutex_unlock(&s->lock);
    return up_bps;
}

/* ---- create and destroy ------------------------------------------------------------------- */

static diloco_status start(dl_sending *s)
{
    DL_TRY(dl_store_open_at(&s->store, s->a.address, false));
    dl_store_count_into(s->store, s->a.tally);
    const int error = dl_thread_start(&s->thread, body, s);
    if (error) return dl_fail(DILOCO_ENOMEM, "no thread for the exchange: %s", strerror(error));
    s->started = true;
    return DILOCO_OK;
}

diloco_status dl_sending_create(dl_sending **out, const dl_sending_args *args)
{
    *out = NULL;
    dl_sending *s = calloc(1, sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
    s->a = *args;
    pthread_mutex_init(&s->lock, NULL);
    dl_cond_init(&s->changed);
    const diloco_status status = start(s);
    if (status)
        dl_sending_destroy(s);
    else
        *out = s;
    return status;
}

void dl_sending_destroy(dl_sending *s)
{
    if (!s) return;
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->quit, true);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    dl_store_close(s->store);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
