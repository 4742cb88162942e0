/* snapshot_parts.h - the facts of a snapshot that snapshot_write.c writes and snapshot.c checks. */
#ifndef DL_STATE_SNAPSHOT_PARTS_H
#define DL_STATE_SNAPSHOT_PARTS_H

#include "log/runfile.h"
#include "log/signed.h"
#include "state/image.h"

#define DL_SNAPSHOT_FORMAT "diloco-snapshot" /* the seal of a manifest */

/* An image's length and hashes; the cryptographic one if the run's objects are signed. */
typedef struct dl_image_facts {
    size_t bytes;
    dl_hash digest;
    dl_strong strong;
} dl_image_facts;

static inline dl_statement dl_snapshot_statement(const char *run, uint64_t entry,
                                                 const dl_generation *generation)
{
    return (dl_statement){.kind = "snapshot", .run = run, .entry = entry, .generation = generation};
}

static inline bool dl_snapshot_is_signed(const dl_runfile *run)
{
    return run->identity.policy != DL_TRUSTED;
}

/* Returns whether the object is at fault, and not the connection. */
static inline bool dl_snapshot_is_damage(diloco_status status)
{
    return status == DILOCO_EPROTO || status == DILOCO_ENOENT || status == DILOCO_EDIFFERS ||
           status == DILOCO_EREFUSED || status == DILOCO_EIO;
}

/* A name in snap/. */
typedef struct dl_snapshot_name {
    uint64_t entry;
    dl_generation generation;
} dl_snapshot_name;

/* The names for entries from `from` to `before`. Set the first group of members. */
typedef struct dl_snapshot_listing {
    dl_store *store;
    const dl_runfile *run;
    dl_time until;
    uint64_t from, before;
    bool newest; /* the newest ones come first; else the oldest */
    size_t room; /* names that are kept at most; 0: half a million */

    dl_buf found;      /* an array of dl_snapshot_name, oldest first */
    size_t first, end; /* of those that were not taken yet */
    size_t n_names;    /* so far; if there are many, `found` has one for each entry */
    bool log;          /* the run has one */
    bool full;         /* there are more names than room */
    dl_key after;      /* of the listing */
} dl_snapshot_listing;

/* Lists the names. Many forged ones cost few requests. The caller deinits list->found, also after
 * an error. */
DL_MUST_CHECK diloco_status dl_snapshot_list(dl_snapshot_listing *list);
/* Takes the next name to try, and sets *there to whether there is one. Among many names it is, for
 * each entry, that of the entry's creator, whether it is listed or not. It takes one request. */
DL_MUST_CHECK diloco_status dl_snapshot_next(bool *there, dl_snapshot_name *out,
                                             dl_snapshot_listing *list);

#endif
