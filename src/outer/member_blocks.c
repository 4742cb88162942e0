/* member_blocks.c - reading the members' blocks, and measuring them (declared in step_scratch.h).
 *
 * Dot products are summed as in PROTOCOL B3 within a part. A part is a leaf of 1 MiB, cut at the
 * end of a slice (cut.h) and, if the rule treats tensors separately, of a stretch. Parts are added
 * in order within a slice, then slices. So the measurement of one slice has exactly the bits that
 * it adds to the whole. A leaf belongs to one thread, so threads change no bit either. Each part
 * has a number of its own, leaf + slice + stretch: from part to part one of the three grows. */
#include "base/file.h"
#include "combine/gram.h"
#include "outer/outer_tile.h"
#include "outer/step_scratch.h"

#include <string.h>

/* Mapped parts of members' files count as this process's memory: about this many bytes of all files
 * are mapped at once. */
enum { MAPPED_MAX = 4 << 20 };

/* Returns true for the block after which mapped pages are released. `at` is its first element. */
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
        float *own = room->decoded + k * room->stride;
        if (!view) form->codec->decode(form, own, c->payload, c->len, at, n);
        room->members[k] = view ? view : own;
        if (c->mapped && let_go) dl_map_let_go(c->mapped, c->mapped_len);
    }
}

/* Computes norm2[k] of the sum of members by weights[k], for 1 <= k < n_sums. A sum exists one tile
 * at a time. */
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

/* The lanes and the order of additions are those of dl_tile_fold_norms, so that both ways to
 * combine a block measure the same bits. */
static inline DL_BODY void own_dot_body(double *sum, const float *G, const float *member, size_t n)
{
    double lanes[DL_LANES] = {0};
    for (size_t at = 0; at < n; at += DL_TILE)
        dl_tile_dot(lanes, G + at, member + at, dl_size_min(DL_TILE, n - at));
    for (size_t stride = DL_LANES / 2; stride; stride /= 2)
        for (size_t l = 0; l < stride; l++)
            lanes[l] += lanes[l + stride];
    *sum = lanes[0];
}
DL_KERNEL(own_dot, (double *sum, const float *G, const float *member, size_t n),
          own_dot_body(sum, G, member, n))

double dl_step_dot(const float *G, const float *member, size_t n)
{
    double sum;
    dl_isa_call(own_dot)(&sum, G, member, n);
    return sum;
}

typedef struct measuring {
    const dl_outer_step_args *args;
    const dl_fragment_state *in;
    dl_outer_scratch *scratch;
    const dl_stretch *stretches; /* one, of all, where tensors are not treated separately */
    dl_stretch all;
    size_t n_stretches;
    size_t first, end; /* elements that are measured: all, or those of a slice */
} measuring;

/* Elements [begin, end) of one leaf, one slice and one stretch. */
typedef struct part {
    size_t begin, end, leaf, slice, stretch;
} part;

/* `in` may be NULL if the plan does not read the previous update, or if only part boundaries are
 * needed. */
static measuring begin_measuring(const dl_outer_step_args *args, const dl_fragment_state *in,
                                 dl_outer_scratch *scratch)
{
    const size_t n = args->form->n, *first = scratch->first_stretch + args->fragment;
    measuring m = {.args = args, .in = in, .scratch = scratch, .n_stretches = 1, .end = n};
    m.all = (dl_stretch){.begin = 0, .end = n};
    if (scratch->plan.measure == DL_MEASURE_TENSORS) {
        m.stretches = scratch->stretches + first[0];
        m.n_stretches = first[1] - first[0];
    }
    DL_ASSERT(args->form->slices <= dl_size_max(1, scratch->rule.most_slices));
    return m;
}

static const dl_stretch *stretch_at(const measuring *m, size_t i)
{
    return m->stretches ? &m->stretches[i] : &m->all;
}

