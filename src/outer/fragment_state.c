/* fragment_state.c - a fragment's arrays and their digest (declared in outer_step.h).
 *
 * The digest walks each vector in groups of leaves. Threads hash the leaves of a group, and their
 * hashes go in order into the stream of the tree's upper level. So it needs no memory that grows
 * with the state. */
#include "outer/fragment_state.h"

#include <string.h>

void dl_state_layout(dl_fragment_state *state, dl_arena *arena, dl_fragment_shape shape,
                     const dl_outer *outer)
{
    *state = (dl_fragment_state){0};
    state->theta = DL_ARENA_ARRAY(arena, float, shape.n_trained + shape.n_averaged);
    for (int k = 0; k < outer->n_state; k++)
        state->outer[k] = DL_ARENA_ARRAY(arena, float, shape.n_trained);
    state->integers = DL_ARENA_ARRAY(arena, int64_t, shape.n_integers);
    state->booleans = DL_ARENA_ARRAY(arena, uint8_t, shape.n_booleans);
}

enum { GROUP = 64 }; /* leaves between two meetings of the threads */

typedef struct group {
    const unsigned char *data;
    size_t len;
    dl_hash leaves[GROUP];
} group;

static dl_hash hash_leaf(const void *data, size_t n)
{
    dl_leaf_hash leaf;
    dl_leaf_begin(&leaf);
    dl_leaf_add(&leaf, data, n);
    return dl_leaf_end(&leaf);
}

/* Runs on a thread of the pool. Threads write different elements of g->leaves. */
static void hash_part(void *context, int part, int n_parts)
{
    group *g = context;
    size_t begin, end;
    dl_part_range(&begin, &end, g->len, DL_LEAF_BYTES, part, n_parts);
    for (; begin < end; begin += DL_LEAF_BYTES)
        g->leaves[begin / DL_LEAF_BYTES] =
            hash_leaf(g->data + begin, dl_size_min(end - begin, DL_LEAF_BYTES));
}

/* Returns the same digest as dl_digest_bytes, computed on all threads. */
static dl_hash digest(const void *data, size_t n, dl_pool *pool)
{
    dl_leaf_hash upper;
    dl_leaf_begin(&upper);
    for (size_t at = 0; at < n; at += (size_t)GROUP * DL_LEAF_BYTES) {
        group g = {.data = (const unsigned char *)data + at,
                   .len = dl_size_min(n - at, (size_t)GROUP * DL_LEAF_BYTES)};
        dl_pool_run(pool, hash_part, &g);
        size_t n_leaves = (g.len + DL_LEAF_BYTES - 1) / DL_LEAF_BYTES;
        dl_leaf_add(&upper, g.leaves, n_leaves * sizeof g.leaves[0]);
    }
    return dl_leaf_end(&upper);
}

/* The length of the input is bounded by the number of regions: theta, the outer vectors, two
 * discrete regions and a counter. */
dl_hash dl_state_digest_from(const dl_hash *vectors, int n_vectors, const dl_fragment_state *state,
                             dl_fragment_shape shape)
{
    unsigned char bytes[(1 + DL_OUTER_MAX_STATE + 2) * sizeof(dl_hash) + 8], *end = bytes;
    dl_hash integers = dl_digest_bytes(state->integers, shape.n_integers * sizeof(int64_t));
    dl_hash booleans = dl_digest_bytes(state->booleans, shape.n_booleans);

    end = (unsigned char *)memcpy(end, vectors, (size_t)n_vectors * sizeof *vectors) +
          (size_t)n_vectors * sizeof *vectors;
    end = (unsigned char *)memcpy(end, &integers, sizeof integers) + sizeof integers;
    end = (unsigned char *)memcpy(end, &booleans, sizeof booleans) + sizeof booleans;
    for (int i = 0; i < 8; i++)
        *end++ = (unsigned char)(state->n_commits >> 8 * i);
    return dl_hash_bytes(bytes, (size_t)(end - bytes));
}

dl_hash dl_state_digest(const dl_fragment_state *state, dl_fragment_shape shape,
                        const dl_outer *outer, dl_pool *pool)
{
    dl_hash vectors[1 + DL_OUTER_MAX_STATE];
    vectors[0] = digest(state->theta, (shape.n_trained + shape.n_averaged) * sizeof(float), pool);
    for (int k = 0; k < outer->n_state; k++)
        vectors[1 + k] = digest(state->outer[k], shape.n_trained * sizeof(float), pool);
    return dl_state_digest_from(vectors, 1 + outer->n_state, state, shape);
}

void dl_state_empty(dl_fragment_state *out, const dl_fragment_state *in, dl_fragment_shape shape,
                    const dl_outer *outer, dl_pool *pool)
{
    if (out != in) {
        memcpy(out->theta, in->theta, (shape.n_trained + shape.n_averaged) * sizeof *out->theta);
        memcpy(out->integers, in->integers, shape.n_integers * sizeof *out->integers);
        memcpy(out->booleans, in->booleans, shape.n_booleans);
        out->n_commits = in->n_commits;
    }
    for (int k = 0; k < outer->n_state; k++)
        memset(out->outer[k], 0, shape.n_trained * sizeof *out->outer[k]);
    out->digest = dl_state_digest(out, shape, outer, pool);
}
