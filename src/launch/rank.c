/* rank.c - see rank.h. */
#include "launch/rank.h"

#include <math.h>
#include <string.h>

/* Seconds until a replica is asked for again that the backend has refused. Each generation of the
 * rank doubles them, up to about an hour: each attempt adds two records to the book. */
#define REFUSED_PAUSE 60
enum { REFUSED_DOUBLINGS = 6 };
/* Looks that a replica waits before it is started again the first time after its store failed. */
enum { FIRST_PAUSE = 8 };

bool dl_rank_is_unnamed(const dl_book_rank *r)
{
    return r->started && !*r->job.id && !dl_job_is_over(r->job.state);
}

/* `by` is this launcher's own name in the book, or another launcher's. */
bool dl_rank_is_abandoned(const dl_control *c, const dl_book_rank *r)
{
    return strcmp(r->by, c->book->by) == 0 || dl_clock_now() - r->start_seen > DL_ADOPT_AFTER;
}

bool dl_rank_failed_beside_orphan(const dl_book_rank *r)
{
    return r->started && r->job.state == DL_JOB_FAILED && r->orphan_ran;
}

bool dl_rank_was_refused(const dl_book_rank *r)
{
    return r->started && r->job.state == DL_JOB_FAILED && !*r->job.id;
}

bool dl_control_has_enough(const dl_control *c)
{
    return c->book->min < c->book->max && dl_book_alive(c->book) >= c->book->min;
}

/* launch.restarts counts the generations that were lost since the last "begin". A failure beside an
 * orphan is not the replica's own, so it has no limit. Nor has a refusal while another replica
 * runs: a quota may be free again later, and the others train meanwhile. */
bool dl_rank_may_restart(const dl_control *c, const dl_book_rank *r)
{
    const bool is_left = (int64_t)r->lost <= c->spec->config->launch_restarts;
    if (dl_rank_failed_beside_orphan(r)) return true;
    if (dl_rank_was_refused(r)) return dl_book_alive(c->book) > 0 || (r->ran && is_left);
    return dl_job_may_be_restarted(&r->job) && is_left;
}

/* Another launcher's announcement is taken over at once where the backend itself keeps two launches
 * of a name apart. */
bool dl_rank_is_open(const dl_control *c, const dl_book_rank *r)
{
    return dl_rank_is_unnamed(r) && (c->executor->caps.exactly_once || dl_rank_is_abandoned(c, r));
}

bool dl_control_has_unnamed(const dl_control *c, bool closed)
{
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        if (dl_rank_is_unnamed(r) && !(closed && dl_rank_is_open(c, r))) return true;
    }
    return false;
}

bool dl_rank_is_missing(const dl_control *c, const dl_book_rank *r)
{
    return !r->started || r->again || (dl_job_is_over(r->job.state) && dl_rank_may_restart(c, r));
}

/* Returns the seconds between the end of a failed generation and the start of the next one. A store
 * that did not answer, or was full, needs time to recover, and restarts are few. So a pause of
 * FIRST_PAUSE looks comes first, and doubles each time. */
static double pause_of(const dl_control *c, const dl_book_rank *r)
{
    const uint32_t g = r->job.generation;
    if (dl_rank_was_refused(r))
        return ldexp(REFUSED_PAUSE, g < REFUSED_DOUBLINGS ? (int)g : REFUSED_DOUBLINGS);
    return ldexp(FIRST_PAUSE * dl_control_period(c), (int)r->lost - 1);
}

/* A launcher that looks once has just read of the end, so the recorded time counts as well. The
 * clock of the other launcher may be wrong: a restart that is too early does no harm, and one that
 * never comes does. */
double dl_rank_pause(const dl_control *c, const dl_book_rank *r)
{
    if (!r->started || r->again || r->job.state != DL_JOB_FAILED || !dl_rank_is_missing(c, r) ||
        dl_rank_failed_beside_orphan(r))
        return 0;
    const double pause = pause_of(c, r), ago = dl_clock_wall() - r->ended_at;
    if (dl_seconds(dl_clock_now() - r->end_seen) >= pause || fabs(ago) >= pause) return 0;
    return pause - ago;
}

/* An orphan that runs has to end first. */
bool dl_rank_is_wanted(const dl_control *c, const dl_book_rank *r)
{
    if (dl_rank_failed_beside_orphan(r) && r->orphan_runs) return false;
    return dl_rank_is_missing(c, r) && dl_rank_pause(c, r) <= 0;
}
