/* playback.h - a measured run on another link: its record, replayed.
 *
 * From the record (docs/architecture.md section 9) come, for each replica, the seconds of every
 * inner step, of encoding and of the outer step. The bytes of every contribution and entry, of
 * snapshots and heartbeats come from it, too. They are put on a link again, in the same order:
 *
 *   joining          down the replica's link, before its first step: the bytes of
 *                    its first entry beyond those of the others
 *   a contribution   encode; then up the replica's link: its bytes, and 2 requests
 *   an entry         when all its members' contributions are up: down the replica's link: its
 *                    bytes, and M + 2 requests; then the outer step
 *                    training waits for the entry tau steps after its contribution
 *   a snapshot       up and down in the background, after an entry, an equal part after each;
 *                    the next contribution waits for it; the last one ends the run
 *
 * Up and down are two queues of each replica; the store is as fast as asked. The record is played
 * on its own link first. Its additional time (saving, evaluation, polling) is the replica's own,
 * and is added to the play on the link asked about. That own link is given, or named by the record
 * of a run with --link. Otherwise it is estimated from the puts of contributions. On its own link,
 * given or named, a record comes out as it was. */
#ifndef DL_PLAN_PLAYBACK_H
#define DL_PLAN_PLAYBACK_H

#include "plan/forecast.h"

typedef struct dl_playback dl_playback;

DL_MUST_CHECK diloco_status dl_playback_create(dl_playback **out);
void dl_playback_destroy(dl_playback *playback); /* NULL is fine */

/* One line of the record, in its order; lines of several replicas may be mixed. Of a replica that
 * was started again only its last generation counts. Events that say nothing about time are passed
 * over. DILOCO_EPROTO: not a line of a record. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_playback_line(dl_playback *playback, const char *line, size_t len);

typedef struct dl_playback_args {
    dl_plan_link link;
    const dl_plan_link *recorded; /* the record's own; NULL: as it says, or estimated */
    int64_t tau;                  /* < 0: as recorded, the steps between contribution and entry */
} dl_playback_args;

typedef struct dl_playback_result {
    uint64_t replicas, entries, steps; /* steps: of all replicas */
    uint64_t ended;                    /* replicas whose record has its end */
    uint64_t absent;                   /* members of entries that no line is from */
    uint64_t tau;
    double bytes_sent, bytes_received;
    double measured_s, measured_utilization; /* as recorded; 0: the record has no end */
    double predicted_s, predicted_utilization;
} dl_playback_result;

/* DILOCO_EINVAL: the record has no steps or no entries. */
DL_MUST_CHECK diloco_status dl_playback_predict(dl_playback_result *out, dl_playback *playback,
                                                const dl_playback_args *args);

#endif
