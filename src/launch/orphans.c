/* orphans.c - see orphans.h. */
#include "launch/orphans.h"

#include "launch/rank.h"

#include <stdlib.h>

/* One that was stopped and whose output is lost does not cost any more. */
void dl_orphan_stop(const dl_control *c, dl_book_rank *r, bool report)
{
    dl_job job = r->orphan;
    r->orphan_asked = true;
    if (!c->executor->cancel(c->spec, &job, 1) || !report) return;
    if (job.state == DL_JOB_CANCELLED)
        dl_control_print(c, "r%u: lost, and asked to stop (%.300s)", job.rank, diloco_error_text());
    else
        dl_control_print(
            c,
            "r%u: lost, and cannot be asked to stop, so it may still run and cost (%.300s): "
            "diloco launch cancel asks it again",
            job.rank, diloco_error_text());
}

/* The rank remembers that its orphan ran: a failure beside it is not the replica's own. */
diloco_status dl_orphans_poll(const dl_control *c)
{
    size_t n = 0;
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "not enough memory to look at lost replicas");
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        if (*c->book->ranks[i].orphan.id) {
            jobs[n] = c->book->ranks[i].orphan;
            jobs[n++].state = DL_JOB_RUNNING;
        }
    const bool answered = n && !c->executor->poll(c->spec, jobs, n);
    for (size_t i = 0; i < n; i++) {
        dl_book_rank *r = &c->book->ranks[jobs[i].rank];
        const bool known = answered && !jobs[i].silent;
        r->orphan_runs = known && !dl_job_is_over(jobs[i].state);
        r->orphan_ran = r->orphan_ran || r->orphan_runs;
        if (known && !r->orphan_runs) r->orphan.id[0] = '\0';
    }
    free(jobs);
    return DILOCO_OK;
}

/* An orphan that still has an id runs, or did not answer. */
diloco_status dl_orphans_stop(const dl_control *c, bool all)
{
    DL_TRY(dl_orphans_poll(c));
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &c->book->ranks[i];
        if (*r->orphan.id && (r->orphan_runs || all)) dl_orphan_stop(c, r, all);
    }
    return DILOCO_OK;
}

/* There is no poll before the request; dl_orphans_stop asks again as soon as the executor
 * answers. */
void dl_orphans_stop_lost(const dl_control *c)
{
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &c->book->ranks[i];
        if (!r->started || r->job.state != DL_JOB_LOST || !*r->orphan.id || r->orphan_asked)
            continue;
        const bool wanted = i < c->book->max && dl_rank_is_wanted(c, r) && !dl_control_is_spent(c);
        if (wanted || r->job.silent) dl_orphan_stop(c, r, !wanted);
    }
}
