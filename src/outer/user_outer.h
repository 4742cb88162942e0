/* user_outer.h - an outer optimizer of the caller's own (include/diloco/user.h) as a row. */
#ifndef DL_OUTER_USER_OUTER_H
#define DL_OUTER_USER_OUTER_H

#include "outer/outer.h"
#include <diloco/user.h>

typedef struct dl_outer_user {
    diloco_user_outer given; /* user is borrowed */
    dl_config_name name;
    char vectors[DILOCO_USER_VECTORS][32];
    dl_outer row, keeping; /* keeping: beside a combiner that reads the last update */
} dl_outer_user;

/* Its address has to stay while a row is used. Returns DILOCO_EINVAL if a name or step is missing,
 * if there are too many vectors, or if a vector's name is invalid. */
DL_MUST_CHECK diloco_status dl_outer_user_init(dl_outer_user *out, const diloco_user_outer *given);

#endif
