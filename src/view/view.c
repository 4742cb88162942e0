/* view.c - the views, and how one is kept up to date (view.h).
 *
 * A list under one lock holds the views, and each view has a lock of its own. The list's lock is
 * held only while pointers and counters change. A view's lock is held while the store is read, so a
 * slow store delays the viewers of its run and no others. */
#include "view/parts.h"

#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rates and budgets that view.h promises. A budget bounds the time that a request waits, since
 * requests do the reading. It also bounds the time that view->lock is held. */
#define REFRESH_EVERY DL_SECOND
#define LOOK_EVERY    (5 * DL_SECOND)
#define BUDGET        (DL_SECOND / 4)
/* A list of runs brings up many views for the first time, one after the other. */
#define FIRST_BUDGET (DL_SECOND / 20)
#define FORGET_AFTER (600 * DL_SECOND)
#define WATCHED_FOR  (30 * DL_SECOND)

struct dl_views {
    pthread_mutex_t lock; /* guards the list, and each view's users and asked */
    dl_view *first;
    dl_view_url_fn url_of;
    void *user;
};

diloco_status dl_views_create(dl_views **out, dl_view_url_fn url_of, void *user)
{
    dl_views *v = *out = calloc(1, sizeof *v);
    if (!v) return dl_fail(DILOCO_ENOMEM, "out of memory for the views of runs");
    pthread_mutex_init(&v->lock, NULL);
    v->url_of = url_of;
    v->user = user;
    return DILOCO_OK;
}

/* No lock is held, as closing a follower may take long. */
static void view_free(dl_view *view)
{
    dl_follower_close(view->follower);
    dl_model_deinit(&view->model);
    dl_view_entries_deinit(view);
    pthread_mutex_destroy(&view->lock);
    free(view);
}

