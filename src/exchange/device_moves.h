/* device_moves.h - a due point's arithmetic on the device of the trainer's tensors
 * (trainer.device_exchange): the movement of a fragment, its payload, and adoption. The device has
 * a copy of theta of all fragments, movements of the captures in flight, and one payload.
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
    size_t begin;  /* and in the movements */
    size_t n;
} dl_device_part;

/* A movement f32[n], and places for it in host memory. A place that is NULL is not filled. */
typedef struct dl_device_movement {
    size_t begin; /* the first element's place in the movements */
    size_t n;
    double *squares;        /* the sum of squares of each block of DL_BLOCK elements */
    float *values;          /* [n] */
    unsigned char *payload; /* [payload_len] what `encode` wrote last */
    size_t payload_len;
} dl_device_movement;

/* The memory of a device: floats of theta and of movements, elements of the largest movement, and
 * bytes of a payload. */
typedef struct dl_device_room {
    size_t theta, movements, largest, payload;
} dl_device_room;

typedef struct dl_device_moves {
    void *user; /* handed to each */
    /* Allocates the memory. It may be called again, with the same sizes. Returns DILOCO_ENOMEM. */
    diloco_status (*prepare)(void *user, const dl_device_room *room);
    /* Queues a copy of values[n] to theta[at]. The caller may change them after the return. */
    void (*put)(void *user, size_t at, const float *values, size_t n);
    /* Queue movement = theta - tensor, and tensor = theta + mix (tensor - theta). */
    void (*form)(void *user, const dl_device_part *part);
    void (*adopt)(void *user, const dl_device_part *part, float mix);
    /* Queues the payload of the movement that begins at `begin`. The form's codec is one of
     * integers (codec/blocks.h). */
    void (*encode)(void *user, const dl_codec_form *form, size_t begin);
    /* Waits, and fills the places. Movements stay on the device. Returns DILOCO_EIO if the
     * device has failed. */
    diloco_status (*collect)(void *user, const dl_device_movement *to);
} dl_device_moves;

#endif