static size_t end_of_slice(const measuring *m, size_t i)
{
    size_t first, end;
    dl_cut_range(&first, &end, m->args->form->n, m->args->form->slices, i);
    return end;
}

/* Moves *p to the part that begins at p->end. Returns false if p was the last one. */
static bool next_part(const measuring *m, part *p)
{
    p->begin = p->end;
    if (p->begin >= m->end) return false;
    while (stretch_at(m, p->stretch)->end <= p->begin)
        p->stretch++;
    while (end_of_slice(m, p->slice) <= p->begin)
        p->slice++;
    p->leaf = p->begin / DL_LEAF_FLOATS;
    p->end = dl_size_min(m->end, (p->leaf + 1) * DL_LEAF_FLOATS);
    p->end = dl_size_min(p->end, end_of_slice(m, p->slice));
    p->end = dl_size_min(p->end, stretch_at(m, p->stretch)->end);
    return true;
}

static size_t square(const measuring *m)
{
    return m->scratch->plan.n_rows * m->scratch->plan.n_rows;
}

/* Returns the matrix of dot products of part p: square(m) numbers. */
static double *partial(const measuring *m, const part *p)
{
    return m->scratch->partial + (p->leaf + p->slice + p->stretch) * square(m);
}

/* The previous update is as long as the trained region, and counts as 0 after it. */
static void gather_previous(const measuring *m, dl_step_room *room, size_t at, size_t n)
{
    const size_t n_trained = m->args->manifest->fragments[m->args->fragment].n_trained;
    const size_t there = at < n_trained ? dl_size_min(n, n_trained - at) : 0;
    const float *previous = m->in->outer[m->args->outer->n_state - 1];
    if (there) memcpy(room->G, previous + at, there * sizeof *room->G);
    memset(room->G + there, 0, (n - there) * sizeof *room->G);
}

/* Adds the dot products of elements [at, at + n) to their parts. The block may contain the ends of
 * several parts; p is the part that the previous block ended in. */
static void measure_block(const measuring *m, dl_step_room *room, part *p, size_t at, size_t n)
{
    const size_t n_members = m->args->n_members, n_rows = m->scratch->plan.n_rows;
    dl_step_gather(m->args, room, NULL, n_members, at, n);
    if (n_rows > n_members) gather_previous(m, room, at, n);
    for (size_t from = at, end; from < at + n; from = end) {
        const bool begins = from == p->end && next_part(m, p);
        double *sums = partial(m, p);
        if (begins) memset(sums, 0, square(m) * sizeof *sums);
        end = dl_size_min(at + n, p->end);
        for (size_t k = 0; k < n_members; k++)
            room->inputs[k] = room->members[k] + (from - at);
        room->inputs[n_members] = room->G + (from - at);
        dl_gram_block(sums, room->inputs, n_rows, end - from);
    }
}

static void measure_part(void *context, int thread, int n_threads)
{
    const measuring *m = context;
    dl_step_room *room = &m->scratch->rooms[thread];
    const size_t before = m->first / DL_LEAF_FLOATS * DL_LEAF_FLOATS; /* leaves are the array's */
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, m->end - before, DL_LEAF_FLOATS, thread, n_threads);
    begin = dl_size_max(before + begin, m->first);
    end += before;
    part p = {.end = begin};
    for (; begin < end; begin += DL_BLOCK)
        measure_block(m, room, &p, begin, dl_size_min(DL_BLOCK, end - begin));
    dl_fp_leave(saved);
}

/* Returns the sums over all parts of p's slice and stretch; p has to be the first of them. They
 * replace the first part's numbers. *p becomes the last of these parts. */
static const double *add_parts(const measuring *m, part *p)
{
    double *sums = partial(m, p);
    for (part next = *p; next_part(m, &next); *p = next) {
        if (next.slice != p->slice || next.stretch != p->stretch) break;
        const double *more = partial(m, &next);
        for (size_t k = 0; k < square(m); k++)
            sums[k] += more[k];
    }
    return sums;
}

