/* device_moves.h - a due point's arithmetic on the device of the trainer's tensors
 * (trainer.device_exchange): the movement of a fragment, its payload, and adoption. The device has
 * a copy of theta of all fragments, and the movement and the payload of one.
 *
 * The exchange calls these functions on the trainer's thread. Each result has the bits of the
 * host's functions in tensor/kernels.h. */
#ifndef DL_EXCHANGE_DEVICE_MOVES_H
#define DL_EXCHANGE_DEVICE_MOVES_H

#include "codec/codec.h"

/* The elements of one of the run's tensors, f32[n]. */
typedef struct dl_device_part {
    size_t tensor; /* its number in the run */
    size_t theta;  /* the place of the first element in theta of all fragments */
    size_t begin;  /* and in its fragment */
    size_t n;
} dl_device_part;

/* Places of a movement f32[n] in host memory. */
typedef struct dl_device_movement {
    size_t n;
    double *squares;        /* the sum of squares of each block of DL_BLOCK elements */
    float *values;          /* NULL: they stay on the device */
    unsigned char *payload; /* [payload_len] what `encode` wrote; NULL: nothing */
    size_t payload_len;
} dl_device_movement;

typedef struct dl_device_moves {
    void *user; /* handed to each */
    /* Allocates theta f32[n], a movement f32[largest] and a payload of some bytes. It may be called
     * again, with the same sizes. Returns DILOCO_ENOMEM. */
    diloco_status (*prepare)(void *user, size_t n, size_t largest, size_t payload);
    /* Queues a copy of values[n] to theta[at]. The caller may change them after the return. */
    void (*put)(void *user, size_t at, const float *values, size_t n);
    /* Queue movement = theta - tensor, and tensor = theta + mix (tensor - theta). */
    void (*form)(void *user, const dl_device_part *part);
    void (*adopt)(void *user, const dl_device_part *part, float mix);
    /* Queues the movement's payload, of a form whose codec is of integers (codec/blocks.h). */
    void (*encode)(void *user, const dl_codec_form *form);
    /* Waits, and fills the places. The movement stays on the device. Returns DILOCO_EIO if the
     * device has failed. */
    diloco_status (*collect)(void *user, const dl_device_movement *to);
} dl_device_moves;

#endif
