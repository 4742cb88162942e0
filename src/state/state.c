/* state.c - the memory of a state. One arena: the rosters, the table of fragments, then each
 * fragment's arrays, copy by copy. */
#include "state/state.h"

#include <string.h>

/* Lays out one copy of every fragment: theta, outer vectors, integers and booleans
 * (fragment_state.h). That of the only fragment has at least `len` bytes, which are adjacent. */
static void lay_out_copy(dl_state *state, dl_fragment_state **copy, size_t len)
{
    const dl_manifest *m = state->manifest;
    *copy = DL_ARENA_ARRAY(&state->arena, dl_fragment_state, (size_t)m->n_fragments);
    const size_t begin = state->arena.used;
    for (int f = 0; f < m->n_fragments; f++) {
        dl_fragment_state measured; /* without memory there is no table to write to */
        dl_state_layout(*copy ? &(*copy)[f] : &measured, &state->arena, m->fragments[f],
                        state->outer);
    }
    if (m->n_fragments != 1) return;
    const size_t used = state->arena.used - begin;
    (void)dl_arena_take(&state->arena, len > used ? len - used : 0);
    state->copy_len = state->arena.used - begin;
}

static void lay_out_roster(dl_arena *arena, dl_roster *roster, size_t max_members)
{
    roster->names = dl_arena_take_array(arena, max_members, sizeof *roster->names);
    roster->misses = DL_ARENA_ARRAY(arena, uint32_t, max_members);
    roster->cap = max_members;
}

/* Rosters and terms come first, then `now`, then `next`. A reader has no `next`, and needs half of
 * the memory. */
static void lay_out(dl_state *state, const dl_state_args *a)
{
    dl_control *c = &state->control;
    lay_out_roster(&state->arena, &c->roster, a->max_members);
    c->n_later = a->ahead - 1;
    c->later = DL_ARENA_ARRAY(&state->arena, dl_terms, c->n_later);
    for (size_t i = 0; i < c->n_later; i++) {
        dl_roster measured = {.n = 0}; /* without memory there is no table to write to */
        lay_out_roster(&state->arena, c->later ? &c->later[i].roster : &measured, a->max_members);
    }
    lay_out_copy(state, &state->now, a->copy_len);
    if (a->n_copies == 2) lay_out_copy(state, &state->next, a->copy_len);
}

static size_t measure(const dl_state_args *a)
{
    dl_state measured = {.manifest = a->manifest, .outer = a->outer};
    lay_out(&measured, a);
    return measured.arena.used;
}

size_t dl_state_bytes(const dl_manifest *manifest, const dl_outer *outer, int n_copies)
{
    const dl_state_args args = {
        .manifest = manifest, .outer = outer, .n_copies = n_copies, .ahead = 1};
    return measure(&args);
}

/* max_members bounds the rosters, which entries from other replicas fill. */
diloco_status dl_state_init_as(dl_state *out, const dl_state_args *a)
{
    DL_ASSERT((a->n_copies == 1 || a->n_copies == 2) && a->ahead > 0);
    *out = (dl_state){.manifest = a->manifest, .outer = a->outer, .on_disk = a->folder != NULL};
    const size_t size = measure(a);
    const diloco_status status =
        a->folder ? dl_arena_init_file(&out->arena, size, a->folder, "outer state")
                  : dl_arena_init(&out->arena, size);
    if (status) return dl_fail_context(status, "state of the run");
    lay_out(out, a);
    return DILOCO_OK;
}

diloco_status dl_state_init(dl_state *out, const dl_manifest *manifest, const dl_outer *outer,
                            size_t max_members, int n_copies, size_t ahead)
{
    const dl_state_args args = {.manifest = manifest,
                                .outer = outer,
                                .max_members = max_members,
                                .n_copies = n_copies,
                                .ahead = ahead};
    return dl_state_init_as(out, &args);
}

/* Only the float arrays are large enough to be worth it. */
static void put_out(const dl_fragment_state *copy, dl_fragment_shape shape, const dl_outer *outer)
{
    dl_arena_put_out(copy->theta, (shape.n_trained + shape.n_averaged) * sizeof(float));
    for (int k = 0; k < outer->n_state; k++)
        dl_arena_put_out(copy->outer[k], shape.n_trained * sizeof(float));
}

void dl_state_put_out(const dl_state *state, int f)
{
    if (!state->on_disk) return;
    put_out(&state->now[f], state->manifest->fragments[f], state->outer);
    if (state->next) put_out(&state->next[f], state->manifest->fragments[f], state->outer);
}

void dl_state_put_out_all(const dl_state *state)
{
    for (int f = 0; f < state->manifest->n_fragments; f++)
        dl_state_put_out(state, f);
}

void dl_state_deinit(dl_state *state)
{
    dl_ledger_destroy(state->control.ledger);
    dl_bans_destroy(state->control.bans);
    dl_arena_deinit(&state->arena);
    *state = (dl_state){0};
}

diloco_status dl_state_assign_data(dl_state *state, const dl_config *config,
                                   const dl_schedule *schedule, size_t max_members)
{
    DL_TRY(dl_bans_create(&state->control.bans, config, max_members));
    return dl_ledger_create(&state->control.ledger, config, schedule, max_members);
}

/* Pointers are exchanged, not arrays. The old state stays in `next` until the next entry is
 * computed there. */
void dl_state_swap(dl_state *state, int fragment)
{
    dl_fragment_state *now = &state->now[fragment], *next = &state->next[fragment], kept = *now;
    *now = *next;
    now->before = kept.digest;
    *next = kept;
}

/* Before a fragment's first commit the vector is zero, so theta is evaluated. */
const float *dl_state_evaluated(const dl_state *state, int fragment)
{
    const dl_fragment_state *now = &state->now[fragment];
    const int vector = state->outer->evaluated;
    return vector && now->n_commits ? now->outer[vector - 1] : now->theta;
}

uint64_t dl_state_commits(const dl_state *state)
{
    uint64_t n = 0;
    for (int f = 0; f < state->manifest->n_fragments; f++)
        n += state->now[f].n_commits;
    return n;
}

void dl_state_rehash(dl_state *state, dl_pool *pool)
{
    for (int f = 0; f < state->manifest->n_fragments; f++)
        state->now[f].digest =
            dl_state_digest(&state->now[f], state->manifest->fragments[f], state->outer, pool);
}

dl_hash dl_state_digest_all(const dl_state *state)
{
    dl_hash digests[DL_MAX_FRAGMENTS];
    size_t n = (size_t)state->manifest->n_fragments;
    for (size_t f = 0; f < n; f++)
        digests[f] = state->now[f].digest;
    return dl_hash_bytes(digests, n * sizeof *digests);
}
