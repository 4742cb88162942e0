/* topology.c - see topology.h. */
#include "protocol/topology.h"

#include "base/run_kind.h"
#include "codec/codec.h"
#include "log/contribution.h"
#include "outer/outer_step.h"

const char *const dl_topology_names[DL_N_TOPOLOGIES] = {"allgather", "leader", "sharded"};

dl_volume dl_topology_volume(dl_topology_kind topology, double N, double S, double F,
                             bool reads_back)
{
    const double others = reads_back ? N : N - 1; /* and its own */
    switch (topology) {
    case DL_TOPOLOGY_ALLGATHER:
        return (dl_volume){.written = N * S, .read = N * others * S};
    case DL_TOPOLOGY_LEADER:
    case DL_TOPOLOGY_SHARDED:
    case DL_N_TOPOLOGIES:
        break;
    }
    return (dl_volume){.written = N * S + F, .read = others * (S + F)};
}

bool dl_topology_fits_roster(dl_topology_kind topology, dl_policy policy)
{
    return policy == DL_TRUSTED || topology == DL_TOPOLOGY_ALLGATHER ||
           (policy == DL_CLOSED && topology == DL_TOPOLOGY_LEADER);
}

double dl_topology_busiest(dl_topology_kind topology, double N, double S, double F)
{
    if (topology == DL_TOPOLOGY_SHARDED) return S + F / N + S + F;
    return topology == DL_TOPOLOGY_LEADER ? S + F + N * S + F : S + N * S;
}

diloco_status dl_topology_can_shard(const dl_config *config)
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

diloco_status dl_topology_n_owners(size_t *out, const dl_config *config)
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

diloco_status dl_topology_max_contribution(size_t *out, const dl_config *config,
                                           const dl_manifest *manifest)
{
    double contribution, floats;
    DL_TRY(find_sizes(&contribution, &floats, config, manifest));
    *out = (size_t)contribution;
    return DILOCO_OK;
}

typedef struct choice {
    double N, S, F;
    size_t owners;
    bool may[DL_N_TOPOLOGIES];
} choice;

static double all(dl_topology_kind topology, const choice *c)
{
    const dl_volume v = dl_topology_volume(topology, c->N, c->S, c->F, true);
    const double again =
        topology == DL_TOPOLOGY_SHARDED ? (double)(c->owners - 1) * c->N * c->S : 0;
    return v.written + v.read + again;
}

static bool is_better(dl_topology_kind a, dl_topology_kind b, const choice *c)
{
    const double x = all(a, c), y = all(b, c);
    return x != y ? x < y
                  : dl_topology_busiest(a, c->N, c->S, c->F) <
                        dl_topology_busiest(b, c->N, c->S, c->F);
}

static dl_topology_kind cheapest(const choice *c)
{
    dl_topology_kind best = DL_TOPOLOGY_ALLGATHER;
    if (c->N * c->S < DL_TOPOLOGY_SMALL) return best;
    for (int w = 0; w < DL_N_TOPOLOGIES; w++)
        if (c->may[w] && is_better((dl_topology_kind)w, best, c)) best = (dl_topology_kind)w;
    return best;
}

diloco_status dl_topology_choose(dl_topology_kind *out, const dl_config *config,
                                 const dl_manifest *manifest)
{
    choice c = {.N = (double)config->replicas, .may = {[DL_TOPOLOGY_ALLGATHER] = true}};
    dl_combine_rule rule;
    *out = DL_TOPOLOGY_ALLGATHER;
    if (dl_run_kind_of(config)->no_exchange) return DILOCO_OK;
    if (config->exchange != DL_EXCHANGE_AUTO) {
        *out = dl_topology_named(config->exchange);
        return DILOCO_OK;
    }
    DL_TRY(find_sizes(&c.S, &c.F, config, manifest));
    DL_TRY(dl_topology_n_owners(&c.owners, config));
    DL_TRY(dl_combine_rule_of(&rule, config));
    c.may[DL_TOPOLOGY_LEADER] = dl_combine_tolerated(&rule, (size_t)config->replicas) == 0;
    c.may[DL_TOPOLOGY_SHARDED] = dl_topology_fits_roster(DL_TOPOLOGY_SHARDED, config->roster) &&
                                 !dl_topology_can_shard(config);
    *out = cheapest(&c);
    if (!dl_topology_fits_roster(*out, config->roster)) *out = DL_TOPOLOGY_ALLGATHER;
    return DILOCO_OK;
}
