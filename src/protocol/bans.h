/* bans.h - the log's table of replicas whose contributions were rejected too often, and of the
 * contributions that counted before (PROTOCOL P27).
 *
 * A commit names the rejected contributions and the reasons (judge.h). A rejection whose reason
 * only its replica can cause (dl_bans_is_strike) is a strike. With check.ban_after strikes,
 * consecutive or not, a replica is off the roster for check.ban_entries entries. Its contributions
 * do not count meanwhile; it continues to follow the log, and then starts without strikes.
 *
 * With check.repeat the digests of each replica's last check.repeat counted contributions are kept,
 * too. These tables are part of the control state, and a function of the log alone. Each entry
 * names their digest after it. */
#ifndef DL_PROTOCOL_BANS_H
#define DL_PROTOCOL_BANS_H

#include "base/json.h"
#include "log/entry.h"

typedef struct dl_strikes {
    char replica[DL_REPLICA_MAX + 1];
    uint64_t n;
    uint64_t until; /* it may count from this entry on; 0: it is not banned */
} dl_strikes;

/* A contribution that has counted. */
typedef struct dl_counted {
    char replica[DL_REPLICA_MAX + 1];
    dl_hash body;
} dl_counted;

typedef struct dl_bans {
    uint64_t after, entries; /* check.ban_after, 0: no bans; check.ban_entries */
    size_t repeat;           /* check.repeat */
    size_t n_counted, cap_counted;
    /* [cap_counted] in the order of the log; if it is full, the oldest is dropped */
    dl_counted *counted;
    size_t n, cap;
    /* [cap] in the order of their first strikes; if it is full, further replicas get no strikes */
    dl_strikes at[];
} dl_bans;

/* Creates the tables. *out is NULL if the run has no bans and does not look for repeats. Returns
 * DILOCO_ENOMEM. The caller destroys it. */
DL_MUST_CHECK diloco_status dl_bans_create(dl_bans **out, const dl_config *config,
                                           size_t max_members);
void dl_bans_destroy(dl_bans *bans);                 /* NULL is fine */
void dl_bans_begin(dl_bans *bans);                   /* as before the first entry */
void dl_bans_copy(dl_bans *to, const dl_bans *from); /* of the same run */
/* Returns whether it is banned now; `bans` NULL: it is not. */
bool dl_bans_has(const dl_bans *bans, const char *name);
uint64_t dl_bans_until(const dl_bans *bans, const char *name); /* 0: it is not */
uint64_t dl_bans_strikes(const dl_bans *bans, const char *name);
size_t dl_bans_n(const dl_bans *bans); /* how many are banned now */
/* Returns whether one of its kept contributions that counted had this body. `bans` NULL: false. */
bool dl_bans_has_counted(const dl_bans *bans, const char *name, dl_hash body);

/* Returns whether a rejection for `reason` counts towards a ban. It counts only if it was found
 * after the signature (if members have keys), and only its replica can cause it. A copy may be the
 * original, and another process may upload an object with a wrong base under a replica's name. */
bool dl_bans_is_strike(const char *reason);

/* Advances by entry number e with its members and rejections; `entry` NULL: it is void. */
void dl_bans_apply(dl_bans *bans, uint64_t e, const dl_entry *entry);
dl_hash dl_bans_digest(const dl_bans *bans);

/* Returns why the entry is void, or NULL. It may count or reject a banned replica, or its digest
 * may not be that of the tables after it. `bans` and `scratch` are NULL if the run has no bans. */
const char *dl_bans_void_reason(const dl_bans *bans, dl_bans *scratch, const dl_entry *entry);

/* Write the tables as members "bans" and "counted" of the open object, and read them; the reader
 * returns DILOCO_EPROTO. */
void dl_bans_write(dl_json *j, const dl_bans *bans);
DL_MUST_CHECK diloco_status dl_bans_read(dl_bans *bans, dl_json_value root);

#endif
