/* continuation.h - a run that continues where another one ended (trainer.init_as = "continuation"):
 * its first state has the outer optimizer's vectors of that run's last one. */
#ifndef DL_STATE_CONTINUATION_H
#define DL_STATE_CONTINUATION_H

#include "base/safetensors.h"
#include "state/state.h"

bool dl_continue_is_asked(const dl_config *config);

/* Call fn with what trainer.init_from names: a file of safetensors, or a run by its folder or URL,
 * whose model and outer vectors after its newest entry they are. The errors of dl_st_with_file and
 * of diloco_theta_read, with the option's name. */
DL_MUST_CHECK diloco_status dl_init_from(const char *from, dl_st_fn fn, void *context);

/* Tensors for one warning: how many, and the names of the first few. */
typedef struct dl_tensor_list {
    size_t n;
    char names[400];
} dl_tensor_list;
void dl_tensor_list_add(dl_tensor_list *list, const char *name);
/* Log a warning of them, if there are any: "3 tensors (a, b, c)" and what is so of them. */
void dl_tensor_list_warn(const dl_tensor_list *list, const char *what);

/* Is a tensor of a file what a model has under its name: of the same type and shape? */
bool dl_continues(const dl_st_tensor *found, const char *dtype, const size_t *shape, int n_dims);

/* Fill state's outer vectors from a state's image (theta0, a snapshot, what diloco_theta_read
 * gives; or the run itself): of each trained tensor that the image has with the same type and
 * shape, all of them or none. What is not taken up stays zero: its momentum starts again. What the
 * model does not have any more is left behind. Each of both is one warning. Not rehashed. Returns
 * what dl_init_from does. */
DL_MUST_CHECK diloco_status dl_continue_outer(dl_state *state, const char *from);

typedef char dl_continue_text[512];

/* One sentence for a replica of a run that begins so: what it continues with, and what begins at
 * its first step all the same. inherited: its private state of that run was found. */
void dl_continue_start(dl_continue_text out, const dl_config *config, bool inherited);

/* Does that run's H, which its states tell, differ from this one's? Then movements have another
 * length than those that the momentum is made of. With
 *
 *     mu' = mu^(H'/H),   lr' = lr (1 - mu') / (1 - mu)
 *
 * a momentum lasts as many steps, and moves as far in them, as before; where that lr' is more than
 * is advised at all, lr' is that and mu' keeps lr / (1 - mu). The sentence names both. false: H is
 * the same, these are the values already, nothing continues (sgd, mu = 0), or the file does not say
 * or is gone. */
bool dl_continue_pace(dl_continue_text out, const dl_config *config);

#endif
