/* data_assignment.h - the log deals the data (PROTOCOL P18; data.deal = "log"): which samples of
 * the common data a replica trains on for an entry, and which have counted.
 *
 * Samples are numbered epoch after epoch. Each entry has a deal: one *chunk* a seat, as many
 * samples as the steps up to its due point take. The first seats are its roster's, in order; behind
 * them are seats for guests: who is not on the roster sits by the number in its name, so a joiner
 * asks nobody.
 *
 *     cursor         first sample that was never dealt
 *     returned       dealt, and free again: dealt next, before what is behind the cursor
 *     deals          of the entries that are not settled yet, and of the next `ahead` ones
 *
 * All else below the cursor has counted. The ledger is part of the state: a function of the entries
 * folded so far. *Exact* (one fragment, no overlap, local_mix 0, adopt): a commit counts the chunks
 * that its members used since their base and returns every other one; an abort leaves them held,
 * but at H = 1, where what is sent may be a gradient and is lost with it. After DL_DEALT_MAX aborts
 * in a row all are returned, and everybody begins anew. So each sample counts exactly once.
 * Otherwise, with fragments or overlap, what a roster was dealt is never dealt again, whatever
 * becomes of it.
 */
#ifndef DL_PROTOCOL_DATA_ASSIGNMENT_H
#define DL_PROTOCOL_DATA_ASSIGNMENT_H

#include "log/contribution.h"
#include "log/entry.h"
#include "protocol/schedule.h"

/* *out NULL: the configuration deals nothing. DILOCO_EREFUSED: an asynchronous run, which has no
 * due points. DILOCO_ENOMEM. As before entry 0. */
DL_MUST_CHECK diloco_status dl_ledger_create(dl_ledger **out, const dl_config *config,
                                             const dl_schedule *schedule, size_t max_members);
void dl_ledger_destroy(dl_ledger *ledger); /* NULL is fine */
void dl_ledger_begin(dl_ledger *ledger);   /* as before entry 0, again */
void dl_ledger_copy(dl_ledger *to, const dl_ledger *from);

/* Does each sample count exactly once, so that a contribution names all that it was made of? The
 * same of a configuration; one of several fragments is not told apart where only tensors say so. */
bool dl_ledger_is_exact(const dl_ledger *ledger);
bool dl_deal_is_exact(const dl_config *config);

/* The chunk of a replica for an entry; false: it is settled, or not dealt yet. */
bool dl_ledger_chunk(const dl_ledger *ledger, uint64_t entry, const char *replica, uint64_t *first,
                     uint64_t *len);

/* … and the sample in it that the step at a position up to the entry's due point begins with. */
bool dl_ledger_sample(const dl_ledger *ledger, uint64_t entry, const char *replica,
                      uint64_t position, uint64_t *sample);

/* Below the cursor: samples in all, and those that have not counted. */
uint64_t dl_ledger_cursor(const dl_ledger *ledger);
uint64_t dl_ledger_open(const dl_ledger *ledger);

/* What a contribution made of so many samples, taken now for `entry`, used. */
void dl_ledger_list(const dl_ledger *ledger, uint64_t entry, const char *replica, uint64_t samples,
                    dl_dealt *out);
/* NULL, or why the contribution may not count: it uses a chunk that is another's, has counted, was
 * returned or was never dealt. One of no samples uses none. */
const char *dl_ledger_refuses(const dl_ledger *ledger, const dl_contribution *facts);
/* May it be a member beside those the entry has? Two guests may sit on one seat. */
bool dl_ledger_has_room(const dl_ledger *ledger, const dl_entry *entry, const dl_member *member);

/* Fold an entry of the next number; `entry` NULL: a void one. `newest`: the newest roster told. */
void dl_ledger_fold(dl_ledger *ledger, const dl_entry *entry, const dl_roster *newest);
/* Is something held for entries that were aborted? Exact: if not, all begin anew after an abort. */
bool dl_ledger_holds(const dl_ledger *ledger);
/* What the entry says of the ledger behind it. */
dl_entry_deal dl_ledger_deal(const dl_ledger *ledger);
/* Is that what this ledger gives with the entry? `scratch` is overwritten. */
bool dl_ledger_gives(const dl_ledger *ledger, dl_ledger *scratch, const dl_entry *entry);
/* NULL, or why the entry is void for what it counts or deals. */
const char *dl_ledger_void_reason(const dl_ledger *ledger, dl_ledger *scratch,
                                  const dl_entry *entry);

/* As member "ledger" of the open object; and back: DILOCO_EPROTO. `entry`: so many are folded. */
void dl_ledger_write(dl_json *j, const dl_ledger *ledger);
DL_MUST_CHECK diloco_status dl_ledger_read(dl_ledger *out, dl_json_value object, uint64_t entry);

#endif
