/* trimmed_mean.c - coordinate-wise (Yin et al. 2018, arXiv:1803.01498): of the n values of an
 * element drop the k smallest and the k largest, then the mean of the rest. k = floor(trim n)
 * with trim as the decimal fraction that was written (SWM-18, D-19); it bears k hostile members. */
#include "combine/combine_rows.h"
#include "combine/sort.h"

/* ---- a few members: in registers ---------------------------------------------------------- */

/* The compiler knows the number of members and of dropped ones. So it leaves out the
 * exchanges that no kept value needs, and multiplies in place of dividing where it may. */
static inline DL_BODY void few_body(float *G, const float *const *x, size_t n_inputs, size_t drop,
                                    size_t n)
{
    const float *r0 = x[0], *r1 = x[1], *r2 = x[2], *r3 = x[n_inputs > 3 ? 3 : 0];
    const float *r4 = x[n_inputs > 4 ? 4 : 0], *r5 = x[n_inputs > 5 ? 5 : 0];
    const float *r6 = x[n_inputs > 6 ? 6 : 0], *r7 = x[n_inputs > 7 ? 7 : 0];
    const size_t end = n_inputs - drop;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float v[DL_SORT_FEW] = {r0[i], r1[i], r2[i], r3[i], r4[i], r5[i], r6[i], r7[i]};
        dl_sort_few(v, n_inputs);
        float sum = 0; /* 0 + -0 is 0, so the order of sorted zeros does not matter */
#define ADD(k) (void)(drop <= (k) && (k) < end ? (sum += v[k], 0) : 0)
        ADD(0), ADD(1), ADD(2), ADD(3), ADD(4), ADD(5), ADD(6), ADD(7);
#undef ADD
        G[i] = sum / (float)(n_inputs - 2 * drop);
    }
}

#define FEW(n_inputs, drop)                                                                        \
    DL_KERNEL(few_##n_inputs##_##drop, (float *G, const float *const *x, size_t n),                \
              few_body(G, x, n_inputs, drop, n))
/* clang-format off */
#define EACH_FEW(DO)                                                                               \
    DO(3, 1) DO(4, 1) DO(5, 1) DO(5, 2) DO(6, 1) DO(6, 2)                                          \
    DO(7, 1) DO(7, 2) DO(7, 3) DO(8, 1) DO(8, 2) DO(8, 3)
/* clang-format on */
EACH_FEW(FEW)

/* Numbers of members that are common have kernels of their own; false: this one has none. */
static bool middle_of_few(float *G, const float *const *x, size_t n_inputs, size_t drop, size_t n)
{
#define IS(n_inputs_, drop_)                                                                       \
    if (n_inputs == n_inputs_ && drop == drop_) {                                                  \
        dl_isa_call(few_##n_inputs_##_##drop_)(G, x, n);                                           \
        return true;                                                                               \
    }
    EACH_FEW(IS)
#undef IS
    return false;
}

/* ---- any number: a tile of rows in memory -------------------------------------------------- */

/* The room holds one tile: DL_SORT_LANES elements of each input. */
static inline DL_BODY void many_body(float *G, const float *const *x, size_t n_inputs, size_t drop,
                                     float *room, size_t n)
{
    float mean[DL_SORT_LANES];
    for (size_t at = 0; at < n; at += DL_SORT_LANES) {
        size_t lanes = dl_size_min(DL_SORT_LANES, n - at);
        dl_sort_load(room, x, n_inputs, at, lanes);
        dl_sort_tile(room, n_inputs);
        dl_sort_mean(mean, room, drop, n_inputs - 2 * drop);
        for (size_t l = 0; l < lanes; l++)
            G[at + l] = mean[l];
    }
}
DL_KERNEL(many,
          (float *G, const float *const *x, size_t n_inputs, size_t drop, float *room, size_t n),
          many_body(G, x, n_inputs, drop, room, n))

void dl_middle_mean(float *G, const float *const *x, size_t n_inputs, size_t drop, float *room,
                    size_t n)
{
    if (!middle_of_few(G, x, n_inputs, drop, n)) dl_isa_call(many)(G, x, n_inputs, drop, room, n);
}

/* ---- the row ------------------------------------------------------------------------------- */

/* floor(trim n): at most 2^30 * 2^12. */
static size_t trimmed(const dl_combine_rule *rule, size_t n)
{
    return (size_t)(rule->trim * n / 1000000000);
}

/* The fewest members with one trimmed at either end and one left. */
static size_t needed(const dl_combine_rule *rule)
{
    return rule->trim ? (size_t)((1000000000 + rule->trim - 1) / rule->trim) : 1;
}

static void elements(float *G, const float *const *x, size_t n_inputs, const dl_combine_rule *rule,
                     float *room, size_t n)
{
    dl_middle_mean(G, x, n_inputs, trimmed(rule, n_inputs), room, n);
}

const dl_combiner dl_combiner_trimmed_mean = {
    .name = "trimmed_mean",
    .summary = "each element's mean without the smallest and largest values",
    .options = {DL_COMBINE_OPTION("trim"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .by_itself = true,
    .needed = needed,
    .tolerated = trimmed,
    .elements = elements,
};
