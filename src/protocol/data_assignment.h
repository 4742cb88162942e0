/* data_assignment.h - the log assigns the data (PROTOCOL P18; data.deal = "log"): which samples of
 * the common data a replica trains on for an entry, and which have counted.
 *
 * Samples are numbered epoch after epoch. Each entry has an assignment: one *chunk* for each slot,
 * with the samples of the steps up to its due point. The first slots are its roster's, in order.
 * After them come slots for unlisted replicas, which are not on the roster. The number in an
 * unlisted replica's name gives its slot, so a joining replica needs no reply from others.
 *
 *     cursor         first sample that was never assigned
 *     returned       assigned, and free again: assigned next, before samples from the cursor on
 *     assignments    of the entries that are not settled yet, and of the next `ahead` ones
 *
 * All other samples below the cursor have counted. The ledger is part of the state: a function of
 * the applied entries. *Exact* means one fragment, no overlap, local_mix 0, adopt. Then a commit
 * counts the chunks that its members used since their base, and returns every other one. An abort
 * leaves them held, except at H = 1, where a contribution may be a gradient and is lost with the
 * abort. After DL_ASSIGNED_MAX consecutive aborts all are returned, and every replica starts from
 * theta. So each sample counts exactly once. Otherwise, with fragments or overlap, samples that
 * were assigned to a roster are never assigned again. */
#ifndef DL_PROTOCOL_DATA_ASSIGNMENT_H
#define DL_PROTOCOL_DATA_ASSIGNMENT_H

#include "log/contribution.h"
#include "log/entry.h"
#include "protocol/schedule.h"

/* Creates a ledger as before entry 0. *out is NULL if the configuration assigns no data. Returns
 * DILOCO_ENOMEM, or DILOCO_EREFUSED for an asynchronous run, which has no due points. */
DL_MUST_CHECK diloco_status dl_ledger_create(dl_ledger **out, const dl_config *config,
                                             const dl_schedule *schedule, size_t max_members);
void dl_ledger_destroy(dl_ledger *ledger); /* NULL is fine */
void dl_ledger_begin(dl_ledger *ledger);   /* as before entry 0 */
void dl_ledger_copy(dl_ledger *to, const dl_ledger *from);

/* Return whether each sample counts exactly once, so that a contribution names every sample that it
 * was made of. For a configuration alone, it does not know fragments that only the tensors define.
 */
bool dl_ledger_is_exact(const dl_ledger *ledger);
bool dl_assignment_is_exact(const dl_config *config);

/* Finds the chunk of a replica for an entry. Returns false if the entry is settled or its data not
 * assigned yet. */
bool dl_ledger_chunk(const dl_ledger *ledger, uint64_t entry, const char *replica, uint64_t *first,
                     uint64_t *len);

/* Finds the first sample of the step at a position up to the entry's due point. */
bool dl_ledger_sample(const dl_ledger *ledger, uint64_t entry, const char *replica,
                      uint64_t position, uint64_t *sample);

/* Return the number of samples below the cursor, and how many of those have not counted. */
uint64_t dl_ledger_cursor(const dl_ledger *ledger);
uint64_t dl_ledger_open(const dl_ledger *ledger);

/* Lists the chunks that a contribution of `samples` samples, captured now for `entry`, used. */
void dl_ledger_list(const dl_ledger *ledger, uint64_t entry, const char *replica, uint64_t samples,
                    dl_assigned *out);
/* Returns why the contribution may not count, or NULL. It may use a chunk that is another's, has
 * counted, was returned or was never assigned. One without samples uses none. */
const char *dl_ledger_refuses(const dl_ledger *ledger, const dl_contribution *facts);
/* Returns whether it may be a member with the entry's other ones. Two unlisted replicas may have
 * one slot. */
bool dl_ledger_has_room(const dl_ledger *ledger, const dl_entry *entry, const dl_member *member);

/* Applies the next entry; `entry` NULL: a void one. `newest`: the newest known roster. */
void dl_ledger_apply(dl_ledger *ledger, const dl_entry *entry, const dl_roster *newest);
/* Returns whether samples of aborted entries are held. Exact: if not, every replica starts from
 * theta after an abort. */
bool dl_ledger_holds(const dl_ledger *ledger);
/* Returns what the entry records of the ledger after it. */
dl_entry_assignment dl_ledger_assignment(const dl_ledger *ledger);
/* Returns whether this ledger and the entry give that record. `scratch` is overwritten. */
bool dl_ledger_gives(const dl_ledger *ledger, dl_ledger *scratch, const dl_entry *entry);
/* Returns why the entry's members or assignments make it void, or NULL. */
const char *dl_ledger_void_reason(const dl_ledger *ledger, dl_ledger *scratch,
                                  const dl_entry *entry);

/* Write the ledger as member "ledger" of the open object, and read it; the reader returns
 * DILOCO_EPROTO. `entry`: the number of applied entries. */
void dl_ledger_write(dl_json *j, const dl_ledger *ledger);
DL_MUST_CHECK diloco_status dl_ledger_read(dl_ledger *out, dl_json_value object, uint64_t entry);

#endif
