/* notify.c - see notify.h.
 *
 * The thread looks at the run every LOOK_EVERY, and at once when it is stopped. A look brings a
 * view (view/view.h) up to date and turns it into conditions. notices.h decides which of these are
 * sent, and deliver.h sends them. view/findings.c decides what is wrong, in the page's own words.
 * Two conditions are found here: that no entry comes, and that the store does not answer. */
#include "notify/notify.h"

#include "base/log.h"
#include "base/thread.h"
#include "notify/deliver.h"
#include "view/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY (5 * DL_SECOND)
/* A run stalls if there is no entry for STALL_ROUNDS times the length of a round, and at least for
 * STALL_LEAST seconds. Before the length of a round is known it is STALL_FIRST seconds. */
#define STALL_ROUNDS 5.0
#define STALL_LEAST  60.0
#define STALL_FIRST  600.0
/* Looks in a row that have to fail: one failure is often a restart of the store. MOST has room for
 * all findings and for the conditions that are found here. */
enum { UNREACHABLE_LOOKS = 2, MOST = DL_FINDINGS + 4 };

/* The thread reads `deliver`, `store`, `name` and `views`, which are set before it starts. */
struct dl_notify {
    dl_deliver deliver;
    char store[DL_VIEW_URL], run[33], name[64];
    dl_views *views;
    pthread_t thread;
    pthread_mutex_t lock; /* guards `stop` */
    pthread_cond_t changed;
    bool stop;
    /* The thread's own: */
    dl_notices notices;
    /* No look has succeeded yet. The time of the newest entry is unknown until then. */
    bool first;
    int failed;   /* looks in a row */
    size_t known; /* entries at the last look, */
    dl_time grew; /* and when one was last seen to come */
};

/* ---- conditions */

/* The conditions of one look. */
typedef struct conditions {
    dl_notice all[MOST];
    size_t n;
} conditions;

static void hold(conditions *c, dl_notice_event event, const char *replica, const char *text)
{
    if (c->n == MOST) return;
    dl_notice *n = &c->all[c->n++];
    *n = (dl_notice){.event = event};
    snprintf(n->replica, sizeof n->replica, "%s", replica);
    snprintf(n->text, sizeof n->text, "%s", text);
}

/* Findings of the page that are worth a notice. DL_FINDING_OTHER are for a person who looks
 * anyway. */
static void hold_findings(conditions *c, const dl_view *view)
{
    static const dl_notice_event events[] = {[DL_FINDING_LOST] = DL_NOTICE_REPLICA_LOST,
                                             [DL_FINDING_STOPPED] = DL_NOTICE_RUN_STALLED,
                                             [DL_FINDING_DIVERGENCE] = DL_NOTICE_DIVERGENCE};
    dl_finding all[DL_FINDINGS];
    const size_t n = dl_view_findings(all, view);
    for (size_t i = 0; i < n; i++)
        if (all[i].kind != DL_FINDING_OTHER)
            hold(c, events[all[i].kind], all[i].replica, all[i].text);
}

/* Hold a stall if there is no new entry for much longer than a round takes. Time is this process's
 * own clock: the times in the record are those of other machines. */
static void hold_stall(conditions *c, dl_notify *t, const dl_view *view)
{
    const double round = dl_view_round_s(view), quiet = dl_seconds(dl_clock_now() - t->grew);
    const double most = isfinite(round) ? fmax(STALL_ROUNDS * round, STALL_LEAST) : STALL_FIRST;
    char text[DL_NOTICE_TEXT], takes[64] = "";
    if (quiet < most) return;
    if (isfinite(round)) snprintf(takes, sizeof takes, "; an entry takes about %.0f s", round);
    snprintf(text, sizeof text, "No new entry for %.0f s%s. diloco status --why names the reason.",
             quiet, takes);
    hold(c, DL_NOTICE_RUN_STALLED, "", text);
}

static void hold_complete(conditions *c, const dl_view *view)
{
    const dl_model *m = &view->model;
    const double loss = m->n_entries ? m->marks[m->n_entries - 1].loss : NAN;
    char text[DL_NOTICE_TEXT], ends[64] = "";
    if (isfinite(loss)) snprintf(ends, sizeof ends, ", loss %.4g", loss);
    snprintf(text, sizeof text, "The run is complete: %zu entries%s.", m->n_entries, ends);
    hold(c, DL_NOTICE_RUN_COMPLETE, "", text);
}

/* Turn a view into conditions. The caller has the view's lock. A complete run has only that
 * condition: replicas that have left it are not lost. */
static void judge(conditions *c, dl_notify *t, const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    snprintf(t->run, sizeof t->run, "%s", run->run);
    if (t->first || view->model.n_entries != t->known) t->grew = dl_clock_now();
    t->known = view->model.n_entries;
    if (run->done) {
        hold_complete(c, view);
        return;
    }
    hold_findings(c, view);
    hold_stall(c, t, view);
}

