/* live_watch.c - see live_watch.h.
 *
 * The thread and the owner share the structure; the last of the two frees it. So a store that
 * does not answer keeps the thread, and not the program: the owner leaves after STOP_WITHIN. */
#include "cli/display/live_watch.h"

#include "base/clock.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

#define EVERY_FOLDER DL_SECOND
#define EVERY_STORE  (10 * DL_SECOND)
#define STOP_WITHIN  DL_SECOND

struct dl_live_watch {
    char store[DL_VIEW_URL], name[DL_VIEW_NAME]; /* never changed after the start */
    dl_views *views;                             /* the thread's own, as are the next two */
    dl_watch_frame next;
    bool utf8;            /* of the terminal */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    dl_watch_frame frame; /* the newest one */
    int columns, lines;   /* 0: nothing was asked for yet */
    bool known;           /* `frame` is the run as it was a moment ago */
    bool stop, ended;     /* the owner wants the thread to end; it has */
    bool left;            /* the owner did not wait for that */
};

/* Called by the last user, without the lock. */
static void destroy(dl_live_watch *w)
{
    dl_views_destroy(w->views);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* The view's name is only for the screen; there is one run, at the store of this watch. */
static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    (void)name;
    return snprintf(url, DL_VIEW_URL, "%s", ((dl_live_watch *)user)->store) < DL_VIEW_URL;
}

/* A folder costs nothing to read, so it is read more often. */
static bool is_folder(const char *store)
{
    return !strstr(store, "://") || !strncmp(store, "file://", 7);
}

/* Draw a frame into w->next. Returns false where the replicas' own lines say more: the store
 * cannot be read, or has no heartbeat yet. */
static bool draw(dl_live_watch *w, int columns, int lines)
{
    dl_view *view;
    if (dl_views_get(&view, w->views, w->name)) return false;
    const diloco_status status = dl_watch_draw(&w->next, view, columns, lines, w->utf8);
    const bool shown = !status && !w->next.idle;
    if (!shown) dl_view_expire(view); /* the replicas here join at any moment */
    dl_view_let_go(view);
    return shown;
}

/* Wait until a frame is due and its size is known. With the lock. */
static void wait_for(dl_live_watch *w, dl_time due)
{
    const struct timespec at = {.tv_sec = due / DL_SECOND, .tv_nsec = due % DL_SECOND};
    while (!w->stop && !w->columns)
        pthread_cond_wait(&w->changed, &w->lock);
    while (!w->stop && dl_clock_now() < due)
        pthread_cond_timedwait(&w->changed, &w->lock, &at);
}

/* The frame is drawn without the lock, into a buffer of the thread's own, and copied under it.
 * So the owner never waits for the store. */
static void *draw_again(void *of)
{
    dl_live_watch *w = of;
    dl_time due = dl_clock_now();
    pthread_mutex_lock(&w->lock);
    while (wait_for(w, due), !w->stop) {
        const int columns = w->columns, lines = w->lines;
        pthread_mutex_unlock(&w->lock);
        /* Without the lock: this may take as long as the store does. */
        const bool drawn = draw(w, columns, lines), more = drawn && w->next.reading;
        due = dl_clock_now() + (more ? 0 : is_folder(w->store) ? EVERY_FOLDER : EVERY_STORE);
        pthread_mutex_lock(&w->lock);
        /* A frame that could not be drawn leaves the last one in place, but not `known`. */
        w->known = drawn;
        if (drawn) w->frame = w->next;
    }
    w->ended = true;
    pthread_cond_broadcast(&w->changed);
    const bool left = w->left;
    pthread_mutex_unlock(&w->lock);
    /* `left` was read under the lock, so exactly one of the two frees it. */
    if (left) destroy(w);
    return NULL;
}

/* The thread is detached: it may outlive the owner's interest in it. */
dl_live_watch *dl_live_watch_start(const char *store, const char *name)
{
    pthread_t thread;
    dl_live_watch *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    snprintf(w->store, sizeof w->store, "%s", store);
    snprintf(w->name, sizeof w->name, "%s", name);
    /* Before the thread starts, as it changes the locale for a moment. */
    w->utf8 = dl_screen_is_utf8();
    pthread_mutex_init(&w->lock, NULL);
    dl_cond_init(&w->changed);
    if (dl_views_create(&w->views, url_of, w) || dl_thread_start(&thread, draw_again, w)) {
        destroy(w);
        return NULL;
    }
    pthread_detach(thread);
    return w;
}

/* Ask the thread to end and wait at most STOP_WITHIN. A thread in a slow request then owns the
 * structure (`left`), and frees it when it ends. */
void dl_live_watch_stop(dl_live_watch *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    const dl_time until = dl_time_after(dl_clock_now(), STOP_WITHIN);
    const struct timespec at = {.tv_sec = until / DL_SECOND, .tv_nsec = until % DL_SECOND};
    while (!w->ended && dl_clock_now() < until)
        pthread_cond_timedwait(&w->changed, &w->lock, &at);
    const bool ended = w->ended;
    w->left = !ended;
    pthread_mutex_unlock(&w->lock);
    if (ended) destroy(w);
}

/* The first call gives the size for the first frame. A frame that is wider than the terminal is
 * not shown. */
bool dl_live_watch_frame(dl_watch_frame *out, dl_live_watch *w, int columns, int lines)
{
    if (!w) return false;
    pthread_mutex_lock(&w->lock);
    if (!w->columns) pthread_cond_broadcast(&w->changed);
    w->columns = columns;
    w->lines = lines;
    const bool known = w->known && w->frame.columns <= columns;
    if (known) *out = w->frame;
    pthread_mutex_unlock(&w->lock);
    return known;
}
