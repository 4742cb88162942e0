/* outer_step.c - one walk over memory.
 *
 * Threads share the f32 array by leaves of 1 MiB; a leaf is walked in blocks of 4096
 * elements (16 KiB), and everything that concerns a block is done while it is in cache.
 *
 *  1. What a block gives depends on its inputs alone; what is summed over blocks goes to a
 *     slot per block and is added in index order afterwards. So threads change no bit.
 *  2. A leaf belongs to one thread; its hash goes to its slot.
 *  3. A block is read (theta, outer vectors, payloads) before it is written, so out may be in.
 *  4. From the first block with a result that is not finite on, a thread adopts nothing, and
 *     the step fails. */
#include "combine/rows.h"
#include "outer/rows.h"
#include "outer/scratch.h"
#include "outer/state.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The sums of members over a fragment: G, of unit vectors, of the members as they are. One
 * member needs only the first; where all weigh the same G is the last one, scaled. */
enum sum { SUM_G, SUM_UNIT, SUM_PLAIN };

typedef struct step {
    dl_fragment_state *out;
    const dl_fragment_state *in;
    const dl_outer_step_args *args;
    dl_outer_scratch *scratch;
    dl_fragment_shape shape;
    size_t n_f32, n_local_f32;
    int n_sums; /* how many of the sums are taken: 1, 2 or 3 */
} step;

/* ---- one block */

static void gather(const step *s, dl_step_room *room, size_t at, size_t n)
{
    const dl_codec_form *form = s->args->form;
    for (size_t m = 0; m < s->args->n_members; m++) {
        const dl_contribution_data *c = &s->args->members[m];
        const float *view = form->codec->view ? form->codec->view(c->payload, at) : NULL;
        float *own = room->decoded + m * DL_MEMBER_STRIDE;
        if (!view) form->codec->decode(form, own, c->payload, c->len, at, n);
        room->members[m] = view ? view : own;
    }
}

/* Elements that one rule moves alike. */
typedef struct piece {
    size_t begin, end;
    const dl_outer *rule;
    const float *scalars;
    bool decay;
} piece;

static piece piece_of_stretch(const step *s, piece trained)
{
    const size_t *first = s->scratch->first_stretch + s->args->fragment;
    const dl_stretch *low = s->scratch->stretches + first[0];
    const dl_stretch *high = s->scratch->stretches + first[1];
    while (low < high) { /* the first stretch that ends behind trained.begin */
        const dl_stretch *middle = low + (high - low) / 2;
        if (middle->end > trained.begin)
            high = middle;
        else
            low = middle + 1;
    }
    trained.end = dl_size_min(trained.end, low->end);
    trained.decay = low->decay;
    return trained;
}

/* The longest piece from `begin` on that does not pass `end`. */
static piece piece_at(const step *s, size_t begin, size_t end)
{
    static const float one = 1; /* averaged: theta <- fma(-1, G, theta) */
    piece averaged = {begin, end, &dl_outer_sgd, &one, false};
    piece trained = {begin, dl_size_min(end, s->shape.n_trained), s->args->outer, s->args->scalars,
                     true};
    if (begin >= s->shape.n_trained) return averaged;
    return s->args->outer->needs_tensors ? piece_of_stretch(s, trained) : trained;
}

/* Vector 0 is theta; the others are the rule's. Notes the first element that is not finite. */
static void find_bad(const step *s, dl_step_room *room, piece p)
{
    for (int v = 0; v <= p.rule->n_state; v++) {
        const float *x = v == 0 ? s->out->theta : s->out->outer[v - 1];
        size_t bad = p.begin + dl_first_bad(x + p.begin, p.end - p.begin, FLT_MAX);
        if (bad == p.end || bad >= room->bad) continue;
        room->bad = bad;
        room->bad_vector = v;
    }
}

/* Step one piece with G from the members, or, with n_members 0, with g[0] as G; norm2 becomes
 * what the rule measured of the sums of members. */
static void step_piece(const step *s, dl_step_room *room, piece p, const float *const *g,
                       size_t n_members, double *norm2)
{
    dl_outer_block b = {.theta_out = s->out->theta + p.begin,
                        .theta = s->in->theta + p.begin,
                        .g = g,
                        .weights = {s->args->weight, s->scratch->unit, s->scratch->ones},
                        .n_sums = s->n_sums,
                        .n_members = n_members,
                        .n = p.end - p.begin,
                        .scalars = p.scalars,
                        .decay = p.decay,
                        .hash = s->args->no_digest ? NULL : room->hash};
    for (int k = 0; k < p.rule->n_state; k++) {
        b.state_out[k] = s->out->outer[k] + p.begin;
        b.state[k] = s->in->outer[k] + p.begin;
    }
    p.rule->block(&b);
    if (b.bad) find_bad(s, room, p);
    if (norm2) memcpy(norm2, b.norm2, sizeof b.norm2);
}