/* ---- looks */

/* Read until there is nothing more, since a view stops after a quarter of a second. The last look
 * ignores the age of what is known, so that it sees the final entry. */
static diloco_status look(conditions *c, dl_notify *t, bool last)
{
    dl_view *view;
    uint64_t entries;
    bool grown, more = true;
    DL_TRY(dl_views_get(&view, t->views, t->name));
    diloco_status status = DILOCO_OK;
    if (last) dl_view_expire(view);
    while (more && !status)
        status = dl_view_follow(view, &entries, &grown, &more);
    if (!status) {
        pthread_mutex_lock(&view->lock);
        judge(c, t, view);
        pthread_mutex_unlock(&view->lock);
    }
    dl_view_let_go(view);
    return status;
}

/* A failed delivery is not repeated: notices.h counts it as sent. */
static void send(dl_notify *t, const conditions *c)
{
    dl_notice out[MOST];
    const size_t n = dl_notices_take(&t->notices, out, c->all, c->n, dl_clock_now());
    for (size_t i = 0; i < n; i++)
        if (dl_deliver_send(&t->deliver, &out[i], t->run, t->name))
            dl_log(DILOCO_LOG_WARN, "run.notify: %s was not sent: %s; training continues",
                   dl_notice_event_name(out[i].event), diloco_error_text());
}

/* Errors other than those of the network say nothing about the run, such as one that is not there
 * yet. They are logged. While the store does not answer no other condition is known. */
static void look_and_send(dl_notify *t, bool last)
{
    conditions c = {.n = 0};
    const diloco_status status = look(&c, t, last);
    t->failed = status ? t->failed + 1 : 0;
    if (status && status != DILOCO_EUNREACHABLE && status != DILOCO_ETIMEDOUT) {
        dl_log(DILOCO_LOG_WARN, "run.notify: the run cannot be read: %s", diloco_error_text());
        return;
    }
    if (status && t->failed < UNREACHABLE_LOOKS && !last) return;
    if (status) hold(&c, DL_NOTICE_STORE_UNREACHABLE, "", diloco_error_text());
    send(t, &c);
    if (!status) t->first = false;
}

/* The first look is made at once, and repeated after a second until it succeeds. dl_cond_init chose
 * the monotonic clock for `changed`, as dl_clock_now has it. */
static void *follow(void *of)
{
    dl_notify *t = of;
    bool last = false;
    while (!last) {
        pthread_mutex_lock(&t->lock);
        const dl_time due = dl_time_after(dl_clock_now(), t->first ? 0 : LOOK_EVERY);
        const struct timespec at = {.tv_sec = due / DL_SECOND, .tv_nsec = due % DL_SECOND};
        while (!t->stop && dl_clock_now() < due)
            pthread_cond_timedwait(&t->changed, &t->lock, &at);
        last = t->stop;
        pthread_mutex_unlock(&t->lock);
        look_and_send(t, last);
        if (t->first && !last) dl_clock_sleep(DL_SECOND);
    }
    return NULL;
}

/* ---- start and end */

/* For dl_views_create: every name is this run's. */
static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    (void)name;
    return snprintf(url, DL_VIEW_URL, "%s", ((const dl_notify *)user)->store) < DL_VIEW_URL;
}

diloco_status dl_notify_check(const char *where)
{
    dl_deliver deliver;
    return *where ? dl_deliver_init(&deliver, where) : DILOCO_OK;
}

/* The last component of the run's URL. */
static void name_it(dl_notify *t)
{
    size_t end = strlen(t->store);
    while (end > 1 && t->store[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && t->store[begin - 1] != '/')
        begin--;
    snprintf(t->name, sizeof t->name, "%.*s", (int)(end - begin), t->store + begin);
}

diloco_status dl_notify_start(dl_notify **out, const char *where, const char *store)
{
    *out = NULL;
    if (!*where) return DILOCO_OK;
    dl_notify *t = calloc(1, sizeof *t);
    if (!t) return dl_fail(DILOCO_ENOMEM, "out of memory for run.notify");
    t->first = true;
    snprintf(t->store, sizeof t->store, "%s", store);
    name_it(t);
    pthread_mutex_init(&t->lock, NULL);
    dl_cond_init(&t->changed);
    diloco_status status = dl_deliver_init(&t->deliver, where);
    if (!status) status = dl_views_create(&t->views, url_of, t);
    if (!status && dl_thread_start(&t->thread, follow, t))
        status = dl_fail(DILOCO_ENOMEM, "no thread for run.notify");
    if (!status) {
        *out = t;
        return DILOCO_OK;
    }
    dl_views_destroy(t->views);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
    return status;
}

void dl_notify_stop(dl_notify *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    dl_views_destroy(t->views);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
