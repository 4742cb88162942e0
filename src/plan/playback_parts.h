/* playback_parts.h - the moves that playback_lines.c makes of a record and playback.c plays. */
#ifndef DL_PLAN_PLAYBACK_PARTS_H
#define DL_PLAN_PLAYBACK_PARTS_H

#include "plan/playback.h"

enum { DL_PLAYBACK_NAME_CAP = 64 };

typedef enum dl_move_kind {
    DL_MOVE_STEP, /* an inner step */
    DL_MOVE_SEND, /* a contribution */
    DL_MOVE_APPLY /* a committed entry */
} dl_move_kind;

/* One move of one replica. Members apply to the kinds that their comments name. */
typedef struct dl_move {
    dl_move_kind kind;
    bool counted;          /* SEND: its entry names it a member */
    bool committer;        /* APPLY: it created the entry, and so makes the snapshots after it */
    uint64_t done;         /* steps of its replica before it, its own included */
    uint64_t entry;        /* SEND, APPLY */
    uint64_t turn, index;  /* order of the play, and of the record */
    double seconds;        /* STEP: of it; SEND: encoding; APPLY: the outer step */
    double bytes;          /* SEND: up; APPLY: down, in the play */
    double recorded_bytes; /* APPLY */
    double put_s;          /* SEND */
    double up_at;          /* SEND, in the play: when it is in the store */
    double n_members;      /* APPLY */
} dl_move;

/* One replica's generation: its moves, and its place in the play. Times are seconds since its
 * start. */
typedef struct dl_played {
    char name[DL_PLAYBACK_NAME_CAP];
    dl_move *moves;
    size_t n, cap;
    uint64_t first_step, n_steps; /* the number of the first, and how many */
    double step_s;                /* of all of them */
    /* of its end line */
    double utilization; /* 0: it has none */
    double end_up, end_down, background_up, background_down;

    /* the play */
    size_t at, n_committed;
    double clock, up, down, background; /* done until */
    double head_down;                   /* bytes before the first step: those of the join */
    double tail_up, tail_down;          /* bytes after the last entry */
    double own_s;                       /* that no link explains */
} dl_played;

/* A record in memory. It owns the replicas and their moves. */
struct dl_playback {
    dl_played *replicas;
    size_t n, cap;
    uint64_t line;
    bool names_link; /* its `run` lines do: the run was made with --link */
    dl_plan_link link;
};

/* The contribution to `entry` among the moves before p->moves[end]; NULL: none. Looks a bounded
 * way back. */
dl_move *dl_playback_sent(dl_played *p, size_t end, uint64_t entry);

#endif