/* The sums of members one by one, G last, which stays in room->G. */
static void combine(const step *s, dl_step_room *room, size_t n, double *norm2)
{
    const float *weights[] = {NULL, s->scratch->unit, s->scratch->ones};
    for (int k = s->n_sums - 1; k > 0; k--) {
        dl_combiner_mean.block(room->G, room->members, weights[k], s->args->n_members, n);
        norm2[k] = dl_block_norm2(room->G, n);
    }
    s->args->combiner->block(room->G, room->members, s->args->weight, s->args->n_members, n);
    norm2[0] = dl_block_norm2(room->G, n);
}

/* A block that is one piece, nearly every one, is combined and stepped in one loop; else G is
 * laid down first. Both give the same bits. */
static void step_block(const step *s, dl_step_room *room, size_t at, size_t n)
{
    double norm2[DL_OUTER_MAX_SUMS];
    piece p = piece_at(s, at, at + n);
    if (p.end == at + n && s->args->combiner->linear) {
        step_piece(s, room, p, room->members, s->args->n_members, norm2);
    } else {
        combine(s, room, n, norm2);
        for (size_t from = at; from < at + n; from = p.end) {
            const float *G = room->G + (from - at);
            p = piece_at(s, from, at + n);
            step_piece(s, room, p, &G, 0, NULL);
        }
    }
    for (int k = 0; k < s->n_sums; k++)
        s->scratch->sums[k][at / DL_BLOCK] = norm2[k];
}

static void adopt(const step *s, size_t at, size_t n)
{
    const dl_local_tensor *low = s->args->local, *end = low + s->n_local_f32;
    for (const dl_local_tensor *high = end; low < high;) { /* the first that ends behind at */
        const dl_local_tensor *middle = low + (high - low) / 2;
        if (middle->begin + middle->count > at)
            high = middle;
        else
            low = middle + 1;
    }
    for (; low < end && low->begin < at + n; low++) {
        size_t from = dl_size_max(low->begin, at);
        size_t to = dl_size_min(low->begin + low->count, at + n);
        dl_adopt((float *)low->data + (from - low->begin), s->out->theta + from, s->args->local_mix,
                 to - from);
    }
}

static void walk_block(const step *s, dl_step_room *room, size_t at, size_t n)
{
    gather(s, room, at, n);
    step_block(s, room, at, n);
    if (s->args->local && room->bad >= at + n) adopt(s, at, n);
}

/* ---- one thread */

static void walk_leaf(const step *s, dl_step_room *room, size_t begin, size_t end)
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
    const step *s = context;
    dl_step_room *room = &s->scratch->rooms[part];
    dl_fp_state saved = dl_fp_enter(); /* every thread has its own control word */
    size_t begin, end;
    room->bad = SIZE_MAX;
    dl_part_range(&begin, &end, s->n_f32, DL_LEAF_FLOATS, part, n_parts);
    for (; begin < end; begin += DL_LEAF_FLOATS)
        walk_leaf(s, room, begin, dl_size_min(end, begin + DL_LEAF_FLOATS));
    dl_fp_leave(saved);
}

static diloco_status first_bad(const step *s, int n_rooms)
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

/* ---- what is not f32: small, on the caller */

static int64_t rounded_mean(const dl_outer_step_args *args, size_t i, uint64_t total)
{
    __int128 sum = 0; /* at most 2^63 (the raw weights' sum) * 2^63 in size */
    for (size_t m = 0; m < args->n_members; m++) {
        int64_t x;
        memcpy(&x, args->members[m].integers + i * sizeof x, sizeof x);
        sum += (__int128)x * args->raw[m];
    }
    DL_ASSERT(total > 0); /* dl_weights, and whoever reads an entry, saw to it */
    __int128 mean = sum / total, rest = sum % total;
    if (rest < 0) mean--, rest += total; /* now the mean is rounded down */
    return (int64_t)(rest >= total - rest ? mean + 1 : mean);
}

static uint8_t majority(const dl_outer_step_args *args, size_t i, uint64_t total)
{
    uint64_t yes = 0;
    for (size_t m = 0; m < args->n_members; m++)
        if (args->members[m].booleans[i]) yes += args->raw[m];
    return yes >= total - yes;
}

