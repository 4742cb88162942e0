/* voided.h - an operator's decision that an entry is void, as part of the machine (PROTOCOL P7).
 *
 * Where nobody may lie (unreadable.h), an entry stands that counts what nobody can read, and every
 * replica stops there. The way out is a decision, recorded in the log as everything else: an abort
 * at the log's end, log/<n>, that names the entry e which it voids. Then e and all up to n are
 * void, whatever they are built on, and n follows the state before e. */
#ifndef DL_PROTOCOL_VOIDED_H
#define DL_PROTOCOL_VOIDED_H

#include "protocol/machine_parts.h"

/* Entries [first, end) are void; log/<end> says so. One that is covered by it is left out. Of more
 * than DL_DECISIONS the oldest is forgotten. */
void dl_decisions_add(dl_decisions *all, uint64_t first, uint64_t end);
/* Return true if a decision voids the entry. */
bool dl_decisions_void(const dl_decisions *all, uint64_t entry);
/* Return true if a state of that many entries is one that a decision has undone. */
bool dl_decisions_undo(const dl_decisions *all, uint64_t entries);

#define DL_VOIDED "an operator has decided that it is void"

/* Is the open entry among those that a known decision voids? */
bool dl_voided_is(const dl_machine *m);

/* What the open entry counts cannot be read, which has failed with `status` (the text is set): look
 * for a decision behind it, and without one fail so. */
dl_request dl_voided_look(dl_machine *m, diloco_status status);
dl_request dl_voided_looked(dl_machine *m, const dl_reply *reply);

/* Does the entry that was read void one that our state has? Then begin again from before that. */
bool dl_voided_sets_back(const dl_machine *m);
dl_request dl_voided_go_back(dl_machine *m);

#endif
