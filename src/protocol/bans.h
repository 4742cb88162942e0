/* bans.h - what the log holds against replicas: contributions that were rejected too often, and
 * what they have been counted with before (PROTOCOL P27).
 *
 * A commit names whom it rejected and why (judge.h). A rejection for what the
 * replica alone can have done (dl_judge_strikes) is a strike. With check.ban_after strikes, in a
 * row or not, a replica is out of the roster for check.ban_entries entries: nothing of it counts,
 * it goes on following, and begins again without a strike. With
 * check.repeat the bodies' digests of each replica's last so many contributions that a commit has
 * counted are kept, too. These tables are part of the control state, and a function of the log
 * alone: each entry names their digest behind it. */
#ifndef DL_PROTOCOL_BANS_H
#define DL_PROTOCOL_BANS_H

#include "base/json.h"
#include "log/entry.h"

typedef struct dl_strikes {
    char replica[DL_REPLICA_MAX + 1];
    uint64_t n;
    uint64_t until; /* it may count again from this entry on; 0: it is not banned */
} dl_strikes;

/* A contribution that has counted. */
typedef struct dl_counted {
    char replica[DL_REPLICA_MAX + 1];
    dl_hash body;
} dl_counted;

typedef struct dl_bans {
    uint64_t after, entries; /* check.ban_after, 0: nobody is banned; check.ban_entries */
    size_t repeat;           /* check.repeat */
    size_t n_counted, cap_counted;
    dl_counted
        *counted; /* [cap_counted] in the order of the log; where it is full, the first goes */
    size_t n, cap;
    dl_strikes at[]; /* [cap] in the order of their first strikes; where it is full, newcomers get
                      * none */
} dl_bans;

/* *out is NULL where the run bans nobody and looks for no repeats. DILOCO_ENOMEM. The caller
 * destroys it. */
DL_MUST_CHECK diloco_status dl_bans_create(dl_bans **out, const dl_config *config,
                                           size_t max_members);
void dl_bans_destroy(dl_bans *bans);                     /* NULL is fine */
void dl_bans_begin(dl_bans *bans);                       /* as before the first entry */
void dl_bans_copy(dl_bans *to, const dl_bans *from);     /* of the same run */
bool dl_bans_has(const dl_bans *bans, const char *name); /* is it banned now? NULL: nobody is */
uint64_t dl_bans_until(const dl_bans *bans, const char *name); /* 0: it is not */
uint64_t dl_bans_strikes(const dl_bans *bans, const char *name);
size_t dl_bans_n(const dl_bans *bans); /* how many are banned now */
/* Has a contribution of this body counted for it, of those that are kept? NULL: none is. */
bool dl_bans_has_counted(const dl_bans *bans, const char *name, dl_hash body);

/* Advance by entry number e, which counted and rejected whom `entry` names; NULL: it is void. */
void dl_bans_fold(dl_bans *bans, uint64_t e, const dl_entry *entry);
dl_hash dl_bans_digest(const dl_bans *bans);

/* NULL, or why the entry is void: it counts or rejects who is banned, or what it says is behind it
 * is not what follows. `bans` and `scratch` are NULL where the run has none. */
const char *dl_bans_void_reason(const dl_bans *bans, dl_bans *scratch, const dl_entry *entry);

/* As members "bans" and "counted" of the open object; and back: DILOCO_EPROTO. */
void dl_bans_write(dl_json *j, const dl_bans *bans);
DL_MUST_CHECK diloco_status dl_bans_read(dl_bans *bans, dl_json_value root);

#endif
