/* combine.c - the table of combiners, and what a configuration makes of a row. */
#include "combine/combine_rows.h"

#include "base/own.h"
#include "codec/codec.h"
#include "tensor/cut.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ROW(name) &dl_combiner_##name,
static const dl_combiner *const rows[] = {DL_COMBINERS(ROW)};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const dl_combiner *dl_combiner_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}

const dl_combiner *dl_combiner_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}

/* The caller's own combiner is found by its name in the configuration, like the others. dl_own_name
 * decides which names are free. */
const dl_combiner *dl_combiner_of(const dl_config *config)
{
    const dl_combiner *own = config->own ? config->own->combiner : NULL;
    return own && strcmp(own->name, config->combiner) == 0 ? own
                                                           : dl_combiner_find(config->combiner);
}

/* ---- the rule of a run */

dl_combine_rule dl_combine_mean(void)
{
    return (dl_combine_rule){.combiner = &dl_combiner_mean};
}

diloco_status dl_combine_rule_of(dl_combine_rule *out, const dl_config *config)
{
    *out = (dl_combine_rule){.combiner = dl_combiner_of(config),
                             .mixing = config->pre_aggregation,
                             .trim = (uint64_t)llround(config->trim * 1e9),
                             .byzantine = (size_t)config->byzantine,
                             .bucket_size = (size_t)config->bucket_size,
                             .checked = dl_config_checks_directions(config),
                             .clip_radius = config->clip_radius,
                             .rescale = config->rescale == DL_RESCALE_MEDIAN_NORM,
                             .fall_back = config->robust_fallback == DL_FALLBACK_MEAN,
                             .most_slices = dl_size_min((size_t)config->replicas, DL_SLICES_MAX)};
    if (out->combiner) return DILOCO_OK;
    return dl_no_row("combiner", config->combiner);
}

/* The last bucket may be short, hence the rounding up. */
size_t dl_combine_inputs(const dl_combine_rule *rule, size_t n_members)
{
    if (rule->mixing != DL_MIX_BUCKETING) return n_members;
    return (n_members + rule->bucket_size - 1) / rule->bucket_size;
}

/* With bucketing, `inputs` buckets exist from the first member after inputs - 1 full buckets on.
 * Nearest-neighbour mixing needs a majority of honest members. */
size_t dl_combine_needed(const dl_combine_rule *rule)
{
    size_t inputs = rule->combiner->needed(rule);
    if (rule->mixing == DL_MIX_BUCKETING) return (inputs - 1) * rule->bucket_size + 1;
    if (rule->mixing == DL_MIX_NNM) return dl_size_max(inputs, 2 * rule->byzantine + 1);
    return inputs;
}

/* Bucketing does not change the number: one hostile member spoils one bucket, so f buckets of
 * hostile members bear f of them. */
size_t dl_combine_tolerated(const dl_combine_rule *rule, size_t n_members)
{
    if (n_members < dl_combine_needed(rule)) return 0;
    size_t f = rule->combiner->tolerated(rule, dl_combine_inputs(rule, n_members));
    return rule->mixing == DL_MIX_NNM ? dl_size_min(f, rule->byzantine) : f;
}

/* The original rule is returned if no lower f is enough, so the error names what was configured. */
dl_combine_rule dl_combine_after(const dl_combine_rule *rule, size_t n_members, size_t n_rejected)
{
    dl_combine_rule less = *rule;
    const bool trims = rule->combiner == &dl_combiner_trimmed_mean;
    for (; n_rejected > 0 && dl_combine_needed(&less) > n_members; n_rejected--) {
        if (trims) less.trim = 0; /* fewer than 1 / trim are left: none is trimmed of them */
        if (less.byzantine > 0) less.byzantine--;
    }
    return dl_combine_needed(&less) <= n_members ? less : *rule;
}

/* ---- before training */

/* A mixed input is a mean of several members, so no single weight belongs to it. */
static diloco_status check_mixing(const dl_combine_rule *rule)
{
    if (rule->mixing == DL_MIX_NONE || rule->combiner->ignores_weights) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "server.diloco.pre_aggregation mixes members of equal weight, and combiner %s "
                   "uses weights: leave it \"none\", or take a robust combiner",
                   rule->combiner->name);
}

/* Each way in which a round may close early has its own minimum, and each error names the option to
 * raise. */
static diloco_status check_members(const dl_combine_rule *rule, const dl_config *config)
{
    const size_t needed = dl_combine_needed(rule), clients = dl_config_per_round(config);
    const bool federated = dl_config_federated(config),
               log = config->consensus != DL_CONSENSUS_NONE;
    if (!log && (size_t)config->min_peers < needed && !rule->fall_back)
        return dl_fail(DILOCO_EREFUSED,
                       "combiner %s needs %zu members, and swarm.min_peers allows %" PRId64
                       ": raise it, or let such rounds fall back with "
                       "server.diloco.robust_fallback = \"mean\"",
                       rule->combiner->name, needed, config->min_peers);
    if (federated && clients < needed)
        return dl_fail(DILOCO_EREFUSED,
                       "combiner %s needs %zu members, and a round asks %zu clients: raise "
                       "clients.per_round, or take combiner mean",
                       rule->combiner->name, needed, clients);
    if (!federated && (size_t)config->replicas < needed)
        return dl_fail(DILOCO_EREFUSED,
                       "combiner %s needs %zu members, and run.replicas is %" PRId64
                       ": raise it, or take combiner mean",
                       rule->combiner->name, needed, config->replicas);
    if (!federated && log && (size_t)config->min_replicas < needed && !rule->fall_back)
        return dl_fail(DILOCO_EREFUSED,
                       "combiner %s needs %zu members, and run.min_replicas allows %" PRId64
                       ": raise it, or let such entries fall back with "
                       "server.diloco.robust_fallback = \"mean\"",
                       rule->combiner->name, needed, config->min_replicas);
    if (config->close_at && (size_t)config->close_at < needed && !rule->fall_back)
        return dl_fail(DILOCO_EREFUSED,
                       "combiner %s needs %zu members, and run.close_at closes entries with "
                       "%" PRId64 ": raise it, or let such entries fall back with "
                       "server.diloco.robust_fallback = \"mean\"",
                       rule->combiner->name, needed, config->close_at);
    return DILOCO_OK;
}

/* D-16: with five members that each send a tenth, the elements that move fall from .39 to .08. */
static diloco_status check_codec(const dl_combine_rule *rule, const dl_config *config)
{
    const dl_codec *codec = dl_codec_of(config);
    if (!codec || !codec->sparse || !rule->combiner->elements) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "combiner %s sorts the values of each element, and codec %s sends many of "
                   "them as 0: take a dense codec (int8, int4), or clipped_mean, krum or "
                   "geometric_median",
                   rule->combiner->name, codec->name);
}

/* The joining process calls this before training. A rule that no entry could satisfy would fail at
 * the first commit otherwise. */
diloco_status dl_combine_check(const dl_config *config)
{
    dl_combine_rule rule;
    DL_TRY(dl_combine_rule_of(&rule, config));
    DL_TRY(check_mixing(&rule));
    DL_TRY(check_members(&rule, config));
    return check_codec(&rule, config);
}
