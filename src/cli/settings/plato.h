/* plato.h - configuration files of Plato (TL-System/plato): their keys that are no option here.
 *
 * Its sections and keys are options of the table (base/config.c) wherever they mean something here.
 * The rest has a row in plato.c: keys of its runtime, which cannot change the result, are
 * listed in one line. Others are accepted with a value without effect, and refused by name with
 * any other. docs/contract.md lists them. */
#ifndef DL_CLI_SETTINGS_PLATO_H
#define DL_CLI_SETTINGS_PLATO_H

#include "base/config.h"

enum { DL_PLATO_NOTES = 1024 };

/* An optimizer of torch that adds the decay to the gradient, and the one here that decouples it. */
typedef struct dl_plato_coupled {
    const char *name, *decoupled;
    bool same_without_momentum; /* both ways then make the same step */
} dl_plato_coupled;

/* Keys that were accepted and are not used, with commas between; all zero at first. */
typedef struct dl_plato {
    char unused[DL_PLATO_NOTES];     /* cut where there are too many */
    bool torchvision;                /* data.dataset_name says which set */
    const dl_plato_coupled *coupled; /* row of trainer.optimizer; NULL: it has none */
} dl_plato;

/* dl_plato_translate exchanges Plato's names for ours: "trainer.optimizer" = "AdamW" becomes
 * "adamw", and the key "data.dataset_name" becomes "data.datasource". *key and *text are set to
 * constants or stay. */
void dl_plato_translate(const char **key, const char **text);

/* dl_plato_server returns DILOCO_EREFUSED for a server.type that Plato has and this program does
 * not. Other names, unknown ones included, are left to the option table. */
DL_MUST_CHECK diloco_status dl_plato_server(const char *type);

/* dl_plato_takes returns true if the key needs nothing more: it is one of Plato's that is no option
 * here. *status is then DILOCO_OK if the key is accepted, and otherwise DILOCO_EREFUSED with its
 * name, its place `at` and an alternative. `text` is the value as the file has it. */
bool dl_plato_takes(diloco_status *status, dl_plato *plato, const char *key, const char *text,
                    const char *at);

/* dl_plato_preset returns the preset of a file that names none. It follows from server.type; with
 * clients and no server.type ("") it is "fedavg". NULL: nothing follows. */
const char *dl_plato_preset(const char *server_type, bool clients);

/* dl_plato_finish derives values after everything is read: H of whole epochs, the path of the data.
 * Returns DILOCO_EINVAL if server.type and preset contradict each other, or Torchvision comes
 * without the name of a set. Returns DILOCO_EREFUSED for torch's Adam, RMSprop, or SGD
 * with momentum, if it has weight decay. */
DL_MUST_CHECK diloco_status dl_plato_finish(dl_config *config, const dl_plato *plato);

#endif
