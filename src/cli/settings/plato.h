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

/* Keys that were accepted and are not used, with commas between; all zero at first. */
typedef struct dl_plato {
    char unused[DL_PLATO_NOTES]; /* cut where there are too many */
    bool torchvision;            /* data.dataset_name says which set */
    bool adam;                   /* trainer.optimizer is torch's Adam: AdamW without decay */
} dl_plato;

/* Plato's words in ours: "trainer.optimizer" = "AdamW" is "adamw", "data.dataset_name" is
 * data.datasource. *key and *text are exchanged or left alone. */
void dl_plato_words(const char **key, const char **text);

/* DILOCO_EREFUSED: a server.type of Plato's that is not built here. */
DL_MUST_CHECK diloco_status dl_plato_server(const char *type);

/* Is it a key of Plato's that is no option? Then *status: DILOCO_OK, it is taken and needs nothing
 * more; DILOCO_EREFUSED names it, its place and the way out. */
bool dl_plato_takes(diloco_status *status, dl_plato *plato, const char *key, const char *text,
                    const char *at);

/* The preset of a file that names none: by server.type; with clients and no server.type fedavg.
 * NULL: it says nothing. */
const char *dl_plato_preset(const char *server_type, bool clients);

/* Derive values from the file when all is read: H of whole epochs, the data's path.
 * DILOCO_EINVAL: server.type and preset contradict; Torchvision without a set's name.
 * DILOCO_EREFUSED: Adam with weight decay. */
DL_MUST_CHECK diloco_status dl_plato_finish(dl_config *config, const dl_plato *plato);

#endif
