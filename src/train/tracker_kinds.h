/* tracker_kinds.h - the functions of a tracker, and the list of trackers. A new one is a file that
 * defines dl_tracker_<name>, and its line in DL_TRACKERS (base/options/run_options.h). */
#ifndef DL_TRAIN_TRACKER_KINDS_H
#define DL_TRAIN_TRACKER_KINDS_H

#include "base/config.h"
#include "train/tracker.h"

typedef struct dl_tracker_kind {
    const char *name; /* run.track is "name:place" */
    /* Opens t->fd; t->out may get the beginning of the file. */
    diloco_status (*open)(dl_tracker *t, const char *place);
    /* Writes a finite value. */
    void (*number)(dl_tracker *t, const char *tag, uint64_t step, double value);
    /* Writes the distribution of n values. NULL: the tracker has no histograms. */
    void (*histogram)(dl_tracker *t, const char *tag, uint64_t step, const double *values,
                      size_t n);
    /* Write the run's settings, once, after open. NULL: the tracker has no place for them. */
    void (*settings)(dl_tracker *t, const dl_config *config);
} dl_tracker_kind;

/* The settings that a tracker writes: those on which the replicas of a run agree, away from their
 * defaults, and the preset in any case. No secret is among them. */
bool dl_tracker_has_setting(const dl_option *row, const dl_config *config);

#define DL_DECLARE(name, place) extern const dl_tracker_kind dl_tracker_##name;
DL_TRACKERS(DL_DECLARE)
#undef DL_DECLARE

/* For the kinds: write the bytes in t->out; write them if n more would be too many; stop after a
 * failure, with one warning. */
void dl_tracker_flush(dl_tracker *t);
void dl_tracker_make_room(dl_tracker *t, size_t n);
void dl_tracker_give_up(dl_tracker *t, const char *why);

#endif
