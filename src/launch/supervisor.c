/* supervisor.c - see supervisor.h. `look` is one round: read the book, poll, write changes, start
 * or stop. A round depends on nothing but the book and the executor's answers, so a launcher may be
 * killed between any two steps. dl_control_follow repeats it. */
#include "launch/supervisor.h"

#include "launch/orphans.h"
#include "launch/rank.h"
#include "launch/unnamed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Is it an error that may pass by itself, so that the replicas are not given up? */
static bool may_pass(diloco_status status)
{
    return status == DILOCO_EUNREACHABLE || status == DILOCO_ETIMEDOUT;
}

/* Read the book. Returns DILOCO_EREFUSED if the last "begin" names another executor: that one has
 * the replicas from there on, and this launcher's executor would take them for lost. */
static diloco_status read_book(const dl_control *c)
{
    const char *mine = c->executor->name, *named = c->book->executor;
    DL_TRY(dl_book_read(c->book));
    const size_t len = strlen(mine);
    if (!c->book->begun || (strncmp(named, mine, len) == 0 && (!named[len] || named[len] == ':')))
        return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "another launcher continues this %s on %.100s, so this one ends", c->what,
                   named);
}

/* ---- polling */

/* Is this still the newest generation, and not over? A poll takes a while, and each record that is
 * written reads those of other launchers. */
static bool is_current(const dl_job *known, const dl_job *polled)
{
    return known->generation == polled->generation && !dl_job_is_over(known->state);
}

/* Copy the jobs that were launched and are not over to `jobs`, which has DL_JOBS_MAX places.
 * Returns their number. */
static size_t gather(dl_job *jobs, const dl_book *book)
{
    size_t n = 0;
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &book->ranks[i];
        if (r->started && *r->job.id && !dl_job_is_over(r->job.state)) jobs[n++] = r->job;
    }
    return n;
}

/* Declare a replica lost that had no answer for launch.lost_after seconds. The time is this
 * launcher's own: a silence that began before it started is not known. */
static void judge_silence(const dl_control *c, dl_job *job)
{
    const double limit = c->spec->config->launch_lost_after_s;
    dl_book_rank *r = &c->book->ranks[job->rank];
    if (!job->silent) {
        r->silent_since = 0;
        return;
    }
    if (!r->silent_since) r->silent_since = dl_clock_now();
    if (dl_seconds(dl_clock_now() - r->silent_since) < limit) return;
    char why[DL_JOB_MESSAGE_MAX + 1];
    snprintf(why, sizeof why, "%s", job->message);
    dl_job_set(job, DL_JOB_LOST, -1, "no answer for %.0f s: %.180s", limit, why);
}

/* Report once that a replica has waited for a machine for launch.lost_after seconds. It is not
 * given up: a queue may be long, and only a person knows whether it is too long. */
static void judge_wait(const dl_control *c, const dl_job *job)
{
    const double limit = c->spec->config->launch_lost_after_s;
    dl_book_rank *r = &c->book->ranks[job->rank];
    if (job->state != DL_JOB_PENDING && job->state != DL_JOB_STARTING) {
        r->waits_since = 0;
        r->waits_long = false;
        return;
    }
    if (!r->waits_since) r->waits_since = dl_clock_now();
    if (r->waits_long || dl_seconds(dl_clock_now() - r->waits_since) < limit) return;
    r->waits_long = true;
    dl_control_print(c,
                     "r%u: %s for %.0f s%s%s. It is not given up; diloco launch cancel stops the "
                     "%s, and the same command starts it again",
                     job->rank, dl_job_state_name(job->state), limit, *job->message ? ": " : "",
                     job->message, c->what);
}

/* The book comes before the memory: after an error of the store the change is seen again at the
 * next poll. Only changes of the state are written, not those of the message. A record of another
 * launcher that was read meanwhile comes before what was polled. */
diloco_status dl_control_poll(const dl_control *c)
{
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "not enough memory to look at the replicas");
    dl_unnamed_explain(c);
    const size_t n = gather(jobs, c->book);
    diloco_status status = n ? c->executor->poll(c->spec, jobs, n) : DILOCO_OK;
    for (size_t i = 0; !status && i < n; i++) {
        dl_job *known = &c->book->ranks[jobs[i].rank].job;
        if (!is_current(known, &jobs[i])) continue;
        judge_silence(c, &jobs[i]);
        judge_wait(c, &jobs[i]);
        if (known->state != jobs[i].state) {
            dl_control_print_state(c, &jobs[i]);
            status = dl_book_state(c->book, &jobs[i]);
        }
        if (!status && known->generation == jobs[i].generation && known->state == jobs[i].state)
            *known = jobs[i];
    }
    free(jobs);
    return status;
}

