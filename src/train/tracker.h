/* tracker.h - run.track: the numbers of a replica's record for programs that draw them.
 *
 *     tensorboard:DIR   DIR/<replica>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, an event file
 *                       of TensorBoard: scalars, a histogram of the members' norms at each
 *                       entry, and the run's settings as hparams
 *     csv:FILE          lines "seconds,replica,tag,step,value", appended
 *
 * An event file is a sequence of records (docs/formats.md): a length of 8 bytes, the masked CRC-32C
 * of these, a protocol buffer, its masked CRC-32C. A tracker that cannot write warns once, and
 * training continues. One thread at a time. */
#ifndef DL_TRAIN_TRACKER_H
#define DL_TRAIN_TRACKER_H

#include "base/buf.h"
#include "base/config.h"

#include <stdbool.h>
#include <stdint.h>

/* Zeroed with fd -1: no tracker. */
typedef struct dl_tracker {
    int fd; /* -1: none */
    const struct dl_tracker_kind *kind;
    bool failed; /* the failure to write was reported */
    char replica[48];
    dl_buf out;                                     /* not written yet */
    dl_buf event, summary, value, inner, histogram; /* messages being built, the innermost last */
    double *norms;                                  /* space for those of one entry */
    double flushed; /* when `out` was last written, in seconds since 1970 */
} dl_tracker;

/* `where`: run.track; "": no tracker. Returns DILOCO_EINVAL if no tracker has that name, or
 * DILOCO_EIO or DILOCO_ENOENT of its file. Close it with dl_tracker_close, also after an error. */
DL_MUST_CHECK diloco_status dl_tracker_open(dl_tracker *out, const char *where,
                                            const char *replica);
/* Writes the run's settings, where the tracker has a place for them. Once, after dl_tracker_open.
 */
void dl_tracker_settings(dl_tracker *tracker, const dl_config *config);
void dl_tracker_close(dl_tracker *tracker); /* writes what is left */

/* Takes a line of the record. */
void dl_tracker_line(dl_tracker *tracker, const char *line, size_t len);

/* The checksum of a record: CRC-32C (Castagnoli), rotated and moved. */
uint32_t dl_tracker_crc(const void *bytes, size_t len);

#endif
