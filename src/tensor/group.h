/* group.h - devices that compute one gradient together, and the collective operations between them.
 *
 * A collective is queued on all devices of the group by one call, in order with their other work.
 * So one thread can use the group, and devices cannot disagree on the next collective. */
#ifndef DL_TENSOR_GROUP_H
#define DL_TENSOR_GROUP_H

#include "tensor/backend.h"

typedef struct dl_group dl_group;

/* dl_group_create makes a group of n >= 2 backends on different cards. Rank i is backends[i]. They
 * are borrowed until destroy. Returns DILOCO_EREFUSED if the library of collectives is missing or
 * refuses the cards, DILOCO_EIO if it fails, DILOCO_ENOMEM; *out is then NULL. */
DL_MUST_CHECK diloco_status dl_group_create(dl_group **out, dl_backend *const *backends, size_t n);
void dl_group_destroy(dl_group *group); /* NULL is fine */

/* dl_group_broadcast queues a copy of rank 0's array to all others: f32[count], arrays[i] on rank
 * i. dl_group_sum queues arrays[0] += the arrays of all other ranks, which keep theirs. The order
 * of its additions depends on the library and on the count alone. A failure is kept, and the next
 * dl_group_wait returns it. */
void dl_group_broadcast(dl_group *group, float *const *arrays, size_t count);
void dl_group_sum(dl_group *group, float *const *arrays, size_t count);

/* dl_group_wait waits until all devices have done their work. A collective waits for every device,
 * so a device that fails would leave the others waiting: they are then released, and the group can
 * do nothing more. Returns DILOCO_EIO if a device or the library has failed, now or before. */
DL_MUST_CHECK diloco_status dl_group_wait(dl_group *group);

/* dl_group_make_room precedes copies of `bytes` to rank i that are queued after a collective. A
 * copy to a device may wait for that device alone. If these copies could, and a collective may be
 * in flight, dl_group_make_room first waits as dl_group_wait does. Otherwise it returns at once.
 * Returns the errors of dl_group_wait. */
DL_MUST_CHECK diloco_status dl_group_make_room(dl_group *group, size_t i, size_t bytes);

#endif
