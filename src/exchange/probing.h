/* probing.h - measures how a contribution changes the shared model (check.probe, PROTOCOL P27). The
 * trainer measures the loss of theta, and of theta moved by the contribution. The latter is the
 * model that its replica trained, as the codec left it.
 *
 * The run knows no model, so the callback of diloco_run_on_probe measures. Its numbers depend on
 * the machine. The verdicts that follow from them are recorded in the entry, and no other replica
 * measures. */
#ifndef DL_EXCHANGE_PROBING_H
#define DL_EXCHANGE_PROBING_H

#include "state/state.h"
#include <diloco/run.h>

typedef struct dl_probing dl_probing;

typedef struct dl_probing_args {
    const dl_manifest *manifest; /* borrowed */
    const dl_codec_form *forms;  /* [n_fragments], borrowed */
    diloco_probe_fn measure;
    void *user;
} dl_probing_args;

/* Allocates one model. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_probing_create(dl_probing **out, const dl_probing_args *args);
void dl_probing_destroy(dl_probing *probing); /* NULL is fine */

/* Measures loss[0] of the state as it is, and loss[1 + i] of the state with contribution i of n to
 * the fragment. Calls the trainer n + 1 times, on this thread, and returns its error. */
DL_MUST_CHECK diloco_status dl_probing_measure(dl_probing *probing, double *loss,
                                               const dl_state *state, int fragment,
                                               const dl_contribution_data *members, size_t n);

#endif