/* ---- starting */

/* Generations of a rank are numbered from 0. */
static uint32_t next_generation(const dl_book_rank *r)
{
    return r->started ? r->job.generation + 1 : 0;
}

/* Has the launch failed for launch.lost_after seconds? */
static bool is_overdue(const dl_control *c, const dl_job *job)
{
    return dl_seconds(dl_clock_now() - c->book->ranks[job->rank].start_seen) >
           c->spec->config->launch_lost_after_s;
}

/* May the replicas that were refused wait, so that the launch continues without them? Not at a
 * first start with too few others: the mistake may be in the settings, and a person is there. */
static bool can_wait(const dl_control *c, const dl_job *jobs, size_t n)
{
    bool can = true;
    for (size_t i = 0; can && i < n; i++) {
        const dl_book_rank *r = &c->book->ranks[jobs[i].rank];
        const bool again = jobs[i].generation > 0 && dl_rank_may_restart(c, r);
        can = *jobs[i].id || again || dl_control_has_enough(c);
    }
    return can;
}

/* Give announced jobs of one generation to the backend, and write their handles. After an error
 * some may have been started: those with an id. The others stay announced if the error may pass, so
 * that the next look tries again, and are over otherwise. A refusal is no error if all refused
 * replicas can wait. */
static diloco_status launch_jobs(const dl_control *c, dl_job *jobs, size_t n)
{
    diloco_status status = c->executor->launch(c->spec, jobs, n);
    char why[1024];
    snprintf(why, sizeof why, "%s", status ? diloco_error_text() : "");
    const diloco_status named = dl_unnamed_check_ids(c, jobs, n);
    if (named && !status) snprintf(why, sizeof why, "%s", diloco_error_text());
    if (!status) status = named;
    DL_TRY(dl_book_handles(c->book, jobs, n));
    for (size_t i = 0; status && i < n; i++) {
        if (*jobs[i].id || (may_pass(status) && !is_overdue(c, &jobs[i]))) continue;
        dl_job_set(&jobs[i], may_pass(status) ? DL_JOB_LOST : DL_JOB_FAILED, -1,
                   "not started: %.200s", why);
        dl_control_print_state(c, &jobs[i]);
        DL_TRY(dl_book_state(c->book, &jobs[i]));
    }
    if (status && !named && !may_pass(status) && can_wait(c, jobs, n)) {
        dl_control_print(
            c, "replicas that run: %zu; a launch that follows them asks for the others again later",
            dl_book_alive(c->book));
        return DILOCO_OK;
    }
    return status ? dl_fail(status, "%s", why) : DILOCO_OK;
}

/* Announce the wanted ranks of one generation, then launch them. Returns DILOCO_EEXIST if another
 * launcher wrote a record first: nothing was launched then. */
static diloco_status start_generation(const dl_control *c, uint32_t generation, dl_job *jobs)
{
    uint32_t ranks[DL_JOBS_MAX];
    size_t n = 0;
    const char *why = "";
    for (uint32_t i = 0; i < c->book->max; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        if (!dl_rank_is_wanted(c, r) || next_generation(r) != generation) continue;
        if (r->started) why = r->job.message;
        ranks[n++] = i;
    }
    if (n == 0) return DILOCO_OK;
    DL_TRY(dl_book_start(c->book, ranks, n, generation, why));
    for (size_t i = 0; i < n; i++) {
        dl_book_rank *r = &c->book->ranks[ranks[i]];
        r->processes_before = r->processes;
        jobs[i] = r->job;
    }
    return launch_jobs(c, jobs, n);
}

/* Launch the announced replicas of a generation that have no handle yet. */
static diloco_status finish_open(const dl_control *c, uint32_t generation, dl_job *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        if (dl_rank_is_open(c, r) && r->job.generation == generation) jobs[n++] = r->job;
    }
    return n ? launch_jobs(c, jobs, n) : DILOCO_OK;
}

/* The highest generation that there is or will be. */
static uint32_t last_generation(const dl_book *book)
{
    uint32_t last = 0;
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        if (book->ranks[i].started && next_generation(&book->ranks[i]) > last)
            last = next_generation(&book->ranks[i]);
    return last;
}

/* The reason why a container that its backend starts again without end is given up; "": none. A
 * launcher that has not started it takes the newest process of the rank as the first of it. */
