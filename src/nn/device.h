/* device.h - the backend of a device by the name of trainer.device. */
#ifndef DL_NN_DEVICE_H
#define DL_NN_DEVICE_H

#include "tensor/backend.h"

/* dl_device_open opens one device of a name of trainer.device (dl_device_of_name): `rank` is its
 * place in the list, from 0 and below the number of devices. A card's kernels are compared with the
 * CPU first (nn/cuda/self_test/). The result of a card that passed is kept in the user's cache
 * folder, by driver, card and device code. Returns DILOCO_EINVAL for another name,
 * DILOCO_EREFUSED if the driver, the card or device code is missing or a kernel's result is wrong,
 * DILOCO_EIO if the device fails, DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_device_open(dl_backend **out, const char *device, size_t rank);

#endif