void dl_views_destroy(dl_views *v)
{
    if (!v) return;
    while (v->first) {
        dl_view *view = v->first;
        v->first = view->next;
        view_free(view);
    }
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* Remove unused views from the list that are broken, or that no request has used for FORGET_AFTER.
 * Returns them as a list, to be freed without a lock. The caller has views->lock. */
static dl_view *take_forgotten(dl_views *v)
{
    const dl_time now = dl_clock_now();
    dl_view *gone = NULL;
    for (dl_view **at = &v->first; *at;) {
        dl_view *view = *at;
        if (view->users || (!view->broken && now - view->asked < FORGET_AFTER)) {
            at = &view->next;
            continue;
        }
        *at = view->next;
        view->next = gone;
        gone = view;
    }
    return gone;
}

/* The view of a name that url_of accepts, without a follower. Returns DILOCO_ENOENT for other
 * names. */
static diloco_status view_create(dl_view **out, dl_views *v, const char *name)
{
    dl_view *view = *out = calloc(1, sizeof *view);
    if (!view) return dl_fail(DILOCO_ENOMEM, "out of memory for the view of a run");
    pthread_mutex_init(&view->lock, NULL);
    dl_model_init(&view->model);
    dl_view_entries_init(view);
    view->views = v;
    const bool named = strlen(name) < sizeof view->name && v->url_of(v->user, view->url, name);
    snprintf(view->name, sizeof view->name, "%s", named ? name : "");
    if (named) return DILOCO_OK;
    view_free(view);
    *out = NULL;
    return dl_fail(DILOCO_ENOENT, "no run is called %.200s here", name);
}

/* Broken views are skipped, so that a run which was replaced gets a new view. The caller has
 * views->lock. */
static diloco_status find_or_make(dl_view **out, dl_views *v, const char *name)
{
    for (dl_view *view = v->first; view; view = view->next)
        if (!view->broken && !strcmp(view->name, name)) {
            *out = view;
            return DILOCO_OK;
        }
    DL_TRY(view_create(out, v, name));
    (*out)->next = v->first;
    v->first = *out;
    return DILOCO_OK;
}

/* The view is counted as used before the list's lock is released, and opened after that:
 * several requests for a new run wait for one opening. If that fails, the view is broken for
 * all of them. */
diloco_status dl_views_get(dl_view **out, dl_views *v, const char *name)
{
    pthread_mutex_lock(&v->lock);
    dl_view *gone = take_forgotten(v);
    diloco_status status = find_or_make(out, v, name);
    if (!status) (*out)->users++, (*out)->asked = dl_clock_now();
    pthread_mutex_unlock(&v->lock);
    while (gone) {
        dl_view *next = gone->next;
        view_free(gone);
        gone = next;
    }
    if (status) return status;
    pthread_mutex_lock(&(*out)->lock);
    if (!(*out)->follower) status = dl_follower_open(&(*out)->follower, (*out)->url);
    pthread_mutex_unlock(&(*out)->lock);
    if (!status) return DILOCO_OK;
    pthread_mutex_lock(&v->lock);
    (*out)->broken = true;
    pthread_mutex_unlock(&v->lock);
    dl_view_let_go(*out);
    *out = NULL;
    return status;
}

void dl_view_let_go(dl_view *view)
{
    pthread_mutex_lock(&view->views->lock);
    view->users--;
    pthread_mutex_unlock(&view->views->lock);
}

/* ---- up to date */

/* The follower's sink: an entry or a line of a record goes into the model. A page's model does not
 * ask whether an entry is valid, only whether it follows from the one before it (`chained`). */
static diloco_status take_entry(void *user, const diloco_log_entry *entry, bool chained)
{
    dl_view *view = user;
    return dl_model_entry(&view->model, entry, chained);
}

static diloco_status take_line(void *user, const dl_generation *generation, const char *line,
                               size_t len)
{
    dl_view *view = user;
    return dl_model_line(&view->model, generation->replica, line, len);
}

/* Look at the replicas if that is due, then read what is new within the budget. The caller has
 * view->lock. */
static diloco_status refresh(dl_view *view)
{
    const dl_time now = dl_clock_now();
    const dl_follower_sink sink = {view, take_entry, take_line};
    const bool first = !view->looked, loading = first || view->in_log;
    const size_t before = view->model.n_entries;
    if (first || now - view->looked >= LOOK_EVERY) {
        DL_TRY(dl_follower_look(view->follower));
        view->looked = dl_clock_now();
    }
    const dl_time until = dl_time_after(now, first ? FIRST_BUDGET : BUDGET);
    DL_TRY(dl_follower_read(view->follower, &view->more, &sink, until));
    view->in_log = !dl_follower_has_log(view->follower);
    if (!loading && !view->in_log && view->model.n_entries > before && before > 0)
        view->grown = dl_clock_wall();
    /* A look describes the open entry of the log as far as it was read. */
    if (loading && !view->in_log) {
        DL_TRY(dl_follower_look(view->follower));
        view->looked = dl_clock_now();
    }
    view->refreshed = dl_clock_now();
    return DILOCO_OK;
}

/* A view that has more to read is refreshed by every request, until it is complete. */
diloco_status dl_view_bring_up(dl_view *view)
{
    const dl_time now = dl_clock_now();
    if (view->refreshed && !view->more && now - view->refreshed < REFRESH_EVERY) return DILOCO_OK;
    const diloco_status status = refresh(view);
    if (!status) return DILOCO_OK;
    pthread_mutex_lock(&view->views->lock);
    view->broken = true;
    pthread_mutex_unlock(&view->views->lock);
    return status;
}

/* Zero is the mark of a view that was never refreshed. */
void dl_view_expire(dl_view *view)
{
    pthread_mutex_lock(&view->lock);
    view->refreshed = view->looked = 0;
    pthread_mutex_unlock(&view->lock);
}

bool dl_views_is_watched(dl_views *v, const char *name)
{
    bool watched = false;
    const dl_time now = dl_clock_now();
    pthread_mutex_lock(&v->lock);
    for (const dl_view *view = v->first; view && !watched; view = view->next)
        watched = !view->broken && !strcmp(view->name, name) && now - view->asked < WATCHED_FOR;
    pthread_mutex_unlock(&v->lock);
    return watched;
}

diloco_status dl_view_follow(dl_view *view, uint64_t *entries, bool *grown, bool *more)
{
    pthread_mutex_lock(&view->lock);
    const diloco_status status = dl_view_bring_up(view);
    *entries = view->model.n_entries;
    *grown = view->model.n_entries != view->n_published;
    *more = view->more;
    view->n_published = view->model.n_entries;
    pthread_mutex_unlock(&view->lock);
    return status;
}
