/* exec_mode.c - where runs in rounds, asynchronous runs (P20) and runs of logical clients differ
 * for the exchange: a table each. Contributions of a round are named by the entry that they count
 * in. Those of an asynchronous run are named by their base, and any later entry may count them. */
#include "exchange/exec_parts.h"

#include "protocol/async/async.h"

#include <string.h>

/* c/ also holds contributions that were counted or are too old. This replica needs to know of its
 * own later generations, whatever they put (P6). */
static bool may_count_now(const dl_exec *x, const dl_listed *o)
{
    const dl_control *c = &x->state.control;
    const bool own = !strcmp(o->generation.replica, x->a.self.replica);
    if (own && o->generation.number > x->a.self.number) return true;
    return dl_async_may_count(&c->roster, c->entry, &x->a.run->config, o->generation.replica,
                              o->entry);
}

/* No contribution from before can still be named. Without a limit of staleness that is the oldest
 * base that some replica can have: after its newest that counted, or what it began on. The base of
 * an unlisted replica is known to itself alone, and where others close its entry to no replica. */
static uint64_t oldest_base(const dl_exec *x, uint64_t own)
{
    const dl_control *c = &x->state.control;
    const uint64_t limit = (uint64_t)x->a.run->config.max_staleness;
    if (limit) return c->entry > limit ? c->entry - limit : 0;
    if (c->committer.replica[0] || x->a.run->identity.policy != DL_TRUSTED) return 0;
    uint64_t oldest = own < c->entry ? own : c->entry;
    for (size_t i = 0; i < c->roster.n; i++)
        if (c->roster.misses[i] < oldest) oldest = c->roster.misses[i];
    return c->roster.n < (size_t)x->a.run->config.replicas ? 0 : oldest;
}

/* Returns the earliest entry that can have made the fragment's state after n commits. The state has
 * no number of that entry: the n-th commit of a fragment is at least at its n-th due point. With
 * one fragment it is exactly before the aborts. */
static uint64_t earliest_commit(const dl_exec *x, uint32_t fragment, uint64_t n)
{
    const uint64_t P = x->schedule.n_fragments;
    const dl_control *c = &x->state.control;
    if (P == 1 && n == x->state.now[fragment].n_commits) return c->entry - 1 - c->n_aborts;
    return fragment + P * (n - 1);
}

/* A replica has a base once it has adopted the commit that made it. Where the overlap is a round,
 * the base may be the state before the newest commit (P21.4). With run.on_uncounted = "keep" a
 * replica trains on from before its base. */
static uint64_t trained_since(const dl_exec *x, uint32_t fragment)
{
    const bool lags = x->schedule.overlap != DL_OVERLAP_STEPS;
    const uint64_t n = x->state.now[fragment].n_commits;
    const bool keeps = x->a.run->config.on_uncounted == DL_UNCOUNTED_KEEP;
    if (keeps || n < 1 + (uint64_t)lags) return 0;
    return dl_schedule_capture(&x->schedule, earliest_commit(x, fragment, n - lags));
}

/* A replica takes one step a position, up to the due point. */
static dl_train_bounds rounds_bounds(const dl_exec *x, uint64_t entry, uint32_t fragment)
{
    const uint64_t since = trained_since(x, fragment);
    const uint64_t due = dl_schedule_capture(&x->schedule, entry);
    return (dl_train_bounds){.since = since, .due = due, .steps = due > since ? due - since : 0};
}

/* Asynchronous replicas have positions of their own, and take at most H steps since their base. */
static dl_train_bounds async_bounds(const dl_exec *x, uint64_t entry, uint32_t fragment)
{
    (void)entry, (void)fragment;
    return (dl_train_bounds){.due = UINT64_MAX, .steps = x->schedule.interval};
}

/* A table has the mode's differences as data, so no request asks which mode it is in. A new mode is
 * a table here and a case in dl_exec_mode_of. */
static const dl_exec_mode rounds = {
    .keeps_in_flight = true,
    .may_share_next = true,
    .forgets_junk = true,
    .bounds = rounds_bounds,
};

static const dl_exec_mode clients = {
    .keeps_in_flight = true,
    .may_share_next = true,
    .may_send_values = true,
    .forgets_junk = true,
};

static const dl_exec_mode async = {
    .reads_speeds = true,
    .names_bases = true,
    .bounds = async_bounds,
    .is_of_use = may_count_now,
    .oldest = oldest_base,
};

const dl_exec_mode *dl_exec_mode_of(const dl_schedule *schedule, const dl_config *config)
{
    if (schedule->async) return &async;
    return dl_config_federated(config) ? &clients : &rounds;
}

void dl_exec_listed_under(dl_key out, const dl_exec *x, uint64_t entry)
{
    if (x->mode->names_bases)
        memcpy(out, "c/", sizeof "c/");
    else
        dl_key_contributions(out, entry);
}
