/* topology.c - see topology.h. */
#include "protocol/topology.h"

#include "base/run_kind.h"
#include "codec/codec.h"
#include "log/contribution.h"
#include "outer/outer_step.h"

const char *const dl_way_names[DL_N_WAYS] = {"allgather", "leader", "sharded"};

dl_volume dl_way_volume(dl_way way, double N, double S, double F, bool reads_back)
{
    const double others = reads_back ? N : N - 1; /* and its own */
    switch (way) {
    case DL_WAY_ALLGATHER:
        return (dl_volume){.written = N * S, .read = N * others * S};
    case DL_WAY_LEADER:
    case DL_WAY_SHARDED:
    case DL_N_WAYS:
        break;
    }
    return (dl_volume){.written = N * S + F, .read = others * (S + F)};
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
            "server.diloco.rescale = \"%s\" under combiner %s measures their sum: choose leader "
            "or allgather, or leave rescale \"none\"",
            dl_rescale_choice_names[config->rescale], config->combiner);
    if (config->check_probe > 0)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.exchange = \"sharded\" lets no replica read whole "
                       "contributions before the members are settled, and check.probe measures "
                       "with these: choose leader or allgather");
    if (!codec || !codec->ranges)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.exchange = \"sharded\" cuts payloads, and those of codec %s "
                       "cannot be cut: choose leader or allgather",
                       config->codec);
    if (config->compression != DL_COMPRESSION_NONE)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.exchange = \"sharded\" cuts payloads, and compressed ones "
                       "cannot be cut: set server.diloco.compression = \"none\"");
    return DILOCO_OK;
}

diloco_status dl_way_owners(size_t *out, const dl_config *config)
{
    dl_combine_rule rule;
    const size_t replicas = (size_t)config->replicas;
    DL_TRY(dl_combine_rule_of(&rule, config));
    const bool robust = dl_combine_tolerated(&rule, replicas) > 0;
    const size_t wanted = config->slice_owners ? (size_t)config->slice_owners
                          : robust             ? (size_t)config->byzantine + 1
                                               : 1;
    *out = dl_size_min(wanted, replicas);
    DL_ASSERT(*out > 0);
    return DILOCO_OK;
}

/* Computes S and F. A payload of varying length counts with its largest size. */
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

diloco_status dl_way_largest(size_t *out, const dl_config *config, const dl_manifest *manifest)
{
    double contribution, floats;
    DL_TRY(find_sizes(&contribution, &floats, config, manifest));
    *out = (size_t)contribution;
    return DILOCO_OK;
}

typedef struct choice {
    double N, S, F;
    size_t owners;
    bool may[DL_N_WAYS];
} choice;

static double all(dl_way way, const choice *c)
{
    const dl_volume v = dl_way_volume(way, c->N, c->S, c->F, true);
    const double again = way == DL_WAY_SHARDED ? (double)(c->owners - 1) * c->N * c->S : 0;
    return v.written + v.read + again;
}

static bool is_better(dl_way a, dl_way b, const choice *c)
{
    const double x = all(a, c), y = all(b, c);
    return x != y ? x < y
                  : dl_way_busiest(a, c->N, c->S, c->F) < dl_way_busiest(b, c->N, c->S, c->F);
}

static dl_way cheapest(const choice *c)
{
    dl_way best = DL_WAY_ALLGATHER;
    if (c->N * c->S < DL_WAY_SMALL) return best;
    for (int w = 0; w < DL_N_WAYS; w++)
        if (c->may[w] && is_better((dl_way)w, best, c)) best = (dl_way)w;
    return best;
}

diloco_status dl_way_of(dl_way *out, const dl_config *config, const dl_manifest *manifest)
{
    choice c = {.N = (double)config->replicas, .may = {[DL_WAY_ALLGATHER] = true}};
    dl_combine_rule rule;
    *out = DL_WAY_ALLGATHER;
    if (dl_run_kind_of(config)->no_exchange) return DILOCO_OK;
    if (config->exchange != DL_EXCHANGE_AUTO) {
        *out = dl_way_chosen(config->exchange);
        return DILOCO_OK;
    }
    DL_TRY(find_sizes(&c.S, &c.F, config, manifest));
    DL_TRY(dl_way_owners(&c.owners, config));
    DL_TRY(dl_combine_rule_of(&rule, config));
    c.may[DL_WAY_LEADER] = dl_combine_tolerated(&rule, (size_t)config->replicas) == 0;
    c.may[DL_WAY_SHARDED] =
        dl_way_fits_roster(DL_WAY_SHARDED, config->roster) && !dl_way_can_shard(config);
    *out = cheapest(&c);
    if (!dl_way_fits_roster(*out, config->roster)) *out = DL_WAY_ALLGATHER;
    return DILOCO_OK;
}