static void judge_container(char why[128], const dl_control *c, dl_book_rank *r)
{
    const int64_t most = c->spec->config->launch_restarts + 1;
    const double limit = c->spec->config->launch_lost_after_s;
    *why = '\0';
    if (r->job.state != DL_JOB_RUNNING || r->processes < 0) return;
    if (r->processes_before < 0) r->processes_before = r->processes ? r->processes - 1 : 0;
    const int64_t begun = r->processes - r->processes_before;
    if (begun > most)
        snprintf(why, 128, "its container has been started %lld times", (long long)begun);
    else if (!begun && dl_seconds(dl_clock_now() - r->start_seen) > limit)
        snprintf(why, 128, "its replica has not begun for %.0f s", limit);
}

/* Give up the containers that start again without end. The backend reports no end of them, so each
 * is stopped here. */
static diloco_status stop_containers(const dl_control *c)
{
    char why[128];
    for (size_t i = 0; c->executor->caps.must_be_stopped && i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &c->book->ranks[i];
        dl_job job = r->job;
        if (!r->started || !*job.id) continue;
        judge_container(why, c, r);
        if (!*why) continue;
        dl_job_set(&job, DL_JOB_LOST, -1, "%s", why);
        dl_control_print_state(c, &job);
        DL_TRY(dl_book_state(c->book, &job));
        if (*r->orphan.id) dl_orphan_stop(c, r, true);
    }
    return DILOCO_OK;
}

/* Generations are launched one after the other, since an executor takes replicas of one
 * generation. */
static diloco_status start_missing(const dl_control *c)
{
    if (dl_control_is_spent(c)) return DILOCO_OK;
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    diloco_status status =
        jobs ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "not enough memory to start the replicas");
    const uint32_t last = last_generation(c->book);
    for (uint32_t g = 0; !status && g <= last; g++) {
        status = finish_open(c, g, jobs);
        if (!status) status = start_generation(c, g, jobs);
        if (status == DILOCO_EEXIST) status = DILOCO_OK; /* another launcher: look again */
    }
    free(jobs);
    return status;
}

/* Report the replicas that are not started now because of a pause, which this command does not wait
 * for. A refusal was reported by launch_jobs. */
static void report_pauses(const dl_control *c)
{
    for (uint32_t i = 0; i < c->book->max && !dl_control_is_spent(c); i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        const double left = dl_rank_pause(c, r);
        if (left > 0 && !dl_rank_was_refused(r))
            dl_control_print(c,
                             "r%u: %s: %s. It may be started again after a pause, which this "
                             "command does not wait for: the same command starts it in %.0f s or "
                             "later",
                             i, dl_job_state_name(r->job.state), r->job.message, ceil(left));
    }
}

/* Is any wanted replica not running, with nothing that forbids its start but the budget? */
static bool is_short(const dl_control *c)
{
    for (uint32_t i = 0; i < c->book->max; i++)
        if (dl_rank_is_missing(c, &c->book->ranks[i])) return true;
    return false;
}

static diloco_status refuse_to_spend(const dl_control *c)
{
    char text[DL_CONTROL_SPENT];
    return dl_fail(DILOCO_EREFUSED,
                   "%s, so no replica is started any more, and the %s is not complete: raise it, "
                   "and the same command resumes the %s",
                   dl_control_spent_text(text, c), c->what, c->what);
}

/* A replica that succeeded is not stuck: the run decides whether it is complete. One that was
 * refused is, so that the next command asks for it at once. */
bool dl_control_is_stuck(const dl_control *c)
{
    for (uint32_t i = 0; i < c->book->max; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        if (r->started && !r->again && dl_job_is_over(r->job.state) &&
            r->job.state != DL_JOB_SUCCEEDED &&
            (!dl_rank_may_restart(c, r) || dl_rank_was_refused(r)))
            return true;
    }
    return false;
}

/* A "cancel" of another launcher counts, so the book is read first. This may be the only look for a
 * long time, so it takes over what an interrupted launcher has announced. */
diloco_status dl_control_start(const dl_control *c)
{
    for (;;) {
        DL_TRY(read_book(c));
        if (c->book->cancelled)
            return dl_fail(DILOCO_EINTERRUPTED, "the launch was cancelled meanwhile");
        if (!dl_control_is_spent(c)) DL_TRY(dl_unnamed_look(c));
        const bool waits = !dl_control_is_spent(c) && dl_control_has_unnamed(c, true);
        dl_orphans_stop_lost(c);
        DL_TRY(start_missing(c));
        if (!waits) break;
        DL_TRY(dl_unnamed_pause(c));
    }
    report_pauses(c);
    return dl_control_is_spent(c) && is_short(c) ? refuse_to_spend(c) : DILOCO_OK;
}

/* ---- stopping */

