/* scratch.h - the memory of one outer step at a time, laid out once. */
#ifndef DL_OUTER_SCRATCH_H
#define DL_OUTER_SCRATCH_H

#include "outer/outer_step.h"

enum {
    DL_LEAF_FLOATS = DL_LEAF_BYTES / 4,
    DL_STEP_VECTORS = 1 + DL_OUTER_MAX_STATE, /* theta and the outer vectors */
    DL_MEMBER_STRIDE = DL_BLOCK + 16          /* so that members do not share their cache sets */
};

/* A run of trained elements of which all or none decay. */
typedef struct dl_stretch {
    size_t begin, end;
    bool decay;
} dl_stretch;

/* One thread's own. */
typedef struct dl_step_room {
    dl_leaf_hash hash[DL_STEP_VECTORS];
    float *G;              /* [DL_BLOCK] the combined update */
    float *decoded;        /* [max_members * DL_MEMBER_STRIDE] */
    const float **members; /* [max_members] this block of each: in `decoded`, or a view */
    size_t bad;            /* the first element with a result that is not finite; SIZE_MAX: none */
    int bad_vector;        /* which vector it is in */
} dl_step_room;

struct dl_outer_scratch {
    dl_arena arena; /* holds all that follows */
    size_t max_members;
    int n_threads;
    dl_step_room *rooms;              /* [n_threads] */
    double *sums[DL_OUTER_MAX_SUMS];  /* a number for each block (PROTOCOL B3) */
    dl_hash *leaves[DL_STEP_VECTORS]; /* a hash for each leaf (PROTOCOL B4) */
    float *unit, *ones;               /* [max_members] weights of the facts' sums */
    dl_stretch *stretches;            /* of all fragments, one after the other */
    size_t *first_stretch;            /* [n_fragments + 1] */
};

#endif
