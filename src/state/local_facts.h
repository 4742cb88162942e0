/* local_facts.h - the facts of the local state as JSON text (docs/formats.md).
 *
 * Private to state. One thread at a time. */
#ifndef DL_STATE_LOCAL_FACTS_H
#define DL_STATE_LOCAL_FACTS_H

#include "base/buf.h"
#include "state/private_state.h"

/* Writes the facts into `out`, which it clears first. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_local_facts_write(dl_buf *out, const dl_local_facts *facts);

/* Reads `text`. The caller sets the pointers and n_fragments, as for dl_local_load. Returns
 * DILOCO_EPROTO if the text is damaged, or DILOCO_EDIFFERS if its fragments are of another number.
 */
DL_MUST_CHECK diloco_status dl_local_facts_read(dl_local_facts *facts, const char *text,
                                                size_t len);

#endif
