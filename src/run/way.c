/* way.c - see way.h. */
#include "run/way.h"

#include "codec/codec.h"
#include "outer/outer_step.h"
#include "run/contribution.h"
#include "run/judge.h"

#include <string.h>

const char *const dl_way_names[DL_N_WAYS] = {"allgather", "leader", "sharded"};

dl_volume dl_way_volume(dl_way way, double N, double S, double F)
{
    if (way != DL_WAY_ALLGATHER) return (dl_volume){.written = N * S + F, .read = N * S + N * F};
    return (dl_volume){.written = N * S, .read = N * N * S};
}

bool dl_way_fits_roster(dl_way way, dl_policy policy)
{
    return policy == DL_TRUSTED || way == DL_WAY_ALLGATHER ||
           (policy == DL_CLOSED && way == DL_WAY_LEADER);
}

double dl_way_busiest(dl_way way, double N, double S, double F)
{
    if (way == DL_WAY_SHARDED) return S + F / N + S + F;
    return way == DL_WAY_LEADER ? S + F + N * S + F : S + N * S;
}

diloco_status dl_way_can_shard(const dl_config *config)
{
    dl_combine_rule rule;
    const dl_codec *codec = dl_codec_of(config);
    DL_TRY(dl_combine_rule_of(&rule, config));
    if (dl_outer_cutting(&rule) == DL_CUT_NO)
        return dl_fail(
            DILOCO_EREFUSED,
            "server.diloco.exchange = \"sharded\" combines slices by themselves, and "
            "server.diloco.rescale = \"%s\" under combiner %s measures what they come to "
            "together: choose leader or allgather, or leave rescale \"none\"",
            config->rescale, config->combiner);
    if (dl_judge_is_on(config))
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.exchange = \"sharded\" lets nobody read whole contributions, "
                       "and check.* looks at these: choose leader or allgather");
    if (!codec || !codec->ranges)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.exchange = \"sharded\" cuts payloads, and those of codec %s "
                       "cannot be cut: choose leader or allgather",
                       config->codec);
    if (strcmp(config->compression, "none") != 0)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.exchange = \"sharded\" cuts payloads, and compressed ones "
                       "cannot be cut: set server.diloco.compression = \"none\"");
    return DILOCO_OK;
}

static double all(dl_volume v)
{
    return v.written + v.read;
}

/* S and F. A payload that varies in length counts with the most that it can have. */
static diloco_status find_sizes(double *contribution, double *floats, const dl_config *config,
                                const dl_manifest *manifest)
{
    *contribution = *floats = 0;
    for (int f = 0; f < manifest->n_fragments; f++) {
        dl_codec_form form;
        const dl_fragment_shape *shape = &manifest->fragments[f];
        DL_TRY(dl_codec_form_init(&form, config, manifest, f));
        const double bytes =
            (double)(DL_CONTRIBUTION_HEADER + dl_contribution_body_max(&form, *shape, false));
        if (bytes > *contribution) *contribution = bytes;
        if (4.0 * (double)form.n > *floats) *floats = 4.0 * (double)form.n;
        dl_codec_form_deinit(&form);
    }
    return DILOCO_OK;
}

static bool is_better(dl_way a, dl_way b, double N, double S, double F)
{
    const double x = all(dl_way_volume(a, N, S, F)), y = all(dl_way_volume(b, N, S, F));
    return x != y ? x < y : dl_way_busiest(a, N, S, F) < dl_way_busiest(b, N, S, F);
}

static dl_way cheapest(double N, double S, double F, bool can_shard)
{
    dl_way best = DL_WAY_ALLGATHER;
    if (N * S < DL_WAY_SMALL) return best;
    for (int w = 0; w < DL_N_WAYS; w++)
        if ((w != DL_WAY_SHARDED || can_shard) && is_better((dl_way)w, best, N, S, F))
            best = (dl_way)w;
    return best;
}

diloco_status dl_way_of(dl_way *out, const dl_config *config, const dl_manifest *manifest)
{
    double S, F;
    *out = DL_WAY_ALLGATHER;
    if (!strcmp(config->schedule, "async") || dl_config_federated(config)) return DILOCO_OK;
    for (int w = 0; w < DL_N_WAYS; w++)
        if (!strcmp(config->exchange, dl_way_names[w])) *out = (dl_way)w;
    if (strcmp(config->exchange, "auto") != 0) return DILOCO_OK;
    DL_TRY(find_sizes(&S, &F, config, manifest));
    const bool shards =
        dl_way_fits_roster(DL_WAY_SHARDED, dl_policy_of(config)) && !dl_way_can_shard(config);
    *out = cheapest((double)config->replicas, S, F, shards);
    if (!dl_way_fits_roster(*out, dl_policy_of(config))) *out = DL_WAY_ALLGATHER;
    return DILOCO_OK;
}
