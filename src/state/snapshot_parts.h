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

#endif
