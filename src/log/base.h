/* base.h - the base of a run: tensors that the model has and that are never exchanged, such as the
 * frozen weights under an adapter. run.json keeps a digest of each, so that a replica with other
 * weights is refused by the name of the tensor that differs. */
#ifndef DL_LOG_BASE_H
#define DL_LOG_BASE_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "log/layout.h"
#include <diloco/tensor.h>

enum { DL_BASE_KIND_MAX = 127, DL_BASE_MAX = 16384 };

typedef struct dl_base_tensor {
    char name[DILOCO_NAME_MAX + 1];
    char kind[DL_BASE_KIND_MAX + 1]; /* type and shape in the caller's words: "BF16 [4096, 4096]" */
    dl_hash digest;                  /* dl_digest_bytes of its values */
} dl_base_tensor;

typedef struct dl_base {
    dl_base_tensor *tensors; /* owned */
    size_t n;
} dl_base;

void dl_base_deinit(dl_base *base); /* zeroed is fine */

/* Append a tensor. Returns DILOCO_EINVAL if the name is empty, too long, not printable ASCII or
 * used before. The same for a kind that is too long or not printable, and for more than DL_BASE_MAX
 * tensors. DILOCO_ENOMEM. After an error the base is unchanged. */
DL_MUST_CHECK diloco_status dl_base_add(dl_base *base, const char *name, const char *kind,
                                        dl_hash digest);

/* As "base":[{"name":…,"kind":…,"digest":…},…]; an empty base writes nothing. */
void dl_base_write(dl_json *j, const dl_base *base);
/* Read the value of "base"; a missing one is an empty base. The bytes are untrusted. Returns
 * DILOCO_EPROTO if they are no base. *out is zeroed on error. */
DL_MUST_CHECK diloco_status dl_base_read(dl_base *out, dl_json_value array);

/* The words by which an error text names the two sides of a comparison. */
typedef struct dl_sides {
    char run[DL_REPLICA_MAX + 64];  /* "in the run that replica r0 created", or "in the run" */
    char here[DL_REPLICA_MAX + 64]; /* "on replica r1", or "here" */
} dl_sides;

/* A name that is NULL or "" is not known, and is left out. */
dl_sides dl_sides_of(const char *creator, const char *replica);

/* Returns DILOCO_EDIFFERS and names the first tensor that differs between the two sides. */
DL_MUST_CHECK diloco_status dl_base_matches(const dl_base *run, const dl_base *here,
                                            const dl_sides *sides);

#endif
