/* mirrors.h - tensors that the run cannot work on where they are: on a device, or narrower than the
 * f32 of the state. Each has a mirror, a copy in host memory of the type that the state stores. The
 * run reads and writes the mirrors alone; they are brought up to date before what is read is the
 * trainer's, and what was written is brought back behind it.
 *
 * A mirror holds only values that its tensor can hold: who writes a narrow one rounds first. So to
 * bring back and to bring up to date changes nothing. */
#ifndef DL_STATE_MIRRORS_H
#define DL_STATE_MIRRORS_H

#include "base/status.h"
#include <diloco/tensor.h>

typedef struct dl_mirrors dl_mirrors;

/* For those of tensors[n] that need one; their data becomes the mirror, their dtype stays. devices
 * [n]: NULL where it is host memory; borrowed. *out is NULL where none needs one. DILOCO_EINVAL:
 * what dl_manifest_init refuses; DILOCO_ENOMEM: the tensors are as they were. */
DL_MUST_CHECK diloco_status dl_mirrors_create(dl_mirrors **out, diloco_tensor *tensors,
                                              const diloco_device *const *devices, size_t n);
void dl_mirrors_destroy(dl_mirrors *m); /* NULL is fine */

enum { DL_ALL_FRAGMENTS = -1 };

/* The trainer's values into the mirrors of a fragment; and back. Nothing where m is NULL. What the
 * device says when it fails is returned from then on. */
DL_MUST_CHECK diloco_status dl_mirrors_pull(dl_mirrors *m, int fragment);
void dl_mirrors_push(dl_mirrors *m, int fragment);
DL_MUST_CHECK diloco_status dl_mirrors_check(const dl_mirrors *m);

#endif
