/* probing.h - what a contribution makes of the shared model, measured by the trainer (check.probe,
 * PROTOCOL P27): the loss of theta, and of theta moved as the contribution says, which is the model
 * that its replica trained, as the codec left it.
 *
 * The run knows no model, so diloco_run_on_probe's callback measures. Its numbers depend on the
 * machine; the verdicts that follow from them are put into the entry, and nobody measures again. */
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

/* Takes the memory of one model. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_probing_create(dl_probing **out, const dl_probing_args *args);
void dl_probing_destroy(dl_probing *probing); /* NULL is fine */

/* loss[0]: of the state as it is; loss[1 + i]: with contribution i of n to the fragment. Calls the
 * trainer n + 1 times, on this thread; its error is returned. */
DL_MUST_CHECK diloco_status dl_probing_measure(dl_probing *probing, double *loss,
                                               const dl_state *state, int fragment,
                                               const dl_contribution_data *members, size_t n);

#endif
