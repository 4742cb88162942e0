/* judge.c - see judge.h.
 *
 * The checks have this order, each among the contributions that remain. First repeats, which need
 * no others; then copies, since a copy counts twice in every median. Then norms, first the long
 * ones and then the short: half of the members would have to move the median. Then directions,
 * compared with the median of a contribution's cosines with the remaining others. Most of these are
 * honest if most members are, and its own vector is not in it. */
#include "protocol/judge.h"

#include "base/run_kind.h"
#include "combine/combine.h"

#include "combine/order.h"
#include "protocol/logical_clients.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    FEWEST_DIRECTIONS = 3, /* if two disagree, nothing shows which is wrong */
    MOST_COUNTED = 16384   /* of check.repeat, over all replicas: 2 MB of a snapshot's text */
};

bool dl_judge_is_on(const dl_config *config)
{
    return config->check_norm > 0 || config->check_short > 0 || config->check_element > 0 ||
           config->check_repeat > 0 || config->check_copy > 0 || config->check_cosine > -1 ||
           config->check_probe > 0 || config->ban_after > 0;
}

bool dl_judge_may_reject(const dl_config *config)
{
    dl_combine_rule rule;
    if (dl_judge_is_on(config)) return true;
    return !dl_combine_rule_of(&rule, config) && dl_combine_needed(&rule) > 1;
}

bool dl_judge_compares(const dl_config *config)
{
    return config->check_norm > 0 || config->check_short > 0 || dl_config_checks_directions(config);
}

/* The probe borrows the model, so training waits meanwhile. */
static diloco_status check_probe(const dl_config *config)
{
    if (config->check_probe <= 0) return DILOCO_OK;
    if (config->check_probe < 1)
        return dl_fail(DILOCO_EINVAL,
                       "check.probe = %g would reject contributions that lower the loss: take 1 or "
                       "more, such as 1.1, 0 for none",
                       config->check_probe);
    if (config->overlap != DL_OVERLAP_STEPS || config->overlap_steps > 0)
        return dl_fail(DILOCO_EREFUSED,
                       "check.probe measures on the trainer's thread, and with "
                       "server.diloco.overlap or overlap_steps that trains meanwhile: leave "
                       "check.probe 0, or take overlap \"steps\" with overlap_steps 0");
    return DILOCO_OK;
}

diloco_status dl_judge_check(const dl_config *config)
{
    if (config->check_norm > 0 && config->check_norm < 1)
        return dl_fail(DILOCO_EINVAL,
                       "check.norm = %g would reject half of the contributions of any entry, since "
                       "it counts in medians: take 1 or more, 0 for none",
                       config->check_norm);
    if (config->check_short >= 1)
        return dl_fail(DILOCO_EINVAL,
                       "check.short = %g would reject half of the contributions of any entry, "
                       "since it counts in medians: take less than 1, such as 0.2, 0 for none",
                       config->check_short);
    if (config->check_repeat * (int64_t)dl_clients_max_members(config) > MOST_COUNTED)
        return dl_fail(DILOCO_EINVAL,
                       "check.repeat = %" PRId64 " for %zu members is more than the %d "
                       "contributions that snapshots keep in mind: lower it",
                       config->check_repeat, dl_clients_max_members(config), MOST_COUNTED);
    if (!dl_judge_is_on(config)) return DILOCO_OK;
    const char *no_checks = dl_run_kind_of(config)->no_checks;
    if (no_checks) return dl_fail(DILOCO_EREFUSED, "%s", no_checks);
    return check_probe(config);
}

bool dl_judge_names(const char *reason)
{
    return !dl_contribution_is_damage(reason) && strcmp(reason, "signature") != 0;
}

bool dl_judge_agrees(const dl_config *config, const char *own, const char *reason)
{
    if (!own) return !strcmp(reason, "probe") && config->check_probe > 0;
    return !strcmp(own, reason);
}

bool dl_judge_has_rejected(const dl_candidate_table *known, const char *replica)
{
    const dl_candidate *k = NULL;
    while ((k = dl_candidate_next(known, replica, k)))
        if (k->validity == DL_INVALID && dl_judge_names(k->refused)) return true;
    return false;
}

void dl_judge_layout(dl_judge *judge, dl_arena *arena, size_t max_members)
{
    judge->slots = DL_ARENA_ARRAY(arena, size_t, max_members);
    judge->key = DL_ARENA_ARRAY(arena, double, max_members);
    judge->norm = DL_ARENA_ARRAY(arena, double, max_members);
    judge->median = DL_ARENA_ARRAY(arena, double, max_members);
    judge->order = DL_ARENA_ARRAY(arena, size_t, max_members);
}

static dl_candidate *at(const dl_judge *j, dl_candidate_table *known, size_t i)
{
    return &known->at[j->slots[i]];
}

/* Returns 0 if one does not move. */
static double cosine(const dl_judge *j, const double *gram, size_t a, size_t b)
{
    const double norms = j->norm[a] * j->norm[b];
    return norms > 0 ? gram[a * j->n + b] / norms : 0;
}

static bool repeats(const dl_candidate *k, const dl_bans *bans)
{
    return dl_bans_has_counted(bans, k->generation.replica, k->facts.body);
}