void dl_step_measure(const dl_outer_step_args *args, const dl_fragment_state *in,
                     dl_outer_scratch *scratch, dl_pool *pool)
{
    measuring m = begin_measuring(args, in, scratch);
    DL_ASSERT(!args->count); /* a slice's own sums say nothing of the whole */
    dl_pool_run(pool, measure_part, &m);
    memset(scratch->plan.gram, 0, m.n_stretches * square(&m) * sizeof(double));
    for (part p = {.end = m.first}; next_part(&m, &p);) {
        double *gram = scratch->plan.gram + p.stretch * square(&m);
        const double *sums = add_parts(&m, &p);
        for (size_t k = 0; k < square(&m); k++)
            gram[k] += sums[k];
    }
    dl_step_let_go_of_parts(scratch);
}

/* ---- slice by slice: the members' norms, then the lower triangle for each stretch that the slice
 * has elements of ---- */

static double *put_triangle(double *out, const double *sums, size_t n_rows)
{
    for (size_t a = 0; a < n_rows; a++)
        for (size_t b = 0; b <= a; b++)
            *out++ = sums[a * n_rows + b];
    return out;
}

void dl_step_measure_slice(double *out, const dl_outer_step_args *args, const dl_fragment_state *in,
                           dl_outer_scratch *scratch, dl_pool *pool)
{
    measuring m = begin_measuring(args, in, scratch);
    m.first = args->first;
    m.end = args->first + args->count;
    for (size_t k = 0; k < args->n_members; k++)
        *out++ = args->members[k].norm2;
    if (!scratch->plan.measure) return;
    dl_pool_run(pool, measure_part, &m);
    for (part p = {.end = m.first}; next_part(&m, &p);)
        out = put_triangle(out, add_parts(&m, &p), scratch->plan.n_rows);
    dl_step_let_go_of_parts(scratch);
}

static const double *add_triangle(double *gram, const double *from, size_t n_rows)
{
    for (size_t a = 0; a < n_rows; a++)
        for (size_t b = 0; b <= a; b++)
            gram[a * n_rows + b] += *from++;
    return from;
}

size_t dl_step_n_measures(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice)
{
    measuring m = begin_measuring(args, NULL, scratch);
    const size_t rows = scratch->plan.n_rows, triangle = rows * (rows + 1) / 2;
    size_t n = args->n_members, last = SIZE_MAX;
    dl_cut_range(&m.first, &m.end, args->form->n, args->form->slices, slice);
    for (part p = {.end = m.first}; scratch->plan.measure && next_part(&m, &p);)
        if (p.stretch != last) n += triangle, last = p.stretch;
    return n;
}

/* Adds one slice's numbers to norm2 and gram, in the order in which dl_step_measure_slice wrote
 * them. Returns the position after them. */
static const double *take_slice(const measuring *m, const double *from)
{
    dl_outer_scratch *scratch = m->scratch;
    size_t last = SIZE_MAX;
    for (size_t k = 0; k < m->args->n_members; k++)
        scratch->norm2[k] += *from++;
    for (part p = {.end = m->first}; scratch->plan.measure && next_part(m, &p);) {
        if (p.stretch == last) continue;
        last = p.stretch;
        from = add_triangle(scratch->plan.gram + last * square(m), from, scratch->plan.n_rows);
    }
    return from;
}

void dl_step_take_measured(const dl_outer_step_args *args, dl_outer_scratch *scratch)
{
    measuring m = begin_measuring(args, NULL, scratch);
    const double *from = args->measured;
    memset(scratch->norm2, 0, args->n_members * sizeof *scratch->norm2);
    if (scratch->plan.measure)
        memset(scratch->plan.gram, 0, m.n_stretches * square(&m) * sizeof(double));
    for (size_t slice = 0; slice < args->form->slices; slice++) {
        dl_cut_range(&m.first, &m.end, args->form->n, args->form->slices, slice);
        from = take_slice(&m, from);
    }
}
