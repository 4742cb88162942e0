/* close_rule.c - see close_rule.h for the table. */
#include "protocol/close_rule.h"

#include "base/run_kind.h"
#include "protocol/judge.h"
#include "protocol/logical_clients.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DOUBLINGS = 16 };
enum { UPLOADS = 4, OF_PATIENCE = 6 };

dl_time dl_closing_deadline(const dl_config *config, uint64_t n_aborts, dl_time from,
                            double round_s, double upload_s)
{
    const double patience = config->patience_s;
    const double round = round_s > 0 ? fmax(patience / OF_PATIENCE, round_s) : patience;
    const double s = config->deadline_s > 0 ? config->deadline_s : round + UPLOADS * upload_s;
    const uint64_t doublings = n_aborts < MAX_DOUBLINGS ? n_aborts : MAX_DOUBLINGS;
    return dl_time_after(from, dl_time_from_seconds(s * (double)(UINT64_C(1) << doublings)));
}

static bool has_roster(const dl_closing *c)
{
    return dl_config_federated(c->config) ||
           c->control->entry > c->control->n_later; /* from L on */
}

/* A replica whose contribution a read rejected counts as present: the entry will name it (P27). */
static bool nobody_is_missing(const dl_closing *c)
{
    const dl_roster *roster = &c->control->roster;
    size_t missing = dl_candidate_n_missing(c->known, roster);
    for (size_t i = 0; i < roster->n && dl_judge_may_reject(c->config); i++)
        missing -= !dl_candidate_is_present(c->known, roster->names[i]) &&
                   !dl_candidate_skips(c->known, roster->names[i]) &&
                   dl_judge_has_rejected(c->known, roster->names[i]);
    DL_ASSERT(missing <= roster->n);
    return missing == 0;
}

static bool start_is_over(const dl_closing *c)
{
    return c->now >= dl_time_after(c->began, dl_time_from_seconds(c->config->start_timeout_s));
}

/* For entries without a roster. Junk counts as an answer once the start is over. A store may have
 * made it of a replica's contribution, and then nothing better comes. */
static bool all_answered(const dl_closing *c)
{
    return dl_candidate_n_answered(c->known, start_is_over(c)) + dl_bans_n(c->control->bans) >=
           (size_t)c->config->replicas;
}

static bool all_there(const dl_closing *c)
{
    const size_t n = dl_candidate_n_counting(c->known);
    if (n == 0) return false;
    if (has_roster(c)) return nobody_is_missing(c);
    if (all_answered(c)) return true;
    return start_is_over(c) && n >= (size_t)c->config->min_replicas;
}

/* All have answered, and no replica contributes: there is nothing to wait for. */
static bool nobody_gives(const dl_closing *c)
{
    const dl_roster *roster = &c->control->roster;
    if (dl_candidate_n_counting(c->known) > 0) return false;
    if (has_roster(c)) return roster->n > 0 && nobody_is_missing(c);
    return all_answered(c);
}

static dl_verdict commit(void)
{
    return (dl_verdict){.kind = DL_VERDICT_COMMIT};
}

static dl_verdict wait_until(dl_time until)
{
    return (dl_verdict){.kind = DL_VERDICT_WAIT, .until = until};
}

static dl_verdict abort_because(const char *reason)
{
    dl_verdict v = {.kind = DL_VERDICT_ABORT};
    snprintf(v.reason, sizeof v.reason, "%s", reason);
    return v;
}

static dl_verdict abort_of_nobody(void)
{
    dl_verdict v = abort_because("no replica has trained on it");
    v.nobody = true;
    return v;
}

/* Aborts with the names of the silent replicas as the reason, as many as fit. */
static dl_verdict abort_of_silent(const dl_closing *c)
{
    dl_verdict v = abort_because("silent:");
    size_t len = strlen(v.reason);
    for (size_t i = 0; i < c->control->roster.n && len < sizeof v.reason; i++)
        if (c->silent[i])
            len += (size_t)snprintf(v.reason + len, sizeof v.reason - len, " %s",
                                    c->control->roster.names[i]);
    return v;
}

