/* methods.c - the tables of forecast.h. A method is a row; so is a codec. */
#include "plan/forecast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One bit a value for the map, and 32 for each value that is kept. */
static double prune_bits(const dl_config *config)
{
    return 1 + 32 * (1 - config->codec_prune);
}

/* Of indices, k in each chunk of 4096: low bits, a one, and the zeros between the values of what is
 * above them; or plain ones. */
static double index_bits(double k)
{
    const double low = floor(log2(4096 / k));
    return fmin(k * 12, k * (low + 1) + exp2(12 - low));
}

/* The number of bits a value, from the options of a run: k indices and k values for each chunk
 * of 4096. */
static double topk_bits(const dl_config *config)
{
    static const struct {
        double bits, scale; /* of a value; of a chunk */
    } rows[] = {[DL_CODEC_VALUES_2BIT] = {2, 0},
                [DL_CODEC_VALUES_INT8] = {8, 32},
                [DL_CODEC_VALUES_F32] = {32, 0}};
    const double k = fmax(1, floor(config->codec_keep * 4096 + 0.5));
    const double bits = rows[config->codec_values].bits, scale = rows[config->codec_values].scale;
    return (index_bits(k) + (k * bits + scale)) / 4096;
}

/* A codec here has the size of its payload only; src/codec has the codecs themselves. */
static const dl_plan_codec codecs[] = {
    {"f32", 32, NULL},
    {"bf16", 16, NULL},
    {"f16", 16, NULL},
    {"int8", 8 + 32.0 / 256, NULL}, /* a scale of 32 bits for each block of 256 */
    {"int4", 4 + 32.0 / 256, NULL},
    {"e3m0", 4 + 32.0 / 256, NULL},
    {"int2", 2 + 32.0 / 256, NULL},
    {"prune", 1 + 0.5 * 32, prune_bits}, /* a map, and half of the values */
    {"sign", 1 + 32.0 / 256, NULL},
    {"topk", 64 * (8 + 2) / 4096.0, topk_bits}, /* 64 of 4096: an index of 8 bits, a value of 2 */
};

/* A method has the numbers of its preset that a forecast needs. A member that is left out is 0:
 * fragments are then counted from the layers, and training waits. */
static const dl_plan_method methods[] = {
    {.name = "data_parallel",
     .preset = "data_parallel",
     .codec = "f32",
     .sync_every = 1,
     .fragments = 1,
     .summary = "gradients after every step: the baseline"},
    {.name = "diloco",
     .preset = "diloco",
     .codec = "f32",
     .sync_every = 500,
     .fragments = 1,
     .summary = "all at once every H steps, training waits (2311.08105)"},
    {.name = "streaming_blocking",
     .preset = "streaming",
     .codec = "e3m0",
     .sync_every = 100,
     .summary = "a fragment at a time, training waits (2501.18512 with tau 0)"},
    {.name = "streaming",
     .preset = "streaming",
     .codec = "e3m0",
     .sync_every = 100,
     .tau = 1,
     .summary = "a fragment at a time during training (2501.18512)"},
    {.name = "eager",
     .preset = "eager",
     .codec = "f32",
     .sync_every = 30,
     .fragments = 1,
     .delayed = true,
     .summary = "all at once, adopted a round later (2502.12996)"},
    {.name = "decoupled",
     .preset = "decoupled",
     .codec = "int4",
     .sync_every = 24,
     .fragments = 24,
     .tau = 2,
     .summary = "a fragment a step, without waiting (2604.21428)"},
    {.name = "sparse",
     .preset = "sparse",
     .codec = "topk",
     .sync_every = 30,
     .fragments = 1,
     .summary = "64 of 4096 values, error feedback, training waits (2508.15706)"},
    {.name = "muloco",
     .preset = "muloco",
     .codec = "f32",
     .sync_every = 30,
     .fragments = 1,
     .summary = "all at once, Muon inside, training waits (2505.23725)"},
};

const char *const dl_exchange_names[DL_N_EXCHANGES] = {"allgather", "leader", "sharded"};

const dl_plan_codec *dl_plan_codec_at(size_t i)
{
    return i < sizeof codecs / sizeof codecs[0] ? &codecs[i] : NULL;
}

const dl_plan_codec *dl_plan_codec_find(const char *name)
{
    const dl_plan_codec *c;
    for (size_t i = 0; (c = dl_plan_codec_at(i)); i++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

const dl_plan_method *dl_plan_method_at(size_t i)
{
    return i < sizeof methods / sizeof methods[0] ? &methods[i] : NULL;
}

diloco_status dl_plan_method_find(const dl_plan_method **out, const char *name)
{
    char known[256] = "";
    for (size_t i = 0; (*out = dl_plan_method_at(i)); i++) {
        if (strcmp((*out)->name, name) == 0) return DILOCO_OK;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", (*out)->name);
    }
    return dl_fail(DILOCO_EINVAL, "there is no method %.60s; there is: %s", name, known);
}

uint32_t dl_plan_most_interval(const dl_plan_task *task)
{
    const double half = floor(task->steps / 2);
    return half < 1 ? 1 : half < UINT32_MAX ? (uint32_t)half : UINT32_MAX;
}

/* fragments 0 is counted from the layers, as dl_fragments_assign would: blocks in groups, and
 * one for the rest. */
dl_plan_choice dl_plan_default(const dl_plan_method *method, uint32_t layers,
                               uint32_t fragment_layers)
{
    dl_plan_choice c = {.sync_every = method->sync_every,
                        .fragments = method->fragments,
                        .tau = method->delayed ? method->sync_every : method->tau,
                        .bits = dl_plan_codec_find(method->codec)->bits};
    if (!c.fragments) c.fragments = (layers + fragment_layers - 1) / fragment_layers + 1;
    return c;
}
