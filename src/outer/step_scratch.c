/* step_scratch.c - memory of the outer step. Sizes are those of the largest fragment; pages that
 * a step does not touch (decode buffers of a codec with views) cost nothing. */
#include "outer/step_scratch.h"

#include "outer/outer_tile.h"

#include <stdlib.h>

/* RDA takes the plain mean of embeddings, and of tensors that no optimizer moves. */
static bool takes_mean(const dl_manifest_tensor *t)
{
    return t->region != DL_TRAINED || dl_manifest_is_embedding(t);
}

/* The f32 tensors of one fragment, trained then averaged, as runs that are treated alike; count
 * them, and write them where `out` is not NULL. They are in this order, without gaps. */
static size_t make_stretches(dl_stretch *out, const dl_manifest *manifest, int fragment,
                             bool by_tensor)
{
    size_t n = 0;
    dl_stretch last = {0};
    for (int region = DL_TRAINED; region <= DL_AVERAGED; region++)
        for (size_t i = 0; i < manifest->n_tensors; i++) {
            const dl_manifest_tensor *t = &manifest->tensors[i];
            if (t->fragment != fragment || (int)t->region != region || t->count == 0) continue;
            bool decay = t->n_dims >= 2 && region == DL_TRAINED;
            if (n == 0 || by_tensor || decay != last.decay) {
                last = (dl_stretch){.begin = t->offset, .decay = decay, .plain = takes_mean(t)};
                n++;
            }
            last.end = t->offset + t->count;
            if (out) out[n - 1] = last;
        }
    return n;
}

/* A member's block, and a gap, so that members do not share their cache sets. A small fragment has
 * no whole block: a page for each of a thousand members of it would be almost empty. */
static size_t member_stride(size_t n_f32)
{
    return dl_size_min(dl_size_round_up(n_f32, DL_TILE), DL_BLOCK) + 16;
}

/* Lays out the memory that a rule other than a weighted mean needs. A product that overflows
 * becomes SIZE_MAX, which the arena refuses. */
static void layout_rule(dl_outer_scratch *s, size_t n_f32, size_t most_stretches, dl_arena *arena)
{
    const dl_combiner *combiner = s->rule.combiner;
    bool mixes = s->rule.mixing != DL_MIX_NONE, elements = combiner->elements != NULL;
    size_t n = s->max_members, stride = member_stride(n_f32), n_parts = 0, square;
    if (mixes || combiner->measure || s->rule.checked)
        n_parts = n_f32 / DL_LEAF_FLOATS + 1 + most_stretches + s->rule.most_slices;
    if (!dl_size_mul(&square, n + 1, n + 1)) square = SIZE_MAX;
    if (!dl_size_mul(&n_parts, n_parts, square)) n_parts = SIZE_MAX;
    for (int t = 0; t < s->n_threads; t++) {
        dl_step_room room = s->rooms ? s->rooms[t] : (dl_step_room){0};
        room.mixed = DL_ARENA_ARRAY(arena, float, mixes &&elements ? n *stride : 0);
        room.inputs = DL_ARENA_ARRAY(arena, const float *, n + 1);
        room.sort = DL_ARENA_ARRAY(arena, float, elements ? dl_sort_room(n) : 0);
        if (s->rooms) s->rooms[t] = room;
    }
    s->norm2 = DL_ARENA_ARRAY(arena, double, n);
    s->plain = DL_ARENA_ARRAY(arena, bool, most_stretches);
    s->n_partial = n_parts;
    s->partial = DL_ARENA_ARRAY(arena, double, n_parts);
    dl_combine_plan_layout(&s->plan, arena, &s->rule, n, most_stretches);
}

/* Runs twice: on an arena without memory, which only counts bytes, and on the real one. s->rooms is
 * NULL in the first run. */
static void layout(dl_outer_scratch *s, const dl_manifest *manifest, dl_arena *arena)
{
    size_t n_f32 = 0, n_stretches = 0, most_stretches = 1;
    bool by_tensor = s->rule.combiner->measure == DL_MEASURE_TENSORS;
    for (int f = 0; f < manifest->n_fragments; f++) {
        const dl_fragment_shape *shape = &manifest->fragments[f];
        n_f32 = dl_size_max(n_f32, shape->n_trained + shape->n_averaged);
        size_t n = make_stretches(NULL, manifest, f, by_tensor);
        n_stretches += n;
        most_stretches = dl_size_max(most_stretches, n);
    }
    s->rooms = DL_ARENA_ARRAY(arena, dl_step_room, (size_t)s->n_threads);
    s->stretches = DL_ARENA_ARRAY(arena, dl_stretch, n_stretches);
    s->first_stretch = DL_ARENA_ARRAY(arena, size_t, (size_t)manifest->n_fragments + 1);
    s->of_steps = arena->used;
    for (int t = 0; t < s->n_threads; t++) {
        dl_step_room room = {0};
        room.G = DL_ARENA_ARRAY(arena, float, DL_BLOCK);
        room.stride = member_stride(n_f32);
        room.decoded = DL_ARENA_ARRAY(arena, float, s->max_members *room.stride);
        room.members = DL_ARENA_ARRAY(arena, const float *, s->max_members);
        if (s->rooms) s->rooms[t] = room;
    }
    for (int k = 0; k < DL_OUTER_MAX_SUMS; k++)
        s->sums[k] = DL_ARENA_ARRAY(arena, double, n_f32 / DL_BLOCK + 1);
    s->own_dots = DL_ARENA_ARRAY(arena, double, n_f32 / DL_BLOCK + 1);
    for (int v = 0; v < DL_STEP_VECTORS; v++)
        s->leaves[v] = DL_ARENA_ARRAY(arena, dl_hash, n_f32 / DL_LEAF_FLOATS + 1);
    s->unit = DL_ARENA_ARRAY(arena, float, s->max_members);
    s->ones = DL_ARENA_ARRAY(arena, float, s->max_members);
    layout_rule(s, n_f32, most_stretches, arena);
}

