/* self_tests.h - all kernels against the CPU on the user's own device, before a model uses it. */
#ifndef DL_NN_SELF_TESTS_H
#define DL_NN_SELF_TESTS_H

#include "tensor/backend.h"

/* dl_cuda_self_test runs each kernel on small odd shapes. Returns DILOCO_EREFUSED if a result
 * differs from the CPU's, DILOCO_EIO if the device fails; the text names the kernel. DILOCO_ENOMEM.
 * The backend holds no memory of it afterwards. */
DL_MUST_CHECK diloco_status dl_cuda_self_test(dl_backend *backend);

/* The kernels that it runs; NULL after the last. */
const char *dl_cuda_self_test_kernel(size_t i);

#endif
