/* outer_step.c - one walk over memory; two where the combiner measures the members first.
 *
 * Threads share the f32 array by leaves of 1 MiB. A leaf is walked in blocks of 4096 elements (16
 * KiB), and all work on a block is done while it is in cache.
 *
 *  1. A block's results depend on its inputs alone; sums over blocks have a slot per block and are
 *     added in index order afterwards. So threads change no bit.
 *  2. A leaf belongs to one thread; its hash goes to its slot.
 *  3. A block is read (theta, outer vectors, payloads) before it is written, so out may be in.
 *  4. A combined update (dl_outer_combine) is what is in room->G between the two halves of a
 *     block, so a step with one gives the same bits.
 *  5. An optimizer that steps whole fragments does so between the two halves, and the second one
 *     finds theta and the vectors done: it adopts, looks and hashes.
 *  6. From the first strip with a result that is not finite on, a thread adopts nothing, and
 *     the step fails.
 *  7. Elements that are adopted unchanged are written strip by strip, in the step's own loop, if
 *     one local tensor takes all of the block; the rest after the block. */
#include "outer/outer_step.h"

#include "combine/mean.h"
#include "outer/fragment_state.h"
#include "outer/outer_rows.h"
#include "outer/outer_step_parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- one block */

/* Elements that one rule moves alike, from members combined alike. */
typedef struct piece {
    size_t begin, end;
    const dl_outer *rule;
    const float *scalars;
    bool decay;
    const float *coef; /* of the members used */
} piece;

static piece piece_of_stretch(const dl_outer_walk *s, piece p)
{
    const size_t *first = s->scratch->first_stretch + s->args->fragment;
    const dl_stretch *stretches = s->scratch->stretches + first[0], *low = stretches;
    const dl_stretch *high = s->scratch->stretches + first[1];
    while (low < high) { /* the first stretch that ends after p.begin */
        const dl_stretch *middle = low + (high - low) / 2;
        if (middle->end > p.begin)
            high = middle;
        else
            low = middle + 1;
    }
    p.end = dl_size_min(p.end, low->end);
    p.decay = low->decay;
    if (s->by_tensor) p.coef += (size_t)(low - stretches) * s->plan->n_used;
    return p;
}

/* The longest piece from `begin` on that does not pass `end`. */
static piece piece_at(const dl_outer_walk *s, size_t begin, size_t end)
{
    static const float one = 1; /* averaged: theta <- fma(-1, G, theta) */
    bool trained = begin < s->shape.n_trained;
    piece p = {begin, end, &dl_outer_sgd, &one, false, s->plan->averaged_coef};
    if (trained)
        p = (piece){begin,          dl_size_min(end, s->shape.n_trained),
                    s->args->outer, s->args->scalars,
                    true,           s->plan->coef};
    bool cut = s->by_tensor || (trained && s->args->outer->needs_tensors);
    return cut ? piece_of_stretch(s, p) : p;
}

/* Vector 0 is theta; the others are the rule's. Notes the first element that is not finite. */
static void find_bad(const dl_outer_walk *s, dl_step_room *room, piece p)
{
    for (int v = 0; v <= p.rule->n_state; v++) {
        const float *x = v == 0 ? s->out->theta : s->out->outer[v - 1];
        size_t bad = p.begin + dl_first_bad(x + p.begin, p.end - p.begin, FLT_MAX);
        if (bad == p.end || bad >= room->bad) continue;
        room->bad = bad;
        room->bad_vector = v;
    }
}

/* Copies G to the last state vector: the combiner reads it in the next step. */
static void keep(const dl_outer_block *b, int n_state)
{
    memcpy(b->state_out[n_state - 1], b->g[0], b->n * sizeof(float));
    if (b->hash) dl_leaf_add(&b->hash[n_state], b->state_out[n_state - 1], b->n * sizeof(float));
}

