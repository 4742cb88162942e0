/* continuation.h - a run that continues where another one ended (trainer.init_as = "continuation"
 * or "extension"): its first state has the outer optimizer's vectors of that run's last one. */
#ifndef DL_STATE_CONTINUATION_H
#define DL_STATE_CONTINUATION_H

#include "base/safetensors.h"
#include "state/state.h"

bool dl_continue_is_asked(const dl_config *config);

/* Returns whether trainer.init_from names a run: a URL, or a folder. */
bool dl_init_is_run(const char *from);

/* Calls fn with the tensors that trainer.init_from names: a file of safetensors, or a run's folder
 * or URL. Of a run they are the model and the outer vectors after its newest entry. Returns the
 * errors of dl_st_with_file and of diloco_theta_read, with the option's name. */
DL_MUST_CHECK diloco_status dl_init_from(const char *from, dl_st_fn fn, void *context);

/* Tensors for one warning: their number, and the names of the first few. */
typedef struct dl_tensor_list {
    size_t n;
    char names[400];
} dl_tensor_list;
void dl_tensor_list_add(dl_tensor_list *list, const char *name);
/* Logs a warning of the tensors, if there are any: "3 tensors (a, b, c)", then `what`. */
void dl_tensor_list_warn(const dl_tensor_list *list, const char *what);

/* Returns whether a tensor of a file matches the model's tensor of its name: the same type and
 * shape. */
bool dl_continues(const dl_st_tensor *found, const char *dtype, const size_t *shape, int n_dims);

/* Fills the state's outer vectors from the image of a state (theta0, a snapshot, a file of
 * diloco_theta_read) or from a run. A trained tensor is filled if the image has it with the same
 * type and shape: all of its vectors, or none of them. The other tensors keep zeros, so their
 * momentum starts again. Tensors that the model no longer has are ignored. Each of the two cases
 * gives one warning. It does not rehash the state. Returns the errors of dl_init_from, and
 * DILOCO_EDIFFERS if the state's theta has other values than the image, since the vectors belong to
 * those. */
DL_MUST_CHECK diloco_status dl_continue_outer(dl_state *state, const char *from);

typedef char dl_continue_text[512];

/* Writes one sentence for a replica of such a run. It says which state continues, and which starts
 * again at the first step. inherited: its private state of the other run was found. */
void dl_continue_start(dl_continue_text out, const dl_config *config, bool inherited);

/* Compares H of the other run, which its states record, with this run's. If they differ, movements
 * have another length than those in the momentum. With
 *
 *     mu' = mu^(H'/H),   lr' = lr (1 - mu') / (1 - mu)
 *
 * a momentum lasts for as many steps, and moves as far in them, as before. If that lr' is above the
 * largest advised one, lr' is the largest, and mu' keeps lr / (1 - mu). The sentence names both.
 * Returns false if H is the same, the options have these values, nothing continues (sgd, mu = 0),
 * or the file has no H or does not exist. */
bool dl_continue_pace(dl_continue_text out, const dl_config *config);

#endif
