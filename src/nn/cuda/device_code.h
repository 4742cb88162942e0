/* device_code.h - the kernels as code for GPUs, which cmake/device_code.cmake puts into the
 * program. */
#ifndef DL_NN_DEVICE_CODE_H
#define DL_NN_DEVICE_CODE_H

#include "base/file.h"

/* The lowest compute capability that the images are for: 10 major + minor. */
enum { DL_DEVICE_CODE_OLDEST = 80 };

/* dl_device_code writes the images to out[most] and returns their number: 0 if the program was
 * built without nvcc. They are constant. */
size_t dl_device_code(dl_span *out, size_t most);

#endif
