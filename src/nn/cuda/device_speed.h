/* device_speed.h - how fast a card is with the kernels of this program. */
#ifndef DL_NN_CUDA_DEVICE_SPEED_H
#define DL_NN_CUDA_DEVICE_SPEED_H

#include "tensor/backend.h"

typedef struct dl_device_speed {
    double product_flops; /* a second, of float32 matrix products: multiplications and additions */
    double bf16_product_flops; /* the same with factors and results in bfloat16 */
    double copy_bytes;         /* a second, read and written by copies within the device's memory */
} dl_device_speed;

/* dl_cuda_measure runs products and copies of growing size, until one size takes long enough for
 * the clock: less than a second on a card. Returns DILOCO_EIO if the device fails, DILOCO_ENOMEM.
 */
DL_MUST_CHECK diloco_status dl_cuda_measure(dl_device_speed *out, dl_backend *backend);

#endif
