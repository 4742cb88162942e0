/* state.h - the last step of a state's digest, for who has its regions' digests already. */
#ifndef DL_OUTER_STATE_H
#define DL_OUTER_STATE_H

#include "outer/outer_step.h"

/* regions: theta, each of n_vectors - 1 outer vectors, integers, booleans. */
dl_hash dl_state_digest_from(const dl_hash *vectors, int n_vectors, const dl_fragment_state *state,
                             dl_fragment_shape shape);

#endif
