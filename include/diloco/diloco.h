/* diloco.h - all of libdiloco: a run for any trainer, its settings, and reading its log. The
 * project's own trainer is a library of its own (train.h, libdiloco-train).
 *
 * For every part (docs/c.md): a process may have any number of runs, and the library neither prints
 * nor exits. One thread at a time uses a handle, unless its header allows more; any thread calls
 * functions without a handle. Three things belong to the whole process: the sink of log.h,
 * diloco_store_link, and the names of callers' stores (user.h). */
#ifndef DILOCO_DILOCO_H
#define DILOCO_DILOCO_H

#include <diloco/config.h>
#include <diloco/inspect.h>
#include <diloco/log.h>
#include <diloco/loop.h>
#include <diloco/run.h>
#include <diloco/status.h>
#include <diloco/tensor.h>
#include <diloco/user.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of these headers. A program compiled with them runs with every libdiloco of the same
 * series (MAJOR.MINOR) and of this version or a later one. */
#define DILOCO_VERSION_MAJOR 0
#define DILOCO_VERSION_MINOR 2
#define DILOCO_VERSION_PATCH 0
#define DILOCO_VERSION_NUMBER                                                                      \
    (DILOCO_VERSION_MAJOR * 10000 + DILOCO_VERSION_MINOR * 100 + DILOCO_VERSION_PATCH)

DILOCO_API const char *diloco_version(void); /* of the library: "0.2.0" */
DILOCO_API int diloco_version_number(void);  /* the same as DILOCO_VERSION_NUMBER */
DILOCO_API const char *diloco_isa(void);     /* the vector kernels in use: "avx512", … */
DILOCO_API int diloco_cores(void);           /* that this process may use */

#ifdef __cplusplus
}
#endif
#endif
