/* fragment_state.h - the last step of a state's digest, for callers that have its regions' digests
 * already; and a state without its momentum. */
#ifndef DL_OUTER_FRAGMENT_STATE_H
#define DL_OUTER_FRAGMENT_STATE_H

#include "outer/outer_step.h"

/* regions: theta, each of n_vectors - 1 outer vectors, integers, booleans. */
dl_hash dl_state_digest_from(const dl_hash *vectors, int n_vectors, const dl_fragment_state *state,
                             dl_fragment_shape shape);

/* out = in with outer vectors of zeros, and its digest. They may be the same state. */
void dl_state_empty(dl_fragment_state *out, const dl_fragment_state *in, dl_fragment_shape shape,
                    const dl_outer *outer, dl_pool *pool);

#endif
