/* voided.h - an operator's decision that an entry is void, as part of the machine (PROTOCOL P7).
 *
 * If no committer may be malicious (unreadable.h), an entry that counts unreadable bytes is valid,
 * and every replica stops there. The solution is a decision that the log records: an abort at the
 * log's end, log/<n>, that names the entry e which it voids. Then all entries from e to before n
 * are void, whatever they are built on, and n follows the state before e. */
#ifndef DL_PROTOCOL_VOIDED_H
#define DL_PROTOCOL_VOIDED_H

#include "protocol/machine_parts.h"

/* Adds a decision: entries [first, end) are void, as log/<end> records. One that another covers is
 * left out. Of more than DL_DECISIONS the oldest is dropped. */
void dl_decisions_add(dl_decisions *all, uint64_t first, uint64_t end);
/* Returns true if a decision voids the entry. */
bool dl_decisions_void(const dl_decisions *all, uint64_t entry);
/* Returns true if a decision has undone a state of that many entries. */
bool dl_decisions_undo(const dl_decisions *all, uint64_t entries);

#define DL_VOIDED "an operator has decided that it is void"

/* Returns whether a known decision voids the open entry. */
bool dl_voided_is(const dl_machine *m);

/* The open entry counts unreadable bytes, which failed with `status` (its text is set). Looks for a
 * decision after it, and fails with that status if it finds no decision. */
dl_request dl_voided_look(dl_machine *m, diloco_status status);
dl_request dl_voided_looked(dl_machine *m, const dl_reply *reply);

/* Returns whether the entry that was read voids one that our state has. Then the replica rejoins
 * from before that. */
bool dl_voided_sets_back(const dl_machine *m);
dl_request dl_voided_go_back(dl_machine *m);

#endif