/* If all members repeat themselves, as trainers may that have converged, no repeat is refused. */
static void find_repeats(const dl_judge *j, const dl_bans *bans, dl_candidate_table *known)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n; i++)
        n += repeats(at(j, known, i), bans);
    for (size_t i = 0; i < j->n && n < j->n; i++)
        if (repeats(at(j, known, i), bans)) at(j, known, i)->refused = "repeat";
}

/* gram NULL: finds equal bytes only. */
static void find_copies(const dl_judge *j, double most, dl_candidate_table *known,
                        const double *gram)
{
    for (size_t i = 1; i < j->n; i++)
        for (size_t k = 0; k < i && !at(j, known, i)->refused; k++) {
            const bool same =
                dl_hash_equal(at(j, known, i)->facts.body, at(j, known, k)->facts.body);
            const bool beside = gram && most < 1 && cosine(j, gram, i, k) >= most;
            if (same || beside) at(j, known, i)->refused = "copy";
        }
}

static double median_norm(dl_judge *j, dl_candidate_table *known)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n; i++)
        if (!at(j, known, i)->refused) j->key[n++] = j->norm[i];
    return dl_median(j->order, j->key, n);
}

/* Of two, both may be far from the middle. So those that remain after one bound are measured again
 * for the other, which leaves the longest of them. */
static void compare_norms(dl_judge *j, const dl_config *config, dl_candidate_table *known)
{
    const double longest =
        config->check_norm > 0 ? config->check_norm * median_norm(j, known) : INFINITY;
    for (size_t i = 0; i < j->n; i++)
        if (!at(j, known, i)->refused && j->norm[i] > longest) at(j, known, i)->refused = "norm";
    const double median = median_norm(j, known);
    for (size_t i = 0; i < j->n; i++) {
        if (at(j, known, i)->refused) continue;
        if (j->norm[i] < config->check_short * median) at(j, known, i)->refused = "short";
        if (j->norm[i] == 0 && median > 0) at(j, known, i)->refused = "zero";
    }
}

/* Verdicts are given once all are found, so their order does not matter; the best one stays. */
static void compare_directions(dl_judge *j, double least, dl_candidate_table *known,
                               const double *gram)
{
    double *median = j->median;
    size_t n_left = 0, best = SIZE_MAX;
    for (size_t i = 0; i < j->n; i++)
        n_left += !at(j, known, i)->refused;
    if (n_left < FEWEST_DIRECTIONS) return;
    DL_ASSERT(gram);
    for (size_t i = 0; i < j->n; i++) {
        size_t n = 0;
        for (size_t k = 0; k < j->n; k++)
            if (k != i && !at(j, known, k)->refused) j->key[n++] = cosine(j, gram, i, k);
        median[i] = dl_median(j->order, j->key, n);
    }
    for (size_t i = 0; i < j->n; i++)
        if (!at(j, known, i)->refused && (best == SIZE_MAX || median[i] > median[best])) best = i;
    for (size_t i = 0; i < j->n; i++)
        if (i != best && !at(j, known, i)->refused && median[i] < least)
            at(j, known, i)->refused = "cosine";
}

bool dl_judge_has_whole(const dl_judge *judge, const dl_candidate_table *known)
{
    for (size_t i = 0; i < judge->n; i++)
        if (!known->at[judge->slots[i]].whole) return false;
    return true;
}

void dl_judge_all(dl_judge *j, const dl_config *config, const dl_bans *bans,
                  dl_candidate_table *known, const double *gram)
{
    for (size_t i = 0; i < j->n; i++) {
        DL_ASSERT(j->slots[i] < known->n && at(j, known, i)->validity == DL_VALID);
        at(j, known, i)->refused = NULL;
        j->norm[i] = sqrt(at(j, known, i)->norm2);
    }
    if (j->n == 0) return;
    if (config->check_repeat > 0) find_repeats(j, bans, known);
    if (config->check_copy > 0) find_copies(j, config->check_copy, known, gram);
    if (!dl_judge_has_whole(j, known)) return;
    if (config->check_norm > 0 || config->check_short > 0) compare_norms(j, config, known);
    if (config->check_cosine > -1) compare_directions(j, config->check_cosine, known, gram);
}

/* A loss below 0, as a caller's trainer may have, gets as much room above it as one above 0. */
static double most_of(double loss, double times)
{
    return loss + (times - 1) * fabs(loss);
}

void dl_judge_probed(dl_judge *j, const dl_config *config, dl_candidate_table *known,
                     const double *probed)
{
    size_t best = SIZE_MAX;
    DL_ASSERT(probed);
    if (!isfinite(probed[0])) return;
    for (size_t i = 0; i < j->n; i++) {
        const double loss = probed[1 + i];
        if (at(j, known, i)->refused || isnan(loss)) continue;
        if (best == SIZE_MAX || loss < probed[1 + best]) best = i;
    }
    for (size_t i = 0; i < j->n; i++)
        if (i != best && !at(j, known, i)->refused && best != SIZE_MAX &&
            !(probed[1 + i] <= most_of(probed[0], config->check_probe)))
            at(j, known, i)->refused = "probe";
}
