/* replay.h - the log read from a snapshot on, by the machine that replicas use. This one never
 * trains, sends or decides. Verifying, evaluating and exporting are replays. */
#ifndef DL_INSPECT_REPLAY_H
#define DL_INSPECT_REPLAY_H

#include "exchange/exec.h"

/* Counts of a replay, the first dispute, and a suspect void entry. */
typedef struct dl_replay_report {
    uint64_t replayed, commits, aborts, voids;
    uint64_t disputes, first_dispute; /* entries whose update was combined, or whose
                                       * contributions were judged, for all, and wrongly, or are
                                       * damaged */
    uint64_t last_dispute;            /* 1 + the last of these; 0: none */
    char damaged[256];                /* the error of the first of these; "" */
    /* 1 + a void entry that an audit does not accept: its committer made a false claim, or no valid
     * entry follows it; 0: none */
    uint64_t suspect;
    bool suspect_for_good;    /* a false claim; the first is kept */
    char suspect_reason[256]; /* "" without one */
} dl_replay_report;

/* Apply every entry after exec's state. An audit also repeats the combined updates,
 * and compares. `progress` (may be NULL) hears each entry. DILOCO_ENOENT:
 * contributions that are needed are gone. */
DL_MUST_CHECK diloco_status dl_replay(dl_replay_report *out, dl_exec *exec, const dl_runfile *run,
                                      bool audit, uint64_t entries,
                                      void (*progress)(void *user, uint64_t done), void *user);

/* Note for replays by this exec that entries [first, end) are void by an operator's decision
 * (voided.h). */
void dl_replay_voids(dl_exec *exec, uint64_t first, uint64_t end);

/* An audit from the oldest snapshot that has all entries after it; *first is its entry. The caller
 * has read the oldest snapshot of the store into exec's state. A straggler may have put it after
 * the collection of the others: it is passed over with a warning.
 */
DL_MUST_CHECK diloco_status dl_replay_kept(dl_replay_report *out, uint64_t *first, dl_exec *exec,
                                           uint64_t entries,
                                           void (*progress)(void *user, uint64_t done), void *user,
                                           dl_time until);

#endif
