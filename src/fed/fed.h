/* fed.h - federated runs (docs/federated.md): one process of one.
 *
 *     both     trains clients and closes entries      one machine needs nothing else
 *     server   closes entries, evaluates              reads no client's state
 *     worker   trains clients, follows the log        never closes an entry */
#ifndef DL_FED_FED_H
#define DL_FED_FED_H

#include "base/config.h"
#include <diloco/train.h>

/* Runs one process of a federated run to its end, in the role that run.role sets. It corresponds to
 * diloco_train, which is for replicas without logical clients.
 *
 * name: the process's name in the run, borrowed. A server's begins with another letter than those
 * of workers. hooks: borrowed; or NULL.
 *
 * Returns DILOCO_OK at the last entry or at trainer.target_accuracy, DILOCO_EINTERRUPTED if it was
 * asked to stop, after which the same call resumes the run, or the first error. */
DL_MUST_CHECK diloco_status dl_fed_train(const dl_config *config, const char *name,
                                         const diloco_train_hooks *hooks);

#endif
