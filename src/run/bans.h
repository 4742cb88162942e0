/* bans.h - replicas whose contributions were rejected too often, as the log tells it (PROTOCOL
 * P27).
 *
 * A commit names whom it rejected and why (judge.h). A rejection for what the
 * replica alone can have done (dl_judge_strikes) is a strike. With check.ban_after strikes, in a
 * row or not, a replica is out of the roster for check.ban_entries entries: nothing of it counts,
 * it goes on following, and begins again without a strike. This table is part of the control state,
 * and a function of the log alone: each entry names its digest behind it. */
#ifndef DL_RUN_BANS_H
#define DL_RUN_BANS_H

#include "base/json.h"
#include "run/entry.h"

typedef struct dl_strikes {
    char replica[DL_REPLICA_MAX + 1];
    uint64_t n;
    uint64_t until; /* it may count again from this entry on; 0: it is not banned */
} dl_strikes;

typedef struct dl_bans {
    uint64_t after, entries; /* check.ban_after, check.ban_entries */
    size_t n, cap;
    dl_strikes at[]; /* [cap] in the order of their first strikes; where it is full, newcomers get
                      * none */
} dl_bans;

/* *out is NULL where the run bans nobody. DILOCO_ENOMEM. The caller destroys it. */
DL_MUST_CHECK diloco_status dl_bans_create(dl_bans **out, const dl_config *config,
                                           size_t max_members);
void dl_bans_destroy(dl_bans *bans);                     /* NULL is fine */
void dl_bans_copy(dl_bans *to, const dl_bans *from);     /* of the same run */
bool dl_bans_has(const dl_bans *bans, const char *name); /* is it banned now? NULL: nobody is */
uint64_t dl_bans_until(const dl_bans *bans, const char *name); /* 0: it is not */
uint64_t dl_bans_strikes(const dl_bans *bans, const char *name);
size_t dl_bans_n(const dl_bans *bans); /* how many are banned now */

/* Advance by entry number e, which rejected whom `entry` names; NULL: it is void. */
void dl_bans_fold(dl_bans *bans, uint64_t e, const dl_entry *entry);
dl_hash dl_bans_digest(const dl_bans *bans);

/* NULL, or why the entry is void: it counts or rejects who is banned, or what it says is behind it
 * is not what follows. `bans` and `scratch` are NULL where the run bans nobody. */
const char *dl_bans_void_reason(const dl_bans *bans, dl_bans *scratch, const dl_entry *entry);

/* As member "bans" of the open object; and back: DILOCO_EPROTO. */
void dl_bans_write(dl_json *j, const dl_bans *bans);
DL_MUST_CHECK diloco_status dl_bans_read(dl_bans *bans, dl_json_value root);

#endif
