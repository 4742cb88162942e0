/* device_exchange.h - a due point's arithmetic on the trainer's device (trainer.device_exchange):
 * memory of the backend, and the functions that the run calls. */
#ifndef DL_TRAIN_DEVICE_EXCHANGE_H
#define DL_TRAIN_DEVICE_EXCHANGE_H

#include "exchange/device_moves.h"
#include "tensor/backend.h"
#include <diloco/tensor.h>

/* Zeroed except what is borrowed. */
typedef struct dl_device_exchange {
    dl_backend *backend;          /* borrowed, as the tensors */
    const diloco_tensor *tensors; /* the run's, with data on the backend */
    /* On the backend and owned: theta of all fragments, movements, the squares of one movement's
     * blocks, and one payload. */
    void *theta, *movements, *squares, *payload;
} dl_device_exchange;

/* Returns the functions; they borrow the exchange. */
dl_device_moves dl_device_exchange_moves(dl_device_exchange *e);
void dl_device_exchange_deinit(dl_device_exchange *e); /* zeroed is fine */

#endif