enum { KEPT_MAX = 16 << 20 }; /* bytes; to get fewer back costs more than they are worth */

static void let_go(const dl_outer_scratch *s, void *data, size_t n)
{
    if (s->arena.mapped && n > KEPT_MAX) dl_arena_let_go(data, n);
}

/* The matrices of a thousand members are tens of megabytes, and of no use while a round trains. */
void dl_step_let_go(dl_outer_scratch *s)
{
    let_go(s, s->arena.base + s->of_steps, s->arena.used - s->of_steps);
}

void dl_step_let_go_of_parts(dl_outer_scratch *s)
{
    let_go(s, s->partial, s->n_partial * sizeof *s->partial);
}

size_t dl_outer_scratch_bytes(const dl_manifest *manifest, const dl_combine_rule *rule,
                              size_t max_members, int n_threads)
{
    dl_arena measure = {0};
    dl_outer_scratch s = {.rule = *rule, .max_members = max_members, .n_threads = n_threads};
    layout(&s, manifest, &measure);
    return measure.used;
}

diloco_status dl_outer_scratch_create(dl_outer_scratch **out, const dl_manifest *manifest,
                                      const dl_combine_rule *rule, size_t max_members,
                                      int n_threads)
{
    *out = NULL;
    if (max_members == 0 || max_members > DL_MAX_MEMBERS || n_threads < 1)
        return dl_fail(DILOCO_EINVAL, "an outer step has 1 to %d members and a thread, not %zu, %d",
                       DL_MAX_MEMBERS, max_members, n_threads);
    dl_outer_scratch *s = calloc(1, sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for the outer step");
    s->max_members = max_members;
    s->n_threads = n_threads;
    s->rule = *rule;

    dl_arena measure = {0};
    layout(s, manifest, &measure);
    diloco_status status = dl_arena_init(&s->arena, measure.used);
    if (status) {
        free(s);
        return status;
    }
    layout(s, manifest, &s->arena);
    for (int f = 0; f < manifest->n_fragments; f++)
        s->first_stretch[f + 1] =
            s->first_stretch[f] + make_stretches(s->stretches + s->first_stretch[f], manifest, f,
                                                 rule->combiner->measure == DL_MEASURE_TENSORS);
    *out = s;
    return DILOCO_OK;
}

static void layout_whole(dl_outer_scratch *s, const dl_manifest *manifest, const dl_outer *outer,
                         dl_arena *arena)
{
    size_t n_f32 = 0, n_integers = 0, n_booleans = 0;
    for (int f = 0; f < manifest->n_fragments; f++) {
        const dl_fragment_shape *shape = &manifest->fragments[f];
        n_f32 = dl_size_max(n_f32, shape->n_trained + shape->n_averaged);
        n_integers = dl_size_max(n_integers, shape->n_integers);
        n_booleans = dl_size_max(n_booleans, shape->n_booleans);
    }
    s->whole.g = DL_ARENA_ARRAY(arena, float, n_f32);
    s->whole.integers = dl_arena_take_array(arena, n_integers, sizeof(int64_t));
    s->whole.booleans = DL_ARENA_ARRAY(arena, unsigned char, n_booleans);
    if (outer->room) s->room = dl_arena_take(arena, outer->room(manifest, s->n_threads));
}

size_t dl_outer_whole_bytes(const dl_manifest *manifest, const dl_outer *outer, int n_threads)
{
    dl_arena measure = {0};
    dl_outer_scratch s = {.n_threads = n_threads};
    if (outer->whole) layout_whole(&s, manifest, outer, &measure);
    return measure.used;
}

diloco_status dl_outer_scratch_reserve(dl_outer_scratch *scratch, const dl_manifest *manifest,
                                       const dl_outer *outer)
{
    if (!outer->whole || scratch->whole.g) return DILOCO_OK;
    DL_TRY(dl_arena_init(&scratch->whole_arena,
                         dl_outer_whole_bytes(manifest, outer, scratch->n_threads)));
    layout_whole(scratch, manifest, outer, &scratch->whole_arena);
    return DILOCO_OK;
}

void dl_outer_scratch_destroy(dl_outer_scratch *scratch)
{
    if (!scratch) return;
    dl_arena_deinit(&scratch->arena);
    dl_arena_deinit(&scratch->whole_arena);
    free(scratch);
}