/* Ask the jobs that are not over to stop; with `waiting` only those that do not run yet. */
static diloco_status stop_jobs(const dl_control *c, bool waiting)
{
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "not enough memory to stop the replicas");
    const size_t all = gather(jobs, c->book);
    size_t n = 0;
    for (size_t i = 0; i < all; i++)
        if (!waiting || jobs[i].state != DL_JOB_RUNNING) jobs[n++] = jobs[i];
    const diloco_status status = n ? c->executor->cancel(c->spec, jobs, n) : DILOCO_OK;
    free(jobs);
    return status;
}

/* Stop replicas as stop_jobs does, also those that are found by their names. An error of the search
 * is returned after the others were stopped. */
static diloco_status stop_all(const dl_control *c, bool waiting)
{
    char why[1024];
    const diloco_status found = dl_unnamed_find(c, true);
    snprintf(why, sizeof why, "%s", found ? diloco_error_text() : "");
    DL_TRY(stop_jobs(c, waiting));
    return found ? dl_fail(found, "%s", why) : DILOCO_OK;
}

/* Look once more for the ranks that are unnamed, and stop those that have a name now. The other
 * replicas were asked to stop before. */
static diloco_status stop_named(const dl_control *c)
{
    bool before[DL_JOBS_MAX];
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "not enough memory to stop the replicas");
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        before[i] = *c->book->ranks[i].job.id != '\0';
    diloco_status status = read_book(c);
    if (!status && c->book->cancelled) status = dl_unnamed_find(c, true);
    const size_t all = status || !c->book->cancelled ? 0 : gather(jobs, c->book);
    size_t n = 0;
    for (size_t i = 0; i < all; i++)
        if (!before[jobs[i].rank]) jobs[n++] = jobs[i];
    if (n) status = c->executor->cancel(c->spec, jobs, n);
    free(jobs);
    return status;
}

/* An unnamed rank is found, or LOST once its launcher has had its time: no later command is needed.
 * A new "begin" of another launcher ends the wait. */
diloco_status dl_control_cancel(const dl_control *c)
{
    char why[1024];
    DL_TRY(dl_book_cancel(c->book));
    diloco_status status = stop_all(c, false);
    snprintf(why, sizeof why, "%s", status ? diloco_error_text() : "");
    DL_TRY(dl_orphans_stop(c, true));
    if (status) return dl_fail(status, "%s", why);
    while (!status && c->book->cancelled && dl_control_has_unnamed(c, false)) {
        dl_unnamed_report(c, "none is left running");
        status = dl_unnamed_pause(c);
        if (!status) status = stop_named(c);
    }
    return status;
}

/* Ranks from max on remain after a "scale" to fewer replicas. One call names all of them: an
 * executor asks the next replica after an error, too. */
diloco_status dl_control_stop_surplus(const dl_control *c)
{
    dl_job *jobs = calloc(DL_JOBS_MAX, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "not enough memory to stop the replicas");
    size_t n = 0;
    for (uint32_t i = c->book->max; i < DL_JOBS_MAX; i++) {
        const dl_job *job = &c->book->ranks[i].job;
        if (c->book->ranks[i].started && *job->id && !dl_job_is_over(job->state)) jobs[n++] = *job;
    }
    const diloco_status status = n ? c->executor->cancel(c->spec, jobs, n) : DILOCO_OK;
    free(jobs);
    return status;
}

/* ---- following */

/* Is every replica over, with nothing left to start? */
static bool is_idle(const dl_control *c, bool done)
{
    for (uint32_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        if (r->started && !dl_job_is_over(r->job.state)) return false;
        if (!done && i < c->book->max && dl_rank_is_missing(c, r) && !dl_control_is_spent(c))
            return false;
    }
    return true;
}

/* Report once that a replica is not started any more because of launch.budget, while others run. */
static void report_budget(const dl_control *c, bool *reported)
{
    char text[DL_CONTROL_SPENT];
    if (*reported || !dl_control_is_spent(c)) return;
    *reported = is_short(c);
    if (*reported)
        dl_control_print(c, "%s: no replica is started any more, and those that run continue",
                         dl_control_spent_text(text, c));
}

/* The error for a run that is not complete although every replica is over. It names the first one
 * that did not succeed. */
static diloco_status incomplete(const dl_control *c)
{
    if (dl_control_is_spent(c)) return refuse_to_spend(c);
    for (uint32_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &c->book->ranks[i];
        if (r->started && r->job.state != DL_JOB_SUCCEEDED)
            return dl_fail(DILOCO_EIO,
                           "every replica is over and the %s is not complete; r%u: %s: %s. "
                           "diloco launch logs STORE --rank %u shows its output",
                           c->what, i, dl_job_state_name(r->job.state), r->job.message, i);
    }
    return dl_fail(DILOCO_EIO, "every replica ended with exit code 0, and the %s is not complete",
                   c->what);
}

