/* fed.h - federated runs (docs/federated.md): one process of one.
 *
 *     both     trains clients and closes entries      one machine needs nothing else
 *     server   closes entries, evaluates              reads no client's state
 *     worker   trains clients, follows the log        never closes an entry */
#ifndef DL_FED_FED_H
#define DL_FED_FED_H

#include "base/config.h"
#include <diloco/train.h>

/* Live one process to the end of the run, as run.role says; as diloco_train, which is for replicas
 * that train themselves. `name`: a server's begins with another letter than workers' do. */
DL_MUST_CHECK diloco_status dl_fed_train(const dl_config *config, const char *name,
                                         const diloco_train_hooks *hooks);

#endif