/* The first local tensor that ends after `at`. */
static const dl_local_tensor *local_at(const dl_outer_walk *s, size_t at)
{
    const dl_local_tensor *low = s->args->local;
    for (const dl_local_tensor *high = low + s->n_local_f32; low < high;) {
        const dl_local_tensor *middle = low + (high - low) / 2;
        if (middle->begin + middle->count > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Returns the address to which all of a piece can be copied; NULL if adopt() has to do it. */
static float *adopter(const dl_outer_walk *s, const dl_step_room *room, piece p)
{
    if (!s->args->local || s->args->local_mix != 0 || room->bad != SIZE_MAX) return NULL;
    const dl_local_tensor *t = local_at(s, p.begin);
    if (t == s->args->local + s->n_local_f32 || t->begin > p.begin || t->begin + t->count < p.end)
        return NULL;
    return (float *)t->data + (p.begin - t->begin);
}

/* The measurements of a block. */
typedef struct block_sums {
    double norm2[DL_OUTER_MAX_SUMS], own_dot;
} block_sums;

/* The own member's elements in the block that is gathered; NULL: G is not combined from it. */
static const float *own_member(const dl_outer_walk *s, const dl_step_room *room)
{
    return s->own == SIZE_MAX ? NULL : room->members[s->own];
}

static void keep_sums(const dl_outer_walk *s, const block_sums *sums, size_t at)
{
    for (int k = 0; k < s->n_sums; k++)
        s->scratch->sums[k][at / DL_BLOCK] = sums->norm2[k];
    s->scratch->own_dots[at / DL_BLOCK] = sums->own_dot;
}

/* Steps one piece with G from the members, or with g[0] as G if n_members is 0. If sums is not
 * NULL, it receives what the rule measured. */
static void step_piece(const dl_outer_walk *s, dl_step_room *room, piece p, const float *const *g,
                       size_t n_members, block_sums *sums)
{
    dl_outer_block b = {.theta_out = s->out->theta + p.begin,
                        .theta = s->in->theta + p.begin,
                        .g = g,
                        .weights = {p.coef, s->scratch->unit, s->scratch->ones},
                        .n_sums = s->n_sums,
                        .own = n_members ? own_member(s, room) : NULL,
                        .n_members = n_members,
                        .n = p.end - p.begin,
                        .scalars = p.scalars,
                        .decay = p.decay,
                        .hash = s->args->no_digest ? NULL : room->hash,
                        .adopt = adopter(s, room, p)};
    for (int k = 0; k < p.rule->n_state; k++) {
        b.state_out[k] = s->out->outer[k] + p.begin;
        b.state[k] = s->in->outer[k] + p.begin;
    }
    p.rule->block(&b);
    if (p.rule->keeps) keep(&b, p.rule->n_state);
    if (b.bad) find_bad(s, room, p);
    if (b.adopt) room->n_adopted += b.n;
    if (!sums) return;
    memcpy(sums->norm2, b.norm2, sizeof b.norm2);
    sums->own_dot = b.own_dot;
}

/* By a combiner that sorts each element's values. */
static void combine_elements(const dl_outer_walk *s, dl_step_room *room, size_t n)
{
    const dl_combine_plan *plan = s->plan;
    const float *const *inputs = room->members;
    if (plan->mixed) {
        for (size_t i = 0; i < plan->n_inputs; i++) {
            float *input = room->mixed + i * room->stride;
            dl_weighted_sum(input, room->members, plan->coef + i * plan->n_used, plan->n_used, n);
            room->inputs[i] = input;
        }
        inputs = room->inputs;
    }
    plan->combiner->elements(room->G, inputs, plan->n_inputs, &plan->rule, room->sort, n);
    for (size_t i = 0; plan->scale != 1 && i < n; i++)
        room->G[i] *= plan->scale;
}

/* The previous update's share of a block. */
static void add_previous(const dl_outer_walk *s, float *G, size_t at, size_t n)
{
    const float *previous = s->in->outer[s->args->outer->n_state - 1];
    const size_t end = dl_size_min(at + n, s->shape.n_trained);
    if (at >= end) return;
    const float *const terms[] = {G, previous + at}, coef[] = {1, s->plan->previous_coef};
    dl_weighted_sum(G, terms, coef, 2, end - at);
}

/* By coefficients, which may change from tensor to tensor. */
static void combine_linear(const dl_outer_walk *s, dl_step_room *room, size_t at, size_t n)
{
    for (size_t from = at, end; from < at + n; from = end) {
        piece p = piece_at(s, from, at + n);
        end = p.end;
        for (size_t u = 0; u < s->plan->n_used; u++)
            room->inputs[u] = room->members[u] + (from - at);
        dl_weighted_sum(room->G + (from - at), room->inputs, p.coef, s->plan->n_used, end - from);
    }
    if (s->plan->combiner->keeps) add_previous(s, room->G, at, n);
}

/* Measures the sums of the members, and writes G to room->G. */
static void combine(const dl_outer_walk *s, dl_step_room *room, size_t at, size_t n,
                    block_sums *sums)
{
    const float *weights[] = {NULL, s->scratch->unit, s->scratch->ones};
    if (s->n_sums > 1)
        dl_step_spread(sums->norm2, room->members, weights, s->n_sums, s->args->n_members, n);
    if (s->plan->combiner->elements)
        combine_elements(s, room, n);
    else
        combine_linear(s, room, at, n);
    sums->norm2[0] = dl_block_norm2(room->G, n);
    const float *own = own_member(s, room);
    sums->own_dot = own ? dl_step_dot(room->G, own, n) : 0;
}

/* Steps a block whose G is complete. */
static void step_combined(const dl_outer_walk *s, dl_step_room *room, const float *G, size_t at,
                          size_t n)
{
    piece p;
    for (size_t from = at; from < at + n; from = p.end) {
        const float *g = G + (from - at);
        p = piece_at(s, from, at + n);
        step_piece(s, room, p, &g, 0, NULL);
    }
}

/* A block that is one piece, as nearly every block is, is combined and stepped in one loop. In
 * others G is written to room->G first. Both give the same bits. */
static void step_block(const dl_outer_walk *s, dl_step_room *room, size_t at, size_t n)
{
    block_sums sums;
    piece p = piece_at(s, at, at + n);
    if (p.end == at + n && !s->plan->combiner->elements && !s->args->outer->keeps) {
        step_piece(s, room, p, room->members, s->plan->n_used, &sums);
    } else {
        combine(s, room, at, n, &sums);
        step_combined(s, room, room->G, at, n);
    }
    keep_sums(s, &sums, at);
}

static void combine_block(const dl_outer_walk *s, dl_step_room *room, size_t at, size_t n)
{
    block_sums sums;
    combine(s, room, at, n, &sums);
    memcpy(s->combined->g + at, room->G, n * sizeof *room->G);
    keep_sums(s, &sums, at);
}

static void adopt(const dl_outer_walk *s, size_t at, size_t n)
{
    const dl_local_tensor *end = s->args->local + s->n_local_f32;
    for (const dl_local_tensor *t = local_at(s, at); t < end && t->begin < at + n; t++) {
        size_t from = dl_size_max(t->begin, at);
        size_t to = dl_size_min(t->begin + t->count, at + n);
        dl_adopt((float *)t->data + (from - t->begin), s->out->theta + from, s->args->local_mix,
                 to - from);
    }
}

static void walk_block(const dl_outer_walk *s, dl_step_room *room, size_t at, size_t n)
{
    room->n_adopted = 0;
    if (s->args->combined) {
        const float *G = s->args->combined->g + at;
        step_combined(s, room, G, at, n);
        s->scratch->sums[SUM_G][at / DL_BLOCK] = dl_block_norm2(G, n);
    } else {
        dl_step_gather(s->args, room, s->plan->used, s->plan->n_used, at, n);
        step_block(s, room, at, n);
    }
    if (s->args->local && room->n_adopted < n && room->bad >= at + n) adopt(s, at, n);
}

/* ---- one thread */

static void walk_leaf(const dl_outer_walk *s, dl_step_room *room, size_t begin, size_t end)
{
    for (int v = 0; v <= s->args->outer->n_state; v++)
        dl_leaf_begin(&room->hash[v]);
    for (size_t at = begin; at < end; at += DL_BLOCK)
        walk_block(s, room, at, dl_size_min(DL_BLOCK, end - at));
    for (int v = 0; v <= s->args->outer->n_state; v++)
        s->scratch->leaves[v][begin / DL_LEAF_FLOATS] = dl_leaf_end(&room->hash[v]);
}

static void walk_part(void *context, int part, int n_parts)
{
    const dl_outer_walk *s = context;
    dl_step_room *room = &s->scratch->rooms[part];
    dl_fp_state saved = dl_fp_enter(); /* every thread has its own control word */
    size_t begin, end;
    room->bad = SIZE_MAX;
    dl_part_range(&begin, &end, s->n_f32, DL_LEAF_FLOATS, part, n_parts);
    for (; begin < end; begin += DL_LEAF_FLOATS)
        walk_leaf(s, room, begin, dl_size_min(end, begin + DL_LEAF_FLOATS));
    dl_fp_leave(saved);
}

static void combine_part(void *context, int part, int n_parts)
{
    const dl_outer_walk *s = context;
    const size_t count = s->args->count ? s->args->count : s->n_f32;
    dl_step_room *room = &s->scratch->rooms[part];
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, count, s->args->count ? DL_BLOCK : DL_LEAF_FLOATS, part, n_parts);
    begin += s->args->first;
    end += s->args->first;
    for (; begin < end; begin += DL_BLOCK) {
        const size_t n = dl_size_min(DL_BLOCK, end - begin);
        dl_step_gather(s->args, room, s->plan->used, s->plan->n_used, begin, n);
        combine_block(s, room, begin, n);
    }
    dl_fp_leave(saved);
}

static diloco_status first_bad(const dl_outer_walk *s, int n_rooms)
{
    const dl_step_room *first = &s->scratch->rooms[0];
    for (int t = 1; t < n_rooms; t++)
        if (s->scratch->rooms[t].bad < first->bad) first = &s->scratch->rooms[t];
    if (first->bad == SIZE_MAX) return DILOCO_OK;

    size_t index;
    const dl_manifest_tensor *t =
        dl_manifest_locate(s->args->manifest, s->args->fragment, first->bad, &index);
    return dl_fail(DILOCO_ENUMERIC, "the outer step makes %s of tensor %s, element %zu, not finite",
                   first->bad_vector ? s->args->outer->state_names[first->bad_vector - 1] : "theta",
                   t->name, index);
}

/* ---- the step */

/* Checks that local tensors are in fragment order. Returns how many of them are f32. */
static size_t count_local_f32(const dl_outer_step_args *args)
{
    size_t n = 0;
    for (size_t k = 0; k < args->n_local; k++) {
        const dl_local_tensor *t = &args->local[k];
        if (k > 0) DL_ASSERT(t[-1].region <= t->region);
        if (k > 0 && t->region <= DL_AVERAGED) DL_ASSERT(t[-1].begin + t[-1].count <= t->begin);
        n += t->region <= DL_AVERAGED;
    }
    return n;
}

/* Returns a seed that no member can predict before every contribution is uploaded. */
static uint64_t bucket_seed(const dl_outer_walk *s)
{
    dl_digest_stream stream;
    uint64_t seed = 0;
    dl_digest_begin(&stream);
    dl_digest_add(&stream, s->in->digest.bytes, sizeof s->in->digest.bytes);
    dl_digest_add(&stream, s->scratch->norm2, s->args->n_members * sizeof(double));
    dl_hash hash = dl_digest_end(&stream);
    for (int k = 0; k < 8; k++)
        seed = seed << 8 | hash.bytes[k];
    return seed;
}

static void norm_part(void *context, int part, int n_parts)
{
    const dl_outer_walk *s = context;
    dl_step_room *room = &s->scratch->rooms[part];
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, s->n_f32, DL_LEAF_FLOATS, part, n_parts);
    for (; begin < end; begin += DL_BLOCK) {
        const size_t n = dl_size_min(DL_BLOCK, end - begin);
        dl_step_gather(s->args, room, s->plan->used, s->plan->n_used, begin, n);
        combine_elements(s, room, n);
        s->scratch->sums[SUM_G][begin / DL_BLOCK] = dl_block_norm2(room->G, n);
    }
    dl_fp_leave(saved);
}

/* A result that is combined by element has to be computed to know its norm: one more walk. */
static void rescale(dl_outer_walk *s, dl_pool *pool)
{
    dl_pool_run(pool, norm_part, s);
    dl_combine_plan_rescale(&s->scratch->plan, s->scratch->norm2,
                            dl_walk_total(s, s->scratch->sums[SUM_G]));
}

/* Chooses the members that count and their coefficients, after measuring them if the rule asks. */
static diloco_status make_plan(dl_outer_walk *s, dl_pool *pool)
{
    dl_outer_scratch *scratch = s->scratch;
    dl_combine_plan *plan = &scratch->plan;
    const size_t *first = scratch->first_stretch + s->args->fragment;
    dl_combine_measured measured = {
        .weight = s->args->weight, .norm2 = scratch->norm2, .n_parts = 1};
    DL_TRY(dl_combine_plan_begin(plan, &scratch->rule, s->args->n_members, s->args->n_rejected));
    s->plan = plan;
    s->by_tensor = plan->measure == DL_MEASURE_TENSORS;
    for (size_t m = 0; m < s->args->n_members; m++)
        scratch->norm2[m] = s->args->members[m].norm2;
    if (s->args->measured)
        dl_step_take_measured(s->args, scratch);
    else if (plan->measure)
        dl_step_measure(s->args, s->in, scratch, pool);
    if (s->by_tensor) {
        measured.n_parts = first[1] - first[0];
        measured.plain = scratch->plain;
        for (size_t k = 0; k < measured.n_parts; k++)
            scratch->plain[k] = scratch->stretches[first[0] + k].plain;
    }
    if (scratch->rule.mixing == DL_MIX_BUCKETING) measured.bucket_seed = bucket_seed(s);
    dl_combine_plan_finish(plan, &measured);
    s->n_sums = dl_walk_count_sums(plan);
    /* Of a slice alone the dot product is no fact of the step. */
    for (size_t u = 0; s->args->own && !s->args->count && u < plan->n_used; u++)
        if ((plan->used ? plan->used[u] : u) == s->args->own - 1) s->own = u;
    if (scratch->rule.rescale && plan->combiner->elements) rescale(s, pool);
    return DILOCO_OK;
}

static void finish_digest(const dl_outer_walk *s)
{
    dl_hash vectors[DL_STEP_VECTORS];
    int n_vectors = 1 + s->args->outer->n_state;
    for (int v = 0; v < n_vectors; v++) {
        size_t n = v == 0 ? s->n_f32 : s->shape.n_trained;
        vectors[v] =
            dl_digest_leaves(s->scratch->leaves[v], (n + DL_LEAF_FLOATS - 1) / DL_LEAF_FLOATS);
    }
    s->out->digest = s->args->no_digest
                         ? (dl_hash){{0}}
                         : dl_state_digest_from(vectors, n_vectors, s->out, s->shape);
}

static dl_outer_walk step_of(const dl_fragment_state *in, const dl_outer_step_args *args,
                             dl_outer_scratch *scratch)
{
    dl_outer_walk s = {.in = in, .args = args, .scratch = scratch, .plan = &scratch->plan};
    s.own = SIZE_MAX;
    DL_ASSERT(args->own <= args->n_members);
    DL_ASSERT(args->n_members >= 1 && args->n_members <= scratch->max_members);
    DL_ASSERT(args->fragment >= 0 && args->fragment < args->manifest->n_fragments);
    s.shape = args->manifest->fragments[args->fragment];
    s.n_f32 = s.shape.n_trained + s.shape.n_averaged;
    s.n_local_f32 = count_local_f32(args);
    return s;
}

dl_cutting dl_outer_cutting(const dl_combine_rule *rule)
{
    if (rule->combiner->elements && rule->rescale) return DL_CUT_NO;
    const bool alone = rule->combiner->by_itself && rule->mixing == DL_MIX_NONE;
    return alone ? DL_CUT_ALONE : DL_CUT_MEASURED;
}

/* Ignores that the rule may refuse few members: the call that combines them reports it. */
static void plan_measures(const dl_outer_step_args *args, dl_outer_scratch *scratch)
{
    (void)!dl_combine_plan_begin(&scratch->plan, &scratch->rule, args->n_members, args->n_rejected);
}

size_t dl_outer_n_measures(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice)
{
    plan_measures(args, scratch);
    return dl_step_n_measures(args, scratch, slice);
}

diloco_status dl_outer_measure(double *out, const dl_fragment_state *in,
                               const dl_outer_step_args *args, dl_outer_scratch *scratch,
                               dl_pool *pool)
{
    DL_ASSERT(args->n_members >= 1 && args->n_members <= scratch->max_members);
    DL_TRY(
        dl_combine_plan_begin(&scratch->plan, &scratch->rule, args->n_members, args->n_rejected));
    dl_step_measure_slice(out, args, in, scratch, pool);
    return DILOCO_OK;
}

/* For a step with a combined update: its norm is measured, and the members are not read. */
static void plan_nothing(dl_outer_walk *s)
{
    dl_combine_plan *plan = &s->scratch->plan;
    plan->combiner = s->scratch->rule.combiner;
    plan->fell_back = false;
    plan->tolerated = 0;
    s->n_sums = 1;
}

const double *dl_outer_gram(const dl_outer_step_args *args, dl_outer_scratch *scratch,
                            dl_pool *pool)
{
    DL_ASSERT(args->n_members >= 1 && args->n_members <= scratch->max_members);
    DL_ASSERT(scratch->rule.checked);
    dl_combine_plan_measure(&scratch->plan, &scratch->rule, args->n_members);
    dl_step_measure(args, NULL, scratch, pool);
    return dl_combine_plan_measured(&scratch->plan);
}

size_t dl_outer_n_compared(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice)
{
    dl_combine_plan_measure(&scratch->plan, &scratch->rule, args->n_members);
    return dl_step_n_measures(args, scratch, slice);
}

void dl_outer_compare(double *out, const dl_outer_step_args *args, dl_outer_scratch *scratch,
                      dl_pool *pool)
{
    DL_ASSERT(args->n_members >= 1 && args->n_members <= scratch->max_members);
    dl_combine_plan_measure(&scratch->plan, &scratch->rule, args->n_members);
    dl_step_measure_slice(out, args, NULL, scratch, pool);
}

const double *dl_outer_compared(const double **norm2, const dl_outer_step_args *args,
                                dl_outer_scratch *scratch)
{
    dl_combine_plan_measure(&scratch->plan, &scratch->rule, args->n_members);
    dl_step_take_measured(args, scratch);
    *norm2 = scratch->norm2;
    return scratch->rule.checked ? dl_combine_plan_measured(&scratch->plan) : NULL;
}

diloco_status dl_outer_combine(dl_combined *out, const dl_fragment_state *in,
                               const dl_outer_step_args *args, dl_outer_step_facts *facts,
                               dl_outer_scratch *scratch, dl_pool *pool)
{
    dl_outer_walk s = step_of(in, args, scratch);
    DL_ASSERT(!args->combined && dl_pool_size(pool) <= scratch->n_threads);
    s.combined = out;
    DL_TRY(make_plan(&s, pool));
    double smallest = dl_walk_unit_weights(&s);
    DL_ASSERT(args->first % DL_BLOCK == 0 && args->first + args->count <= s.n_f32);
    dl_pool_run(pool, combine_part, &s);
    if (args->first == 0) dl_walk_combine_discrete(&s, out->integers, out->booleans);
    dl_walk_facts(&s, smallest, facts);
    return DILOCO_OK;
}

static diloco_status step_by_blocks(dl_fragment_state *out, const dl_fragment_state *in,
                                    const dl_outer_step_args *args, dl_outer_step_facts *facts,
                                    dl_outer_scratch *scratch, dl_pool *pool)
{
    int n_threads = dl_pool_size(pool);
    dl_outer_walk s = step_of(in, args, scratch);
    DL_ASSERT(n_threads <= scratch->n_threads);
    s.out = out;
    double smallest = 0;
    if (args->combined) {
        plan_nothing(&s);
    } else {
        DL_TRY(make_plan(&s, pool));
        smallest = dl_walk_unit_weights(&s);
    }
    dl_pool_run(pool, walk_part, &s);
    DL_TRY(first_bad(&s, n_threads));
    dl_walk_discrete(&s);
    out->n_commits = in->n_commits + 1;
    finish_digest(&s);

    dl_walk_facts(&s, smallest, facts);
    return DILOCO_OK;
}

static diloco_status step(dl_fragment_state *out, const dl_fragment_state *in,
                          const dl_outer_step_args *args, dl_outer_step_facts *facts,
                          dl_outer_scratch *scratch, dl_pool *pool)
{
    dl_outer_step_args combined = *args;
    dl_outer_step_facts rest;
    if (!args->outer->whole) return step_by_blocks(out, in, args, facts, scratch, pool);
    DL_ASSERT(scratch->whole.g && dl_pool_size(pool) <= scratch->n_threads);
    if (!args->combined) { /* which measures more than a step with what others have combined */
        DL_TRY(dl_outer_combine(&scratch->whole, in, args, facts, scratch, pool));
        combined.combined = &scratch->whole;
    }
    DL_TRY(dl_walk_whole(out, in, &combined, scratch, pool));
    return step_by_blocks(out, in, &combined, args->combined ? facts : &rest, scratch, pool);
}

diloco_status dl_outer_step(dl_fragment_state *out, const dl_fragment_state *in,
                            const dl_outer_step_args *args, dl_outer_step_facts *facts,
                            dl_outer_scratch *scratch, dl_pool *pool)
{
    const diloco_status status = step(out, in, args, facts, scratch, pool);
    dl_step_let_go(scratch);
    return status;
}
