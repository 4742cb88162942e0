/* own.h - rows of the caller's own (include/diloco/user.h), beside the tables of codecs,
 * combiners and outer optimizers. Their names begin with "user:". They come with the configuration
 * whose options name them. */
#ifndef DL_BASE_OWN_H
#define DL_BASE_OWN_H

#include "base/config.h"

#define DL_OWN_MARK "user:"

struct dl_own_rows { /* NULL: none */
    const struct dl_codec *codec;
    const struct dl_combiner *combiner;
    const struct dl_outer *outer;
    const struct dl_outer *outer_keeping; /* the same with the last update (outer.h: keeps) */
};

/* "user:" and a name that a caller gave. `what` for the error: "codec". DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_own_name(dl_config_name out, const char *what, const char *name);

/* There is no row of that name: DILOCO_EINVAL, or of another caller's own DILOCO_EREFUSED. */
diloco_status dl_no_row(const char *what, const char *name);

#endif