bool dl_closing_has_enough(const dl_closing *c)
{
    const size_t roster = c->control->roster.n, wanted = (size_t)c->config->close_at;
    if (!wanted || !has_roster(c)) return false;
    return dl_candidate_n_counting(c->known) >= (wanted < roster ? wanted : roster);
}

/* 2604.21428: at most the part gamma of the time that the overlap leaves. */
static dl_time grace(const dl_closing *c)
{
    return dl_time_from_seconds(fmax(c->config->grace_s, c->config->grace_slack * c->slack_s));
}

/* Clients have no heartbeats, so they are never silent: some worker will train them. */
static bool waits_for_clients(const dl_closing *c)
{
    return !dl_run_kind_of(c->config)->processes && c->config->on_missing == DL_MISSING_WAIT;
}

static size_t n_awaited(const dl_closing *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->control->roster.n; i++)
        n += c->simulated[i].awaited;
    return n;
}

static bool awaited_are_there(const dl_closing *c)
{
    const dl_roster *roster = &c->control->roster;
    for (size_t i = 0; i < roster->n; i++)
        if (c->simulated[i].awaited && !dl_candidate_is_present(c->known, roster->names[i]) &&
            !dl_candidate_skips(c->known, roster->names[i]))
            return false;
    return true;
}

/* All awaited answers have arrived, and no later one counts: the outcome of the round is known at
 * once. */
static dl_verdict look_simulated(const dl_closing *c)
{
    const dl_missing_choice rule = c->config->on_missing;
    DL_ASSERT(c->simulated);
    const size_t n = n_awaited(c), asked = c->control->roster.n;
    const bool enough = c->config->close_at > 0 && n >= (size_t)c->config->close_at;
    if (n == 0) return abort_because("no client answers in time");
    if (!enough && rule == DL_MISSING_ABORT && n < asked)
        return abort_because("not all answer in time");
    if (!enough && rule == DL_MISSING_COMMIT_PARTIAL &&
        (double)n < ceil(c->config->quorum * (double)asked))
        return abort_because("no quorum at the deadline");
    if (!awaited_are_there(c)) return wait_until(DL_NEVER);
    return dl_candidate_n_counting(c->known) > 0 ? commit() : abort_of_nobody();
}

bool dl_closing_is_complete(const dl_closing *c)
{
    return !c->simulated && all_there(c);
}

dl_verdict dl_closing_look(const dl_closing *c)
{
    if (c->simulated) return look_simulated(c);
    if (all_there(c)) return commit();
    if (nobody_gives(c)) return abort_of_nobody();
    if (!has_roster(c)) return wait_until(DL_NEVER);
    if (c->enough_at != DL_NEVER) {
        const dl_time over = dl_time_after(c->enough_at, grace(c));
        return c->now >= over ? commit() : wait_until(over);
    }
    if (waits_for_clients(c)) return wait_until(DL_NEVER);
    if (c->now < c->deadline) return wait_until(c->deadline);
    return (dl_verdict){.kind = DL_VERDICT_WATCH};
}

static dl_verdict with_quorum(const dl_closing *c)
{
    const double needed = ceil(c->config->quorum * (double)c->control->roster.n);
    if ((double)dl_candidate_n_counting(c->known) >= fmax(needed, 1)) return commit();
    return abort_because("no quorum at the deadline");
}

static bool waits_for_the_silent_only(const dl_closing *c)
{
    const dl_roster *roster = &c->control->roster;
    for (size_t i = 0; i < roster->n; i++)
        if (!c->silent[i] && !dl_candidate_is_present(c->known, roster->names[i]) &&
            !dl_candidate_skips(c->known, roster->names[i]))
            return false;
    return true;
}

dl_verdict dl_closing_watched(const dl_closing *c)
{
    const dl_missing_choice rule = c->config->on_missing;
    DL_ASSERT(!c->simulated); /* in simulated time no replica is waited for */
    if (rule == DL_MISSING_COMMIT_PARTIAL) return with_quorum(c);
    if (rule == DL_MISSING_ABORT) return abort_because("not all were there at the deadline");
    if (waits_for_the_silent_only(c)) return abort_of_silent(c);
    return wait_until(dl_time_after(c->now, dl_time_from_seconds(c->config->patience_s / 4)));
}
