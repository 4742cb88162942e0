/* fragment_state.h - the state of a fragment, its digest, and the state without its momentum. */
#ifndef DL_OUTER_FRAGMENT_STATE_H
#define DL_OUTER_FRAGMENT_STATE_H

#include "base/arena.h"
#include "base/thread.h"
#include "outer/outer.h"
#include "tensor/manifest.h"

/* The state of a fragment (PROTOCOL P1, P3). Its arrays are owned by the caller that laid it
 * out. */
typedef struct dl_fragment_state {
    float *theta;                     /* f32[n_trained + n_averaged] */
    float *outer[DL_OUTER_MAX_STATE]; /* f32[n_trained] each */
    int64_t *integers;
    uint8_t *booleans;
    uint64_t n_commits;
    dl_hash digest;
    dl_hash before; /* digest of the state that the last commit changed; at first `digest` */
} dl_fragment_state;

/* Takes a state's arrays from an arena, which zeroes them. They are valid as long as the arena is.
 * digest and before are zero: the caller sets them. */
void dl_state_layout(dl_fragment_state *state, dl_arena *arena, dl_fragment_shape shape,
                     const dl_outer *outer);

/* The digest of a state: hash of the concatenated 16-byte digests of theta, each outer vector,
 * integers, booleans (dl_digest_bytes of each region) and the 8 bytes of n_commits, little-endian.
 */
dl_hash dl_state_digest(const dl_fragment_state *state, dl_fragment_shape shape,
                        const dl_outer *outer, dl_pool *pool);

/* The same from the regions' digests, for callers that have these already: of theta, each of
 * n_vectors - 1 outer vectors, integers, booleans. */
dl_hash dl_state_digest_from(const dl_hash *vectors, int n_vectors, const dl_fragment_state *state,
                             dl_fragment_shape shape);

/* out = in with outer vectors of zeros, and its digest. They may be the same state. */
void dl_state_empty(dl_fragment_state *out, const dl_fragment_state *in, dl_fragment_shape shape,
                    const dl_outer *outer, dl_pool *pool);

#endif
