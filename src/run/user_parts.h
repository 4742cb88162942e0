/* user_parts.h - makes the parts of a run that its caller supplies (include/diloco/user.h) into
 * rows and options that the run uses. */
#ifndef DL_RUN_USER_PARTS_H
#define DL_RUN_USER_PARTS_H

#include "base/config.h"
#include <diloco/user.h>

typedef struct dl_user dl_user;

/* Makes rows for the parts, which `config` then has and its options name. From here on the store is
 * known by its name. `parts` is copied. Returns DILOCO_EINVAL if a part is invalid, an option names
 * another part, or the store's name is in use. Also returns DILOCO_ENOMEM. *out is NULL on error.
 */
DL_MUST_CHECK diloco_status dl_user_create(dl_user **out, dl_config *config,
                                           const diloco_user_parts *parts);
void dl_user_destroy(dl_user *user); /* NULL is fine */

#endif
