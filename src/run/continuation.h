/* continuation.h - a run that goes on where another one ended (trainer.init_as = "continuation"):
 * its first state has the outer optimizer's vectors of that run's last one. */
#ifndef DL_RUN_CONTINUATION_H
#define DL_RUN_CONTINUATION_H

#include "base/safetensors.h"
#include "run/state.h"

bool dl_continue_is_asked(const dl_config *config);

/* Is a tensor of a file what a model has under its name: of the same type and shape? */
bool dl_continues(const dl_st_tensor *found, const char *dtype, const size_t *shape, int n_dims);

/* Fill state's outer vectors from a state's image (theta0, a snapshot, what diloco_theta_read
 * gives): of each trained tensor that the image has with the same type and shape, all of them or
 * none. What is not taken up stays zero: its momentum begins anew. What the model does not have any
 * more is left behind. Both are logged, a line a tensor. Not rehashed. DILOCO_ENOENT, DILOCO_EIO:
 * the file; DILOCO_EPROTO: it is not safetensors. */
DL_MUST_CHECK diloco_status dl_continue_outer(dl_state *state, const char *path);

/* Does that run's H, which its states tell, differ from this one's? Then movements have another
 * length than those that the momentum is made of. With
 *
 *     mu' = mu^(H'/H),   lr' = lr (1 - mu') / (1 - mu)
 *
 * a momentum lasts as many steps, and moves as far in them, as before; where that lr' is more than
 * is advised at all, lr' is that and mu' keeps lr / (1 - mu). The sentence names both. false: H is
 * the same, these are the values already, nothing goes on (sgd, mu = 0), or the file does not say
 * or is gone. */
typedef char dl_continue_text[512];
bool dl_continue_pace(dl_continue_text out, const dl_config *config);

#endif
