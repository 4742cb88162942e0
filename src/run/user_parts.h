/* user_parts.h - the parts of a run that its caller supplies (include/diloco/user.h), from the
 * structs that he gave to the rows and options that the run works with. */
#ifndef DL_RUN_USER_PARTS_H
#define DL_RUN_USER_PARTS_H

#include "base/config.h"
#include <diloco/user.h>

typedef struct dl_user dl_user;

/* Rows for the parts, which `config` then has and its options name; the store is known by its name
 * from here on. `parts` is copied. DILOCO_EINVAL: a part that cannot be, an option that names
 * another, a store whose name is another one's; DILOCO_ENOMEM. *out is NULL on error. */
DL_MUST_CHECK diloco_status dl_user_create(dl_user **out, dl_config *config,
                                           const diloco_user_parts *parts);
void dl_user_destroy(dl_user *user); /* NULL is fine */

#endif
