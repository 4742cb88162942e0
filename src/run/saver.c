/* saver.c - see saver.h. `lock` guards what is marked. */
#include "run/saver.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dl_time SLICE = 100 * DL_MILLISECOND; /* longest time until an interrupt is noticed */

enum { NONE = -1 };

struct dl_saver {
    dl_saver_args a;
    pthread_t thread;
    bool started;
    atomic_bool gives_up;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quit;                    /* guarded, as all below */
    bool held;                    /* the caller saves a newer state itself */
    int making, writing, waiting; /* slots; NONE */
    /* [slot] contributions to this entry and later ones need the save */
    uint64_t needed[DL_SAVER_SLOTS];
    uint64_t owed;        /* needs a save that no slot has; UINT64_MAX: none */
    uint64_t unsaved;     /* the lowest of a save that failed */
    diloco_status status; /* of a failed save that no other one replaces */
    char text[1024];      /* of status */
    /* Of saves that replace each other. While a slot is written, only the thread uses them. */
    dl_time patience_end; /* 0: no write has found the disk full */
    bool warned;
};

/* Saves until *end, the end of the patience with a full disk. It is set by the first write that
 * finds the disk full, and 0 before. */
static diloco_status save_until(const dl_saver_args *a, int slot, atomic_bool *gives_up,
                                dl_time *end)
{
    for (bool reported = false;; reported = true) {
        const diloco_status status = a->write(a->user, slot);
        if (status != DILOCO_EFULL) return status;
        if (!*end) *end = dl_time_after(dl_clock_now(), dl_time_from_seconds(a->patience_s));
        if (dl_clock_now() >= *end || atomic_load(gives_up)) return status;
        if (!reported) a->full(a->user, diloco_error_text());
        dl_clock_sleep(SLICE);
    }
}

diloco_status dl_saver_save(const dl_saver_args *a, int slot, atomic_bool *gives_up)
{
    dl_time end = 0;
    return save_until(a, slot, gives_up, &end);
}

static void release_slot(const dl_saver *s, int slot)
{
    if (slot != NONE && s->a.released) s->a.released(s->a.user, slot);
}

/* ---- the thread ------------------------------------------------------------------------- */

static void keep_status(dl_saver *s, diloco_status status)
{
    s->status = status;
    snprintf(s->text, sizeof s->text, "%s", status ? diloco_error_text() : "");
}

/* Lowers an entry that needs a save. */
static void lower(uint64_t *needed, uint64_t entry)
{
    if (entry < *needed) *needed = entry;
}

/* Begins to write the copy that waits, unless another one is written or the saver is held. */
static void write_next(dl_saver *s)
{
    if (s->writing == NONE && !s->held) {
        s->writing = s->waiting;
        s->waiting = NONE;
    }
    pthread_cond_broadcast(&s->changed);
}

/* Ends the write in progress. The contributions of a failed save need the copy that waits or is
 * made, which has a newer state. Returns whether there is such a copy. A copy that is made may
 * still be cancelled, so the failure is kept until it begins. */
static bool end_write(dl_saver *s, diloco_status status)
{
    const uint64_t needed = s->needed[s->writing];
    const int next = s->waiting != NONE ? s->waiting : s->making;
    keep_status(s, s->waiting == NONE ? status : DILOCO_OK);
    if (status) s->unsaved = needed;
    if (status && next != NONE) lower(&s->needed[next], needed);
    s->writing = NONE;
    write_next(s);
    return status && next != NONE;
}

/* Writes each slot that was begun, unless a newer copy replaces it while it waits. The patience
 * with a full disk is one for all saves that replace each other. */
