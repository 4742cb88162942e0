/* diloco.h - all of libdiloco: the run of any trainer, its settings, reading its log. The
 * project's own trainer is apart (train.h, libdiloco-train).
 *
 * What holds for every part (docs/c.md): any number of runs in one process; nothing prints or
 * exits; a handle is used by one thread at a time where its header does not say more, and
 * functions without a handle by any. What belongs to the process as a whole is the sink of
 * log.h, diloco_store_link, and the names of callers' stores (user.h). */
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

/* Of these headers. What was compiled with them runs with every libdiloco of the same series
 * (MAJOR.MINOR) and this version or a later one. */
#define DILOCO_VERSION_MAJOR 0
#define DILOCO_VERSION_MINOR 2
#define DILOCO_VERSION_PATCH 0
#define DILOCO_VERSION_NUMBER                                                                      \
    (DILOCO_VERSION_MAJOR * 10000 + DILOCO_VERSION_MINOR * 100 + DILOCO_VERSION_PATCH)

DILOCO_API const char *diloco_version(void); /* of the library: "0.2.0" */
DILOCO_API int diloco_version_number(void);  /* … as DILOCO_VERSION_NUMBER */
DILOCO_API const char *diloco_isa(void);     /* the vector kernels in use: "avx512", … */
DILOCO_API int diloco_cores(void);           /* that this process may use */

#ifdef __cplusplus
}
#endif
#endif
