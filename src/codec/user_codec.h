/* user_codec.h - a codec of the caller's own (include/diloco/user.h) as a row. */
#ifndef DL_CODEC_USER_CODEC_H
#define DL_CODEC_USER_CODEC_H

#include "codec/codec.h"
#include <diloco/user.h>

typedef struct dl_codec_user {
    diloco_user_codec given; /* user is borrowed */
    dl_config_name name;
    dl_codec row;
} dl_codec_user;

/* Stays where it is while the row is used. DILOCO_EINVAL: no name, or a function is missing. */
DL_MUST_CHECK diloco_status dl_codec_user_init(dl_codec_user *out, const diloco_user_codec *given);

#endif
