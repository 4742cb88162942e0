/* group.h - devices that compute one gradient together, and the collective operations between them.
 *
 * A collective is queued on all devices of the group by one call, in order with their other work.
 * So one thread can use the group, and devices cannot disagree on the next collective. */
#ifndef DL_TENSOR_GROUP_H
#define DL_TENSOR_GROUP_H

#include "tensor/backend.h"

typedef struct dl_group dl_group;

typedef struct dl_group_options {
    /* Starts to += from, f32[n], on the second stream of a device. Kernels belong to nn, so the
     * caller of the group gives this one. */
    void (*add)(dl_backend *backend, float *to, const float *from, size_t n);
    size_t piece; /* most elements that are added at once; a card holds fewer than that besides */
} dl_group_options;

/* dl_group_create makes a group of n >= 2 backends on different cards. Rank i is backends[i]. They
 * are borrowed until destroy. Returns DILOCO_EREFUSED if the library of collectives is missing or
 * refuses the cards, DILOCO_EIO if it fails, DILOCO_ENOMEM; *out is then NULL. */
DL_MUST_CHECK diloco_status dl_group_create(dl_group **out, dl_backend *const *backends, size_t n,
                                            const dl_group_options *options);
void dl_group_destroy(dl_group *group); /* NULL is fine */

/* dl_group_broadcast queues a copy of rank 0's array to all others: f32[count], arrays[i] on rank
 * i. A failure is kept, and the next dl_group_wait returns it. */
void dl_group_broadcast(dl_group *group, float *const *arrays, size_t count);

/* dl_group_scatter queues copies of rank 0's array to the others: rank i gets elements [bounds[i],
 * bounds[i + 1]). dl_group_gather queues those of each rank i to rank 0's array. A failure is kept
 * as that of a broadcast. */
void dl_group_scatter(dl_group *group, float *const *arrays, const size_t *bounds);
void dl_group_gather(dl_group *group, float *const *arrays, const size_t *bounds);

/* Sums. An element of arrays[0] becomes ((a0 + a1) + a2) + ..., in the order of the ranks; the
 * other ranks keep theirs. So a sum in parts has the bits of one of the whole.
 *
 * dl_group_sum queues the sum of whole arrays after all other work.
 *
 * A sum of a part may begin while the devices still work on other elements. dl_group_mark notes
 * that rank i's part is complete once its work so far is done; `mark` numbers the part, below
 * DL_GROUP_MARKS. After all ranks have a mark, dl_group_sum_part queues its sum beside the devices'
 * other work: f32[count], arrays[i] on rank i. dl_group_join lets later work of each device wait
 * for all sums; until then nothing else may write these elements, and no broadcast is queued. A
 * failure is kept as that of a broadcast. */
enum { DL_GROUP_MARKS = 32 };
void dl_group_sum(dl_group *group, float *const *arrays, size_t count);
void dl_group_mark(dl_group *group, size_t i, size_t mark);
void dl_group_sum_part(dl_group *group, float *const *arrays, size_t count, size_t mark);
void dl_group_join(dl_group *group);

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
