/* user_combiner.h - a combiner of the caller's own (include/diloco/user.h) as a row. */
#ifndef DL_COMBINE_USER_COMBINER_H
#define DL_COMBINE_USER_COMBINER_H

#include "combine/combine.h"
#include <diloco/user.h>

typedef struct dl_combiner_user {
    diloco_user_combiner given; /* user is borrowed */
    dl_config_name name;
    dl_combiner row;
} dl_combiner_user;

/* Stays where it is while the row is used. DILOCO_EINVAL: no name, or not one of the two functions.
 */
DL_MUST_CHECK diloco_status dl_combiner_user_init(dl_combiner_user *out,
                                                  const diloco_user_combiner *given);

#endif
