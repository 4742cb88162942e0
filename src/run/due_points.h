/* due_points.h - what a replica does at a stop of its pace: the pace, its tensors and the shared
 * state brought together. No waiting and no I/O, so the simulation runs it too; the owner keeps the
 * exchange from moving the state meanwhile. */
#ifndef DL_RUN_DUE_POINTS_H
#define DL_RUN_DUE_POINTS_H

#include "exchange/exec.h"
#include "protocol/pace.h"

typedef struct dl_stops {
    dl_exec *exec;
    dl_pace *pace;
    const dl_config *config;    /* the run's */
    const char *replica;        /* own name */
    const dl_train_stats *work; /* [P] trained since the base */
    float weight;               /* own, in the last commit that counted this replica; 0: none did */
    /* Nothing trained on the fragment is still to be sent. */
    void (*fresh)(void *user, uint32_t fragment);
    void *user;
} dl_stops;

/* Each does what dl_pace_next says, where that is its stop and may be done now; else nothing: the
 * log may have gone on since the caller looked. DILOCO_ENUMERIC of dl_exec_take. */
DL_MUST_CHECK diloco_status dl_stop_take(dl_stops *s, uint64_t entry);
/* False: nothing was done. */
typedef struct dl_adopted {
    dl_take take;
    dl_adoption how;
} dl_adopted;
bool dl_stop_adopt(dl_stops *s, uint64_t entry, dl_adopted *out);
void dl_stop_jump(dl_stops *s);

#endif
