/* state.c - the memory of a state. One arena: the table of fragments, the roster, then each
 * fragment's arrays, copy by copy. */
#include "run/state.h"

#include <string.h>

static void lay_out_copy(dl_state *state, dl_fragment_state **copy)
{
    const dl_manifest *m = state->manifest;
    *copy = DL_ARENA_ARRAY(&state->arena, dl_fragment_state, (size_t)m->n_fragments);
    for (int f = 0; f < m->n_fragments; f++) {
        dl_fragment_state measured; /* without memory there is no table to write to */
        dl_state_layout(*copy ? &(*copy)[f] : &measured, &state->arena, m->fragments[f],
                        state->outer);
    }
}

static void lay_out(dl_state *state, size_t max_members, int n_copies)
{
    dl_roster *roster = &state->control.roster;
    roster->names = dl_arena_take_array(&state->arena, max_members, sizeof *roster->names);
    roster->misses = DL_ARENA_ARRAY(&state->arena, uint32_t, max_members);
    roster->cap = max_members;
    lay_out_copy(state, &state->now);
    if (n_copies == 2) lay_out_copy(state, &state->next);
}

static size_t measure(const dl_manifest *manifest, const dl_outer *outer, size_t max_members,
                      int n_copies)
{
    dl_state measured = {.manifest = manifest, .outer = outer};
    lay_out(&measured, max_members, n_copies);
    return measured.arena.used;
}

size_t dl_state_bytes(const dl_manifest *manifest, const dl_outer *outer, int n_copies)
{
    return measure(manifest, outer, 0, n_copies);
}

diloco_status dl_state_init(dl_state *out, const dl_manifest *manifest, const dl_outer *outer,
                            size_t max_members, int n_copies)
{
    DL_ASSERT(n_copies == 1 || n_copies == 2);
    *out = (dl_state){.manifest = manifest, .outer = outer};
    diloco_status status =
        dl_arena_init(&out->arena, measure(manifest, outer, max_members, n_copies));
    if (status) return dl_fail_context(status, "state of the run");
    lay_out(out, max_members, n_copies);
    return DILOCO_OK;
}

void dl_state_deinit(dl_state *state)
{
    dl_arena_deinit(&state->arena);
    *state = (dl_state){0};
}

void dl_state_swap(dl_state *state, int fragment)
{
    dl_fragment_state *now = &state->now[fragment], *next = &state->next[fragment], kept = *now;
    *now = *next;
    *next = kept;
}

const float *dl_state_evaluated(const dl_state *state, int fragment)
{
    const dl_fragment_state *now = &state->now[fragment];
    const int vector = state->outer->evaluated;
    return vector && now->n_commits ? now->outer[vector - 1] : now->theta;
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