static void discrete(const step *s)
{
    const dl_outer_step_args *args = s->args;
    uint64_t total = 0;
    for (size_t m = 0; m < args->n_members; m++)
        total += args->raw[m];
    for (size_t i = 0; i < s->shape.n_integers; i++)
        s->out->integers[i] = rounded_mean(args, i, total);
    for (size_t i = 0; i < s->shape.n_booleans; i++)
        s->out->booleans[i] = majority(args, i, total);

    for (size_t k = s->n_local_f32; k < args->n_local && args->local_mix != 1; k++) {
        const dl_local_tensor *t = &args->local[k];
        if (t->region == DL_INTEGERS)
            memcpy(t->data, s->out->integers + t->begin, t->count * sizeof(int64_t));
        else
            memcpy(t->data, s->out->booleans + t->begin, t->count);
    }
}

/* ---- the facts */

/* Weights of the sum of unit vectors, times the smallest norm so that none overflows, which
 * is returned: 0 when every member is zero. */
static double unit_weights(const step *s)
{
    double smallest = 0;
    for (size_t m = 0; m < s->args->n_members; m++) {
        double norm = sqrt(s->args->members[m].norm2);
        if (norm > 0 && (smallest == 0 || norm < smallest)) smallest = norm;
    }
    for (size_t m = 0; m < s->args->n_members; m++) {
        double norm = sqrt(s->args->members[m].norm2);
        s->scratch->unit[m] = norm > 0 ? (float)(smallest / norm) : 0;
        s->scratch->ones[m] = 1;
    }
    return smallest;
}

static double total(const step *s, enum sum which)
{
    double sum = 0;
    for (size_t block = 0; block * DL_BLOCK < s->n_f32; block++)
        sum += s->scratch->sums[which][block];
    return sum;
}

static double pow2(double x)
{
    return x * x;
}

/* With u_m = g_m / ||g_m||: ||sum u||^2 = M + sum over pairs of their cosines. With the plain
 * mean a: mean ||g_m - a||^2 = mean ||g_m||^2 - ||a||^2. */
static void find_spread(const step *s, double smallest, dl_outer_step_facts *facts)
{
    double M = (double)s->args->n_members, n_moved = 0, norm2 = 0;
    for (size_t m = 0; m < s->args->n_members; m++) {
        norm2 += s->args->members[m].norm2 / M;
        n_moved += s->args->members[m].norm2 > 0;
    }
    double plain =
        s->n_sums > SUM_PLAIN ? total(s, SUM_PLAIN) : total(s, SUM_G) / pow2(s->args->weight[0]);
    double units = smallest > 0 ? total(s, SUM_UNIT) / (smallest * smallest) : 0;
    double cosines = (units - n_moved) / (M * (M - 1));
    facts->similarity = fmax(-1, fmin(1, cosines));
    facts->divergence = sqrt(fmax(0, norm2 - plain / (M * M)));
}

/* ---- the step */

/* Local tensors are in fragment order; how many of them are f32? */
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

static int count_sums(const dl_outer_step_args *args)
{
    bool even = args->combiner->linear;
    for (size_t m = 1; m < args->n_members; m++)
        even = even && args->weight[m] == args->weight[0];
    return args->n_members == 1 ? 1 : even ? 2 : 3;
}

static void finish_digest(const step *s)
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

diloco_status dl_outer_step(dl_fragment_state *out, const dl_fragment_state *in,
                            const dl_outer_step_args *args, dl_outer_step_facts *facts,
                            dl_outer_scratch *scratch, dl_pool *pool)
{
    int n_threads = dl_pool_size(pool);
    step s = {.out = out, .in = in, .args = args, .scratch = scratch};
    DL_ASSERT(args->n_members >= 1 && args->n_members >= args->combiner->min_members);
    DL_ASSERT(args->n_members <= scratch->max_members && n_threads <= scratch->n_threads);
    DL_ASSERT(args->fragment >= 0 && args->fragment < args->manifest->n_fragments);
    s.shape = args->manifest->fragments[args->fragment];
    s.n_f32 = s.shape.n_trained + s.shape.n_averaged;
    s.n_local_f32 = count_local_f32(args);
    s.n_sums = count_sums(args);

    double smallest = unit_weights(&s);
    dl_pool_run(pool, walk_part, &s);
    DL_TRY(first_bad(&s, n_threads));
    discrete(&s);
    out->n_commits = in->n_commits + 1;
    finish_digest(&s);

    *facts = (dl_outer_step_facts){sqrt(total(&s, SUM_G)), NAN, 0};
    if (s.n_sums > 1) find_spread(&s, smallest, facts);
    return DILOCO_OK;
}
