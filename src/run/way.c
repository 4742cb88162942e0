/* way.c - see way.h. */
#include "run/way.h"

#include "codec/codec.h"
#include "run/contribution.h"

#include <string.h>

const char *const dl_way_names[DL_N_WAYS] = {"allgather", "leader"};

dl_volume dl_way_volume(dl_way way, double N, double S, double F)
{
    if (way == DL_WAY_LEADER) return (dl_volume){.written = N * S + F, .read = N * S + N * F};
    return (dl_volume){.written = N * S, .read = N * N * S};
}

bool dl_way_fits_roster(dl_way way, dl_policy policy)
{
    return policy == DL_TRUSTED || way == DL_WAY_ALLGATHER ||
           (policy == DL_CLOSED && way == DL_WAY_LEADER);
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

static dl_way cheapest(double N, double S, double F)
{
    dl_way best = DL_WAY_ALLGATHER;
    if (N * S < DL_WAY_SMALL) return best;
    for (int w = 0; w < DL_N_WAYS; w++)
        if (all(dl_way_volume((dl_way)w, N, S, F)) < all(dl_way_volume(best, N, S, F)))
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
    *out = cheapest((double)config->replicas, S, F);
    if (!dl_way_fits_roster(*out, dl_policy_of(config))) *out = DL_WAY_ALLGATHER;
    return DILOCO_OK;
}
