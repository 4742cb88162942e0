/* sync.c - the schedule, and the two halves of a synchronisation (include/diloco/loop.h).
 *
 *      idle --prepare--> in flight --perform--> idle
 *
 * 1. Between the halves g belongs to the communicator.
 * 2. Every all-reduce that began is waited for, whatever failed meanwhile.
 * 3. Once prepared, this replica votes, so that no other replica waits for it. An error since
 *    start_quorum is kept in `flight`, and makes the vote a no. */
#include "loop/loop.h"

#include <stdio.h>

/* ---- prepare */

/* Keep the first error and its text: later ones are usually its consequences. The text is copied,
 * because the thread's error text is overwritten by each new error. */
static diloco_status keep(dl_loop_flight *flight, diloco_status status)
{
    if (status && !flight->status) {
        flight->status = status;
        snprintf(flight->text, sizeof flight->text, "%s", diloco_error_text());
    }
    return status;
}

/* Begin the all-reduce of part i. The communicator owns that range of g from here until wait
 * returns. */
static diloco_status begin_part(diloco_loop *loop, int fragment, uint32_t i)
{
    dl_loop_part *part = &loop->fragments[fragment].parts[i];
    diloco_reduce reduce = {.entry = loop->entry,
                            .fragment = (uint32_t)fragment,
                            .part = i,
                            .tensor = part->tensor,
                            .quantize = loop->options.should_quantize,
                            .data = loop->g + part->begin,
                            .n = part->n};
    diloco_status status =
        loop->communicator.all_reduce(loop->communicator.user, &reduce, &part->handle);
    if (!status) return DILOCO_OK;
    return dl_fail(status, "entry %llu, fragment %d: all-reduce of part %u could not begin (%s)",
                   (unsigned long long)loop->entry, fragment, i, diloco_status_name(status));
}

/* An error of start_quorum is returned at once, since no other replica counts on this one yet. From
 * there on errors are kept: this replica has to take part in the vote. */
diloco_status diloco_loop_prepare(diloco_loop *loop)
{
    DL_TRY(dl_loop_idle(loop, "prepare"));
    const diloco_communicator *c = &loop->communicator;
    diloco_status status = c->start_quorum ? c->start_quorum(c->user) : DILOCO_OK;
    if (status) return dl_fail(status, "start_quorum failed (%s)", diloco_status_name(status));
    loop->entry = c->current_step ? c->current_step(c->user) : loop->commits;
    int fragment = (int)(loop->entry % loop->options.fragments);
    loop->flight = (dl_loop_flight){.fragment = fragment};
    status = dl_loop_delta(loop, fragment);
    size_t n_parts = loop->fragments[fragment].n_parts;
    for (; !status && loop->flight.n_begun < n_parts; loop->flight.n_begun += !status)
        status = begin_part(loop, fragment, (uint32_t)loop->flight.n_begun);
    keep(&loop->flight, status);
    return DILOCO_OK; /* perform reports it */
}

/* ---- perform */

/* Wait for all parts, then look for errors in this order: of a wait, of the mean's values, of
 * the communicator. The values are checked only if no wait failed, as g may be half written
 * otherwise. */
static void wait_for_all(diloco_loop *loop, int fragment)
{
    const diloco_communicator *c = &loop->communicator;
    for (size_t i = 0; i < loop->flight.n_begun; i++) {
        diloco_status status = c->wait(c->user, loop->fragments[fragment].parts[i].handle);
        if (status)
            keep(&loop->flight,
                 dl_fail(status, "entry %llu, fragment %d: waiting for part %zu failed (%s)",
                         (unsigned long long)loop->entry, fragment, i, diloco_status_name(status)));
    }
    if (!loop->flight.status) keep(&loop->flight, dl_loop_check_g(loop, fragment));
    if (!loop->flight.status && c->errored && c->errored(c->user))
        keep(&loop->flight, dl_fail(DILOCO_EIO,
                                    "entry %llu, fragment %d: the communicator says that an "
                                    "all-reduce failed",
                                    (unsigned long long)loop->entry, fragment));
}

/* Agree with the other replicas whether the entry commits. A vote that fails counts as a no, and
 * its error is kept. */
static bool vote(diloco_loop *loop)
{
    const diloco_communicator *c = &loop->communicator;
    bool well = !loop->flight.status, commit = well;
    diloco_status status = c->should_commit ? c->should_commit(c->user, well, &commit) : DILOCO_OK;
    if (status)
        keep(&loop->flight,
             dl_fail(status, "should_commit failed (%s)", diloco_status_name(status)));
    return well && commit && !status;
}

/* One step of the caller's own outer optimizer. theta is its to change even if it fails, so an
 * error leaves a state that only a load repairs. */
static diloco_status outer_of_user(diloco_loop *loop, int fragment, float mix)
{
    const dl_loop_fragment *f = &loop->fragments[fragment];
    diloco_loop_outer step = {.entry = loop->entry,
                              .fragment = (uint32_t)fragment,
                              .n = f->n,
                              .theta = loop->theta + f->begin,
                              .g = loop->g};
    diloco_status status = loop->options.outer(loop->options.outer_user, &step);
    if (status)
        return dl_fail(status, "entry %llu: options.outer failed (%s)",
                       (unsigned long long)loop->entry, diloco_status_name(status));
    return dl_loop_adopt(loop, fragment, mix);
}

/* The vote was yes, so the counters advance even if the step fails: the other replicas have applied
 * it. The caller learns from *committed and the error that its own state is damaged. */
static diloco_status commit(diloco_loop *loop, int fragment)
{
    float mix = (float)loop->options.fragment_update_alpha;
    diloco_status status =
        loop->outer ? dl_loop_outer_step(loop, fragment, mix) : outer_of_user(loop, fragment, mix);
    loop->fragments[fragment].commits++;
    loop->commits++;
    return status;
}

/* The loop is idle again before anything below can fail. A refused entry puts the tensors back to
 * theta unless options.keep_local, and its error is reported after that. */
diloco_status diloco_loop_perform(diloco_loop *loop, bool *committed)
{
    int fragment = loop->flight.fragment;
    if (committed) *committed = false;
    if (fragment < 0)
        return dl_fail(DILOCO_EINVAL, "perform: no fragment is in flight; prepare comes first");
    wait_for_all(loop, fragment);
    bool yes = vote(loop);
    if (committed) *committed = yes;
    loop->flight.fragment = -1;
    if (yes) return commit(loop, fragment);
    loop->refused++;
    if (!loop->options.keep_local) DL_TRY(dl_loop_adopt(loop, fragment, 0));
    return loop->flight.status ? dl_fail(loop->flight.status, "%s", loop->flight.text) : DILOCO_OK;
}

/* ---- when */

/* prepare is due fragment_sync_delay steps before perform. With a delay of 0 both happen in the
 * same call. */
diloco_status diloco_loop_step(diloco_loop *loop)
{
    if (++loop->step < loop->interval - loop->options.fragment_sync_delay) return DILOCO_OK;
    diloco_status status = loop->flight.fragment < 0 ? diloco_loop_prepare(loop) : DILOCO_OK;
    if (status) { /* due again at the next step */
        if (loop->step >= loop->interval) loop->step = loop->interval - 1;
        return status;
    }
    if (loop->step < loop->interval) return DILOCO_OK;
    loop->step = 0;
    return diloco_loop_perform(loop, NULL);
}