static void *body(void *context)
{
    dl_saver *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->quit || s->writing != NONE) {
        if (s->writing == NONE) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        const int slot = s->writing;
        pthread_mutex_unlock(&s->lock);
        const diloco_status status = save_until(&s->a, slot, &s->gives_up, &s->patience_end);
        release_slot(s, slot);
        pthread_mutex_lock(&s->lock);
        if (!end_write(s, status)) {
            s->patience_end = 0;
            s->warned = s->warned && status;
        } else if (!s->warned) {
            s->warned = true;
            pthread_mutex_unlock(&s->lock);
            s->a.replaced(s->a.user, diloco_error_text());
            pthread_mutex_lock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the trainer and the exchange ------------------------------------------------------- */

bool dl_saver_writes(dl_saver *s)
{
    pthread_mutex_lock(&s->lock);
    const bool writes = s->writing != NONE;
    pthread_mutex_unlock(&s->lock);
    return writes;
}

/* The contributions of a copy that is dropped keep waiting: `needed` of its slot stays. So do those
 * of a copy that was dropped for one that was cancelled. */
int dl_saver_take(dl_saver *s)
{
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(s->making == NONE && !s->held);
    s->making = s->writing == NONE ? 0 : !s->writing;
    DL_ASSERT(s->waiting == NONE || s->waiting == s->making);
    if (s->waiting == NONE) s->needed[s->making] = UINT64_MAX;
    if (s->status) lower(&s->needed[s->making], s->unsaved);
    lower(&s->needed[s->making], s->owed);
    s->owed = UINT64_MAX;
    const int slot = s->making, dropped = s->waiting;
    s->waiting = NONE;
    pthread_mutex_unlock(&s->lock);
    release_slot(s, dropped);
    return slot;
}

void dl_saver_begin(dl_saver *s, int slot, uint64_t entry)
{
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(slot == s->making);
    s->making = NONE;
    lower(&s->needed[slot], entry);
    s->status = DILOCO_OK;
    s->waiting = slot;
    write_next(s);
    pthread_mutex_unlock(&s->lock);
}

void dl_saver_cancel(dl_saver *s)
{
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(s->making != NONE);
    const int dropped = s->making;
    s->owed = s->needed[dropped];
    s->making = NONE;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    release_slot(s, dropped);
}

void dl_saver_hold(dl_saver *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(s->making == NONE && !s->held);
    s->held = true;
    pthread_mutex_unlock(&s->lock);
}

int dl_saver_spare(dl_saver *s)
{
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(s->held && s->making == NONE && s->writing == NONE);
    const int slot = s->waiting == 0;
    pthread_mutex_unlock(&s->lock);
    return slot;
}

void dl_saver_saved(dl_saver *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    DL_ASSERT(s->making == NONE && s->writing == NONE);
    s->held = s->warned = false;
    const int dropped = s->waiting;
    s->waiting = NONE;
    s->owed = UINT64_MAX;
    s->status = DILOCO_OK;
    s->patience_end = 0;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    release_slot(s, dropped);
}

void dl_saver_release(dl_saver *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->held = false;
    write_next(s);
    pthread_mutex_unlock(&s->lock);
}

/* Returns whether an interrupt was requested, and clears it. */
static bool take_down(atomic_bool *interrupted)
{
    return interrupted && atomic_exchange(interrupted, false);
}

static bool is_needed(const dl_saver *s, int slot, uint64_t entry)
{
    return slot != NONE && s->needed[slot] <= entry;
}

/* Returns whether contributions to the entry need a save that failed. */
static bool needs_failed(const dl_saver *s, uint64_t entry)
{
    return s->status && s->unsaved <= entry;
}

/* Returns whether contributions to the entry need a save that only the caller can make or allow. A
 * wait for all saves does not include it: the caller would wait for itself. */
static bool is_callers(const dl_saver *s, uint64_t entry)
{
    if (entry == UINT64_MAX) return false;
    return s->owed <= entry ||
           (s->held && (is_needed(s, s->waiting, entry) || needs_failed(s, entry)));
}

static bool is_in_progress(const dl_saver *s, uint64_t entry)
{
    return is_needed(s, s->writing, entry) || is_needed(s, s->making, entry) ||
           (is_needed(s, s->waiting, entry) && !s->held) ||
           (is_callers(s, entry) && !atomic_load(&s->gives_up));
}

/* A copy that is being made may replace the failed save, and so may a save by the caller. */
static bool has_failed(const dl_saver *s, uint64_t entry)
{
    return needs_failed(s, entry) && s->making == NONE && !s->held;
}

/* A failed save is returned by every call until the next begin. So neither the trainer nor the
 * exchange can miss it. */
diloco_status dl_saver_wait(dl_saver *s, uint64_t entry, atomic_bool *interrupted)
{
    diloco_status status = DILOCO_OK;
    if (!s) return status;
    pthread_mutex_lock(&s->lock);
    while (!has_failed(s, entry) && is_in_progress(s, entry)) {
        if (take_down(interrupted)) {
            status = dl_fail(DILOCO_EINTERRUPTED, "interrupted while the private state is saved");
            break;
        }
        const dl_time until = dl_time_after(dl_clock_now(), SLICE);
        const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
        pthread_cond_timedwait(&s->changed, &s->lock, &t);
    }
    if (!status && has_failed(s, entry)) status = dl_fail(s->status, "%s", s->text);
    if (!status && is_callers(s, entry))
        status = dl_fail(DILOCO_EINTERRUPTED, "the private state was not saved before the end");
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
    s->making = s->writing = s->waiting = NONE;
    s->owed = UINT64_MAX;
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
