/* members.c - reading the members' blocks, and measuring them (declared in scratch.h).
 *
 * Dot products are summed as PROTOCOL B3 has it within a part: a leaf of 1 MiB, cut where a
 * stretch ends if the rule tells tensors apart; parts are added in order. A leaf belongs to one
 * thread, so threads change no bit. Part number leaf + stretch is met once: going on, one of
 * the two grows. */
#include "base/file.h"
#include "combine/gram.h"
#include "outer/scratch.h"
#include "outer/tile.h"

#include <string.h>

/* What is mapped of members' files counts as this process's memory: about so many bytes of all. */
enum { MAPPED_MAX = 4 << 20 };

static bool are_let_go(size_t n_members, size_t at)
{
    const size_t blocks = MAPPED_MAX / (n_members * DL_BLOCK * sizeof(float));
    return (at / DL_BLOCK + 1) % dl_size_max(blocks, 1) == 0;
}

void dl_step_gather(const dl_outer_step_args *args, dl_step_room *room, const size_t *which,
                    size_t n_members, size_t at, size_t n)
{
    const dl_codec_form *form = args->form;
    const bool let_go = are_let_go(n_members, at);
    for (size_t k = 0; k < n_members; k++) {
        const dl_contribution_data *c = &args->members[which ? which[k] : k];
        const bool seen = form->codec->view && !c->mapped;
        const float *view = seen ? form->codec->view(c->payload, at) : NULL;
        float *own = room->decoded + k * DL_MEMBER_STRIDE;
        if (!view) form->codec->decode(form, own, c->payload, c->len, at, n);
        room->members[k] = view ? view : own;
        if (c->mapped && let_go) dl_map_let_go(c->mapped, c->mapped_len);
    }
}

/* norm2[k] of the sum of members by weights[k], for 1 <= k < n_sums; the sums are not kept. */
static inline DL_BODY void spread_body(double *norm2, const float *const *g,
                                       const float *const *weights, int n_sums, size_t n_members,
                                       size_t n)
{
    dl_tile_sums sums = {0};
    float sum[DL_TILE];
    for (size_t at = 0; at < n; at += DL_TILE) {
        size_t lanes = dl_size_min(DL_TILE, n - at);
        for (int k = 1; k < n_sums; k++) {
            dl_mean_body(sum, g, weights[k], n_members, at, lanes);
            dl_tile_norm2(sums.norm2[k], sum, lanes);
        }
    }
    dl_tile_fold_norms(&sums);
    for (int k = 1; k < n_sums; k++)
        norm2[k] = sums.norm2[k][0];
}
DL_KERNEL(spread,
          (double *norm2, const float *const *g, const float *const *weights, int n_sums,
           size_t n_members, size_t n),
          spread_body(norm2, g, weights, n_sums, n_members, n))

void dl_step_spread(double *norm2, const float *const *g, const float *const *weights, int n_sums,
                    size_t n_members, size_t n)
{
    dl_isa_call(spread)(norm2, g, weights, n_sums, n_members, n);
}

typedef struct measuring {
    const dl_outer_step_args *args;
    const dl_fragment_state *in;
    dl_outer_scratch *scratch;
    const dl_stretch *stretches; /* one, of all, where tensors are not told apart */
    size_t n_f32;
} measuring;

static double *partial(const measuring *m, size_t leaf, size_t stretch)
{
    const size_t n_rows = m->scratch->plan.n_rows;
    return m->scratch->partial + (leaf + stretch) * n_rows * n_rows;
}

/* The previous update is as long as what trains, and counts as 0 behind that. */
static void gather_previous(const measuring *m, dl_step_room *room, size_t at, size_t n)
{
    const size_t n_trained = m->args->manifest->fragments[m->args->fragment].n_trained;
    const size_t there = at < n_trained ? dl_size_min(n, n_trained - at) : 0;
    const float *previous = m->in->outer[m->args->outer->n_state - 1];
    if (there) memcpy(room->G, previous + at, there * sizeof *room->G);
    memset(room->G + there, 0, (n - there) * sizeof *room->G);
}

static void measure_block(const measuring *m, dl_step_room *room, size_t *stretch, size_t at,
                          size_t n)
{
    const size_t n_members = m->args->n_members, n_rows = m->scratch->plan.n_rows;
    dl_step_gather(m->args, room, NULL, n_members, at, n);
    if (n_rows > n_members) gather_previous(m, room, at, n);
    for (size_t from = at, end; from < at + n; from = end) {
        while (m->stretches[*stretch].end <= from)
            ++*stretch;
        end = dl_size_min(at + n, m->stretches[*stretch].end);
        double *sums = partial(m, from / DL_LEAF_FLOATS, *stretch);
        if (from % DL_LEAF_FLOATS == 0 || from == m->stretches[*stretch].begin)
            memset(sums, 0, n_rows * n_rows * sizeof *sums);
        for (size_t k = 0; k < n_members; k++)
            room->inputs[k] = room->members[k] + (from - at);
        room->inputs[n_members] = room->G + (from - at);
        dl_gram_block(sums, room->inputs, n_rows, end - from);
    }
}

static void measure_part(void *context, int part, int n_parts)
{
    const measuring *m = context;
    dl_step_room *room = &m->scratch->rooms[part];
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end, stretch = 0;
    dl_part_range(&begin, &end, m->n_f32, DL_LEAF_FLOATS, part, n_parts);
    for (; begin < end; begin += DL_BLOCK)
        measure_block(m, room, &stretch, begin, dl_size_min(DL_BLOCK, end - begin));
    dl_fp_leave(saved);
}

static void add_up(const measuring *m, size_t n_stretches)
{
    const size_t square = m->scratch->plan.n_rows * m->scratch->plan.n_rows;
    double *gram = m->scratch->plan.gram;
    memset(gram, 0, n_stretches * square * sizeof *gram);
    for (size_t at = 0, stretch = 0; at < m->n_f32;) {
        size_t leaf = at / DL_LEAF_FLOATS, end = m->stretches[stretch].end;
        const double *sums = partial(m, leaf, stretch);
        for (size_t k = 0; k < square; k++)
            gram[stretch * square + k] += sums[k];
        at = dl_size_min(end, (leaf + 1) * DL_LEAF_FLOATS);
        if (at == end) stretch++;
    }
}

void dl_step_measure(const dl_outer_step_args *args, const dl_fragment_state *in,
                     dl_outer_scratch *scratch, size_t n_f32, dl_pool *pool)
{
    const dl_stretch all = {.begin = 0, .end = n_f32};
    const size_t *first = scratch->first_stretch + args->fragment;
    bool by_tensor = scratch->plan.measure == DL_MEASURE_TENSORS;
    measuring m = {.args = args,
                   .in = in,
                   .scratch = scratch,
                   .stretches = by_tensor ? scratch->stretches + first[0] : &all,
                   .n_f32 = n_f32};
    dl_pool_run(pool, measure_part, &m);
    add_up(&m, by_tensor ? first[1] - first[0] : 1);
}
