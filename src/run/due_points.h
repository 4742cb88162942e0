/* due_points.h - carries out a stop of a replica's pace with its tensors and the shared state. It
 * does not wait and does no I/O, so the simulation runs it too. The owner keeps the exchange from
 * moving the state meanwhile. */
#ifndef DL_RUN_DUE_POINTS_H
#define DL_RUN_DUE_POINTS_H

#include "exchange/exec.h"
#include "protocol/pace.h"

typedef struct dl_stops {
    dl_exec *exec;
    dl_pace *pace;
    const dl_config *config;    /* the run's */
    const char *replica;        /* this replica's name */
    const dl_train_stats *work; /* [P] trained since the base */
    float weight; /* this replica's, in the last commit that counted it; 0: no commit did */
    /* Nothing trained on the fragment is left to send. */
    void (*fresh)(void *user, uint32_t fragment);
    void *user;
} dl_stops;

/* Each carries out the next stop of dl_pace_next, if it is of this kind and may be done now, else
 * does nothing. The log may have advanced since the caller looked. dl_stop_capture returns
 * the error of dl_exec_capture; the stop is still due then. */
DL_MUST_CHECK diloco_status dl_stop_capture(dl_stops *s, uint64_t entry);
/* Returns false if nothing was done. */
typedef struct dl_adopted {
    dl_pace_capture capture;
    dl_adoption how;
} dl_adopted;
bool dl_stop_adopt(dl_stops *s, uint64_t entry, dl_adopted *out);
void dl_stop_jump(dl_stops *s);

#endif
