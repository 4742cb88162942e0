/* saver.c - see saver.h. `lock` guards what is marked. */
#include "run/saver.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dl_time SLICE = 100 * DL_MILLISECOND; /* longest time until an interrupt is noticed */

struct dl_saver {
    dl_saver_args a;
    pthread_t thread;
    bool started;
    atomic_bool gives_up;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quit, writing;   /* guarded, as all below */
    diloco_status status; /* of the last save */
    char text[1024];      /* of status */
};

diloco_status dl_saver_save(const dl_saver_args *a, atomic_bool *gives_up)
{
    const dl_time end = dl_time_after(dl_clock_now(), dl_time_from_seconds(a->patience_s));
    for (bool reported = false;; reported = true) {
        const diloco_status status = a->write(a->user);
        if (status != DILOCO_EFULL || dl_clock_now() >= end || atomic_load(gives_up)) return status;
        if (!reported) a->full(a->user, diloco_error_text());
        dl_clock_sleep(SLICE);
    }
}

/* ---- the thread ------------------------------------------------------------------------- */

/* Writes once per begin. A save that was begun is finished before the thread ends. */
static void *body(void *context)
{
    dl_saver *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->quit || s->writing) {
        if (!s->writing) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        const diloco_status status = dl_saver_save(&s->a, &s->gives_up);
        pthread_mutex_lock(&s->lock);
        s->status = status;
        snprintf(s->text, sizeof s->text, "%s", status ? diloco_error_text() : "");
        s->writing = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the trainer and the exchange ------------------------------------------------------- */

void dl_saver_begin(dl_saver *s)
{
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(!s->writing);
    s->writing = true;
    s->status = DILOCO_OK;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Returns whether an interrupt was requested, and clears it. */
static bool take_down(atomic_bool *interrupted)
{
    return interrupted && atomic_exchange(interrupted, false);
}

/* A failed save is returned by every call until the next begin. So neither the trainer nor the
 * exchange can miss it. */
diloco_status dl_saver_wait(dl_saver *s, atomic_bool *interrupted)
{
    diloco_status status = DILOCO_OK;
    if (!s) return status;
    pthread_mutex_lock(&s->lock);
    while (s->writing && !status) {
        const dl_time until = dl_time_after(dl_clock_now(), SLICE);
        const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
        pthread_cond_timedwait(&s->changed, &s->lock, &t);
        if (s->writing && take_down(interrupted))
            status = dl_fail(DILOCO_EINTERRUPTED, "interrupted while the private state is saved");
    }
    if (!status && s->status) status = dl_fail(s->status, "%s", s->text);
    pthread_mutex_unlock(&s->lock);
    return status;
}

void dl_saver_give_up(dl_saver *s)
{
    if (s) atomic_store(&s->gives_up, true);
}

/* ---- making and unmaking ---------------------------------------------------------------- */

diloco_status dl_saver_create(dl_saver **out, const dl_saver_args *args)
{
    *out = NULL;
    dl_saver *s = calloc(1, sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for a thread that saves");
    s->a = *args;
    pthread_mutex_init(&s->lock, NULL);
    dl_cond_init(&s->changed);
    const int error = dl_thread_start(&s->thread, body, s);
    s->started = error == 0;
    if (error) {
        dl_saver_destroy(s);
        return dl_fail(DILOCO_ENOMEM, "no thread to save the private state: %s", strerror(error));
    }
    *out = s;
    return DILOCO_OK;
}

void dl_saver_destroy(dl_saver *s)
{
    if (!s) return;
    if (s->started) {
        dl_saver_give_up(s);
        pthread_mutex_lock(&s->lock);
        s->quit = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
