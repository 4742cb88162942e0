/* user_store.h - stores of the caller's own (include/diloco/user.h), by name: user://NAME/PLACE. */
#ifndef DL_STORE_USER_STORE_H
#define DL_STORE_USER_STORE_H

#include "store/store.h"
#include <diloco/user.h>

#define DL_STORE_USER "user://"
enum { DL_STORE_USER_NAME = 32 };

/* Known from here on, and once more by each call, until as many drops; handles that are open then
 * continue. `name` becomes the store's. DILOCO_EINVAL: no name, a function that it needs is
 * missing, or another store (of other functions or another user) has the name; DILOCO_ENOMEM; *name
 * is "" then. Any thread. */
DL_MUST_CHECK diloco_status dl_store_add_user(char name[DL_STORE_USER_NAME],
                                              const diloco_user_store *given);
void dl_store_drop_user(const char *name);

#endif
