/* device_moves.h - a due point's arithmetic on the device of the trainer's tensors
 * (trainer.device_exchange): the movement of a fragment, and adoption. The device has a copy of
 * theta of all fragments, and the movement of one.
 *
 * The exchange calls these functions on the trainer's thread. Each result has the bits of the
 * host's functions in tensor/kernels.h. */
#ifndef DL_EXCHANGE_DEVICE_MOVES_H
#define DL_EXCHANGE_DEVICE_MOVES_H

#include "base/status.h"
#include <stddef.h>

/* The elements of one of the run's tensors, f32[n]. */
typedef struct dl_device_part {
    size_t tensor; /* its number in the run */
    size_t theta;  /* the place of the first element in theta of all fragments */
    size_t begin;  /* and in its fragment */
    size_t n;
} dl_device_part;

typedef struct dl_device_moves {
    void *user; /* handed to each */
    /* Allocates theta f32[n], and a movement f32[largest]. It may be called again, with the same
     * sizes. Returns DILOCO_ENOMEM. */
    diloco_status (*prepare)(void *user, size_t n, size_t largest);
    /* Queues a copy of values[n] to theta[at]. The caller may change them after the return. */
    void (*put)(void *user, size_t at, const float *values, size_t n);
    /* Queue movement = theta - tensor, and tensor = theta + mix (tensor - theta). */
    void (*form)(void *user, const dl_device_part *part);
    void (*adopt)(void *user, const dl_device_part *part, float mix);
    /* Waits. Then movement[n] has its values, and squares[i] the sum of squares of block i. Returns
     * DILOCO_EIO if the device has failed. */
    diloco_status (*collect)(void *user, float *movement, double *squares, size_t n);
} dl_device_moves;

#endif
