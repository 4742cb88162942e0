/* mirrors.h - host copies of tensors that the run cannot use directly: on a device, or narrower
 * than the f32 of the state. Each has a mirror in host memory of the type that the state stores.
 * The run reads and writes only mirrors. They are updated before the run reads the trainer's
 * values, and copied back after it writes. Gradients and private pieces on a device have mirrors of
 * their own.
 *
 * A mirror holds only values that its tensor can hold, since a writer of a narrow one rounds first.
 * So copying back and updating again changes nothing. */
#ifndef DL_STATE_MIRRORS_H
#define DL_STATE_MIRRORS_H

#include "base/status.h"
#include "base/thread.h"
#include <diloco/tensor.h>

typedef struct dl_mirrors dl_mirrors;

/* Makes mirrors for those of tensors[n] that need one; their data becomes the mirror, their dtype
 * stays. devices[n]: NULL for host memory; borrowed. *out is NULL if no tensor needs a mirror.
 * Returns DILOCO_EINVAL if dl_manifest_init refuses a tensor, and DILOCO_ENOMEM; the tensors are
 * unchanged then. */
DL_MUST_CHECK diloco_status dl_mirrors_create(dl_mirrors **out, diloco_tensor *tensors,
                                              const diloco_device *const *devices, size_t n);
/* Does the same for the f32 gradients of tensors[n], whose data is not used: gradients[i] becomes
 * its mirror if it has a device. NULL stays NULL. */
DL_MUST_CHECK diloco_status dl_mirrors_create_gradients(dl_mirrors **out, const float **gradients,
                                                        const diloco_tensor *tensors,
                                                        const diloco_device *const *devices,
                                                        size_t n);
/* Adds the mirror of a private piece of `len` > 0 bytes, and makes *m if it is NULL. `name` is
 * borrowed. *host: the mirror, which costs no memory until it is touched. *index: for
 * dl_mirrors_read. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_mirrors_add_private(dl_mirrors **m, size_t *index, void **host,
                                                   const char *name, void *data, size_t len,
                                                   const diloco_device *device);
void dl_mirrors_destroy(dl_mirrors *m); /* NULL is fine */

enum { DL_ALL_FRAGMENTS = -1 };

/* dl_mirrors_pull copies the trainer's values to the mirrors of a fragment, and dl_mirrors_push
 * copies back. The pool's threads share the conversion; NULL: this thread. They do nothing if m is
 * NULL. After a device has failed, dl_mirrors_check returns its error. */
DL_MUST_CHECK diloco_status dl_mirrors_pull(dl_mirrors *m, int fragment, dl_pool *pool);
void dl_mirrors_push(dl_mirrors *m, int fragment, dl_pool *pool);
DL_MUST_CHECK diloco_status dl_mirrors_check(const dl_mirrors *m);
/* dl_mirrors_read copies the trainer's bytes of one mirror to `to` instead of the mirror, and
 * waits. Of a type that the state stores. */
DL_MUST_CHECK diloco_status dl_mirrors_read(dl_mirrors *m, size_t index, void *to);
/* dl_mirrors_settle waits for the devices of a fragment after other work on its tensors. A failure
 * is kept, as that of a copy. */
void dl_mirrors_settle(dl_mirrors *m, int fragment);

#endif
