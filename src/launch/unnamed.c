/* unnamed.c - see unnamed.h. */
#include "launch/unnamed.h"

#include "launch/rank.h"

#include <stdlib.h>
#include <string.h>

/* The longest time in seconds between two looks for the ids of announced replicas. */
enum { NAMES_PERIOD = 5 };

diloco_status dl_unnamed_check_ids(const dl_control *c, dl_job *jobs, size_t n)
{
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < n; i++) {
        if (!*jobs[i].id || c->executor->is_id(&jobs[i])) continue;
        status = dl_fail(DILOCO_EPROTO,
                         "%s was started, but its id \"%.100s\" is invalid: stop it "
                         "by its name",
                         jobs[i].name, jobs[i].id);
        jobs[i].id[0] = '\0';
    }
    return status;
}

/* A command that has just begun cannot know whether that launcher is at work. */
void dl_unnamed_explain(const dl_control *c)
{
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &c->book->ranks[i];
        if (strcmp(r->by, c->book->by) == 0 || !dl_rank_is_unnamed(r)) continue;
        dl_job_set(&r->job, r->job.state, -1,
                   "it may run: its launcher is at work, or ended before it recorded the start. "
                   "diloco launch or launch cancel looks for it by its name");
    }
}

/* If the launcher of a replica that was given up names it later, it is an orphan, and is stopped as
 * such. */
diloco_status dl_unnamed_find(const dl_control *c, bool give_up)
{
    size_t n = 0;
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "not enough memory to look for replicas");
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        if (dl_rank_is_unnamed(&c->book->ranks[i])) jobs[n++] = c->book->ranks[i].job;
    diloco_status status = n ? c->executor->find(c->spec, jobs, n) : DILOCO_OK;
    if (!status) status = dl_unnamed_check_ids(c, jobs, n);
    for (size_t i = 0; !status && i < n; i++) {
        const dl_book_rank *r = &c->book->ranks[jobs[i].rank];
        status = dl_book_handles(c->book, &jobs[i], 1);
        if (status || !give_up || !dl_rank_is_unnamed(r) || !dl_rank_is_abandoned(c, r)) continue;
        dl_job_set(&jobs[i], DL_JOB_LOST, -1, "no job has its name");
        dl_control_print_state(c, &jobs[i]);
        status = dl_book_state(c->book, &jobs[i]);
    }
    free(jobs);
    return status;
}

/* Has another launcher announced this replica, without an id, and was the wait for it not reported
 * yet? */
static bool is_news(const dl_control *c, const dl_book_rank *r)
{
    return dl_rank_is_unnamed(r) && !r->unnamed_said && strcmp(r->by, c->book->by) != 0;
}

/* The line names one replica and counts the others. */
void dl_unnamed_report(const dl_control *c, const char *why)
{
    char others[32] = "";
    uint32_t first = 0;
    size_t n = 0;
    for (uint32_t i = 0; i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &c->book->ranks[i];
        if (!is_news(c, r)) continue;
        r->unnamed_said = true;
        if (n++ == 0) first = i;
    }
    if (n == 0) return;
    if (n > 1) snprintf(others, sizeof others, " and %zu more", n - 1);
    dl_control_print(c,
                     "r%u%s: another launcher has announced the start and not recorded it: it is "
                     "at work, or has ended; waiting for it, at most %.0f s, so that %s",
                     first, others, dl_seconds(DL_ADOPT_AFTER), why);
}

/* A replica that the backend has is adopted at once: nothing is created by that. For one that it
 * does not have, its launcher may be between its search and its creation. One search is enough,
 * since a launch searches again: it may be a request for each replica. */
diloco_status dl_unnamed_look(const dl_control *c)
{
    bool news = false;
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        news = news || (is_news(c, r) && !dl_rank_is_open(c, r));
    }
    if (!news) return DILOCO_OK;
    DL_TRY(dl_unnamed_find(c, false));
    dl_unnamed_report(c, "none is started twice");
    return DILOCO_OK;
}

diloco_status dl_unnamed_pause(const dl_control *c)
{
    const double period = dl_control_period(c);
    if (!dl_control_pause(c, period < NAMES_PERIOD ? period : NAMES_PERIOD))
        return dl_fail(DILOCO_EINTERRUPTED, "no longer waiting for another launcher");
    return DILOCO_OK;
}
