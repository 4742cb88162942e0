/* playback_parts.h - what playback_lines.c makes of a record and playback.c plays. */
#ifndef DL_PLAN_PLAYBACK_PARTS_H
#define DL_PLAN_PLAYBACK_PARTS_H

#include "plan/playback.h"

enum { DL_PLAYBACK_NAME_CAP = 64 };

typedef enum dl_move_kind {
    DL_MOVE_STEP, /* an inner step */
    DL_MOVE_SEND, /* a contribution */
    DL_MOVE_TAKE  /* a committed entry */
} dl_move_kind;

typedef struct dl_move {
    dl_move_kind kind;
    bool counted;         /* SEND: its entry names it a member */
    uint64_t entry;       /* SEND, TAKE */
    uint64_t turn, index; /* order of the play, and of the record */
    double seconds;       /* STEP: of it; SEND: encoding; TAKE: the exchange without waiting */
    double bytes;         /* SEND: up; TAKE: down */
    double put_s;         /* SEND */
    double up_at;         /* SEND, in the play: when it is in the store */
    double outer_s;       /* TAKE */
    double n_members;     /* TAKE */
} dl_move;

typedef struct dl_played {
    char name[DL_PLAYBACK_NAME_CAP];
    dl_move *moves;
    size_t n, cap;
    double step_s;      /* of all steps */
    double waited_s;    /* for others, recorded */
    double utilization; /* of its end line; 0: none */

    /* the play */
    size_t at;
    double clock, up, down;
} dl_played;

struct dl_playback {
    dl_played *replicas;
    size_t n, cap;
    uint64_t line;
};

/* The contribution to `entry` among the moves before p->moves[end]; NULL: none. *steps (may be
 * NULL): the steps after it. Looks a bounded way back. */
dl_move *dl_playback_sent(dl_played *p, size_t end, uint64_t entry, uint64_t *steps);

#endif
