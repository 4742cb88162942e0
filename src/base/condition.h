/* condition.h - a condition on the value of an option, as a row of the table states it.
 *
 *     "run.peers"                            it has another value than its default
 *     "trainer.optimizer = adamw|muon"       it has one of these values
 *     "server.diloco.fragments != 1"         it has none of these values
 *
 * .applies_when of a row: the option has no effect unless the condition holds. .needs of a row:
 * another value than the default is refused unless it holds. */
#ifndef DL_BASE_CONDITION_H
#define DL_BASE_CONDITION_H

#include "base/option.h"

typedef enum dl_condition_kind { DL_IS_SET, DL_IS_ONE_OF, DL_IS_NONE_OF } dl_condition_kind;

typedef struct dl_condition {
    const dl_option *row; /* of the option that it is about */
    dl_condition_kind kind;
    const char *values; /* "a|b", borrowed from the text; "" of DL_IS_SET */
} dl_condition;

/* Read the text of a row of the table. A text that does not parse is a bug. */
dl_condition dl_condition_read(dl_option_table table, const char *text);

bool dl_condition_holds(const dl_condition *condition, const void *values);

/* Add the condition in words: "trainer.optimizer = adamw or muon". */
DL_MUST_CHECK diloco_status dl_condition_text(dl_buf *out, const dl_condition *condition);

#endif
