/* shipper.h - the output of a job, uploaded to the run's store while it is written.
 *
 * It is for executors whose backend has no log (dl_executor.logs is NULL). output.h reads it. The
 * store has it in parts, each created once:
 *
 *     out/<job>/<process>-<part>.zst      one zstd frame (log/zstd_text.h) of at most 1 MiB of text
 *
 * A part is uploaded once it has 256 KiB or is 5 seconds old. So a killed machine loses the last
 * seconds of output at most, and the time of one upload. The newest parts are kept, at most
 * DL_OUTPUT_PARTS and DL_OUTPUT_BYTES of a job. A store that fails or is full stops nothing: the
 * newest 4 MiB wait in memory, and a line in the output has the number of bytes that were
 * dropped. */
#ifndef DL_LAUNCH_SHIPPER_H
#define DL_LAUNCH_SHIPPER_H

#include "base/clock.h"
#include "base/file.h"

/* Kept parts of a job, bytes of their objects, and bytes of the text of one part. */
enum { DL_OUTPUT_PARTS = 4096, DL_OUTPUT_BYTES = 64 << 20, DL_OUTPUT_TEXT = 1 << 20 };

typedef struct dl_shipper dl_shipper;

/* dl_shipper_create starts a thread that uploads to the store at `url`, for the job of this name.
 * The store is opened by that thread, which tries again while the store fails. Returns
 * DILOCO_EINVAL if the name cannot be that of a job, or DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_shipper_create(dl_shipper **out, const char *url, const char *job);

/* dl_shipper_add takes bytes of the output. It waits for no store. Any thread. */
void dl_shipper_add(dl_shipper *shipper, const void *bytes, size_t n);

/* dl_shipper_close uploads the rest and frees the shipper. It returns after `patience` at the
 * latest, or soon after. If a request to the store has not returned by then, its thread and memory
 * are left to the end of the process. NULL is fine. */
void dl_shipper_close(dl_shipper *shipper, dl_time patience);

#endif
