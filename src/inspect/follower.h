/* follower.h - a run read again and again, each object of it once, for a page or a terminal
 * that shows a run in progress.
 *
 * A follower keeps its store open. It reads the next entry and each replica's next part of the
 * record by their names, so that nothing is listed for them; it lists four prefixes a look. One
 * thread at a time. It writes nothing. */
#ifndef DL_INSPECT_FOLLOWER_H
#define DL_INSPECT_FOLLOWER_H

#include "inspect/run_status.h"

/* A run that is followed. It has to be closed, and is used by one thread at a time. */
typedef struct dl_follower dl_follower;

/* The receiver of what is new. Pointers are valid during the call. A status other than OK ends
 * the reading and is returned. */
typedef struct dl_follower_sink {
    void *user; /* passed to both */
    /* The next entry. `chained`: its prev is the digest of the entry before it. */
    diloco_status (*entry)(void *user, const diloco_log_entry *entry, bool chained);
    /* The next line of a generation's record (docs/architecture.md section 9), without its newline.
     */
    diloco_status (*line)(void *user, const dl_generation *generation, const char *line,
                          size_t len);
} dl_follower_sink;

/* DILOCO_ENOENT: no run there. The caller closes it. */
DL_MUST_CHECK diloco_status dl_follower_open(dl_follower **out, const char *url);
void dl_follower_close(dl_follower *follower); /* NULL is fine */
/* Bound the generations that are followed, before the first look. For tests: 65,536 by default. */
void dl_follower_set_most(dl_follower *follower, size_t n);

/* Give the sink all entries and lines that are new. *more: `until` came first, and there may be
 * more. Records are asked for at most every DL_FOLLOWER_RECORD_S seconds: replicas write them that
 * seldom.
 */
#define DL_FOLLOWER_RECORD_S 5.0
DL_MUST_CHECK diloco_status dl_follower_read(dl_follower *f, bool *more,
                                             const dl_follower_sink *sink, dl_time until);

/* Read which replicas there are, which are alive, and what is waited for (dl_status_book_look).
 * DILOCO_ENOENT: the run is gone; DILOCO_EDIFFERS: another run has its place. */
DL_MUST_CHECK diloco_status dl_follower_look(dl_follower *f);

const diloco_run_status *dl_follower_status(const dl_follower *f); /* as of the last look */
/* Return true if the last read reached the end of the log. If not, more entries may follow, not
 * only record lines. */
bool dl_follower_has_log(const dl_follower *f);
const dl_runfile *dl_follower_run(const dl_follower *f);

#endif