/* One round, in the order that makes it safe to be killed between any two steps:
 *
 * 1. read the book, which another launcher may have changed;
 * 2. stop lost processes that have come back;
 * 3. poll, write changes into the book, and ask those that were just lost to stop;
 * 4. ask the store whether the run is complete;
 * 5. stop everything after a cancellation, stop what does not end by itself after completion,
 *    or else start what is missing.
 *
 * *done: the run is complete. *idle: there is nothing left to do. */
static diloco_status look(const dl_control *c, bool *done, bool *idle)
{
    DL_TRY(read_book(c));
    DL_TRY(dl_orphans_stop(c, false));
    DL_TRY(dl_control_poll(c));
    dl_orphans_stop_lost(c);
    DL_TRY(c->is_done(c->user, done));
    if (!c->book->cancelled && !*done) {
        DL_TRY(stop_containers(c));
        if (!dl_control_is_spent(c)) DL_TRY(dl_unnamed_look(c));
        DL_TRY(start_missing(c));
    }
    /* A cancel may have come while replicas were started. */
    if (c->book->cancelled || *done)
        DL_TRY(stop_all(c, !c->book->cancelled && !c->executor->caps.must_be_stopped));
    if (c->book->cancelled) DL_TRY(dl_orphans_stop(c, false));
    DL_TRY(dl_control_stop_surplus(c));
    *idle = is_idle(c, *done || c->book->cancelled);
    return DILOCO_OK;
}

/* One round, in which an error that may pass is no error. It is said once, not at every look. */
static diloco_status look_patiently(const dl_control *c, bool *done, bool *idle, char said[256])
{
    const diloco_status status = look(c, done, idle);
    if (!status) said[0] = '\0';
    if (!may_pass(status)) return status;
    if (strncmp(said, diloco_error_text(), 255) != 0) {
        snprintf(said, 256, "%s", diloco_error_text());
        dl_control_print(c, "%s; trying again", said);
    }
    return DILOCO_OK;
}

/* Let the executor remove its secrets: every replica is over. */
static void finish(const dl_control *c)
{
    if (c->executor->finish) c->executor->finish(c->spec);
}

/* `finish` runs before the result is decided: secrets are removed also after a cancellation. */
diloco_status dl_control_follow(const dl_control *c)
{
    char said[256] = "";
    for (bool done = false, idle = false, spent = false;;) {
        DL_TRY(look_patiently(c, &done, &idle, said));
        if (!done && !idle) report_budget(c, &spent);
        if (idle) finish(c);
        if (idle && c->book->cancelled)
            return dl_fail(DILOCO_EINTERRUPTED, "the launch was cancelled");
        if (idle) return done ? DILOCO_OK : incomplete(c);
        if (!dl_control_pause(c, dl_control_period(c)))
            return dl_fail(DILOCO_EINTERRUPTED, "no longer following the replicas");
    }
}

/* Let the executor remove its secrets if no launcher starts a replica any more. A rank that is LOST
 * may be started again by the launcher that follows the run, and reads the secrets then. */
static void finish_if_idle(const dl_control *c)
{
    bool done = false;
    if (c->is_done && c->is_done(c->user, &done)) done = false;
    if (is_idle(c, done || c->book->cancelled)) finish(c);
}

/* Nothing is started here, so another launcher may follow the same replicas meanwhile. Stopped are
 * those of a launch that was cancelled while its launcher started them. */
diloco_status dl_control_collect(const dl_control *c, double timeout_s)
{
    const dl_time due =
        timeout_s > 0 ? dl_time_after(dl_clock_now(), dl_time_from_seconds(timeout_s)) : DL_NEVER;
    for (;;) {
        DL_TRY(read_book(c));
        diloco_status status = dl_control_poll(c);
        if (!status && c->book->cancelled && dl_control_has_unnamed(c, false))
            status = stop_all(c, false);
        if (status && !may_pass(status)) return status;
        bool over = true;
        for (uint32_t i = 0; i < DL_JOBS_MAX; i++)
            over =
                over && (!c->book->ranks[i].started || dl_job_is_over(c->book->ranks[i].job.state));
        if (over) {
            finish_if_idle(c);
            return DILOCO_OK;
        }
        if (dl_clock_now() >= due)
            return dl_fail(DILOCO_ETIMEDOUT, "replicas still run after %g s", timeout_s);
        if (!dl_control_pause(c, dl_control_period(c)))
            return dl_fail(DILOCO_EINTERRUPTED, "no longer waiting");
    }
}
