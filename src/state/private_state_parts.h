/* private_state_parts.h - the structure of a replica's folder, which only private_state.c and
 * private_copy.c use. */
#ifndef DL_STATE_PRIVATE_STATE_PARTS_H
#define DL_STATE_PRIVATE_STATE_PARTS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "state/private_state.h"

#include <limits.h>

#define DL_PRIVATE_PREFIX "diloco.private."
typedef char dl_part_name[DILOCO_NAME_MAX + sizeof DL_PRIVATE_PREFIX]; /* with its zero byte */

/* A file that is written or read: tensors, then privates. Its arrays are kept for the next save. */
typedef struct dl_local_file {
    dl_buf header;
    size_t n_parts, cap_parts;
    dl_st_tensor *parts;         /* [cap_parts] */
    dl_span *spans;              /* [1 + cap_parts], the header first */
    dl_part_name *names;         /* [cap_parts] */
    const dl_private **privates; /* [cap_parts] NULL for a tensor */
} dl_local_file;

/* The place of a part in a copy, at a multiple of 64 bytes. */
typedef struct dl_copied_place {
    bool lent; /* in the borrowed memory, not in the copy's own */
    size_t at, len;
} dl_copied_place;

/* One copy for a save beside training. */
typedef struct dl_local_copied {
    dl_local_file file;
    dl_arena memory;         /* zeros: not reserved */
    dl_copied_place *places; /* [n_parts] of all parts */
    bool borrows;
    unsigned char *lent; /* set for each copy */
} dl_local_copied;

/* `lock` is held from open to close. */
struct dl_local {
    int lock;
    pid_t owner; /* of the lock */
    char replica[DL_REPLICA_MAX + 1];
    char path[PATH_MAX];
    dl_file_freeing freeing;
    dl_buf facts;
    dl_local_file here; /* of the trainer's own memory */
    dl_local_copied copies[DL_LOCAL_COPIES];
    bool in_flight;   /* most saves have every part */
    size_t n_sharing; /* replicas that share the free memory */
};

void dl_local_file_init(dl_local_file *file);
void dl_local_file_deinit(dl_local_file *file);

/* Sets parts, names, and in spans[1 + i] the memory of part i. Without `all` it leaves out the
 * privates that are not in use. */
DL_MUST_CHECK diloco_status dl_local_describe(dl_local_file *file, const diloco_tensor *tensors,
                                              size_t n_tensors, const dl_private *privates,
                                              size_t n_privates, bool all);
/* Makes the file's header with zeros for the digest, so that a write needs no facts. */
DL_MUST_CHECK diloco_status dl_local_make_header(dl_local *local, dl_local_file *file,
                                                 const dl_local_facts *facts);
DL_MUST_CHECK diloco_status dl_local_write_file(dl_local *local, dl_local_file *file);

#endif
