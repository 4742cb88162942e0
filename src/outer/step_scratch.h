/* step_scratch.h - the memory of one outer step at a time, laid out once. */
#ifndef DL_OUTER_STEP_SCRATCH_H
#define DL_OUTER_STEP_SCRATCH_H

#include "combine/combine_plan.h"
#include "outer/step_args.h"

enum {
    DL_LEAF_FLOATS = DL_LEAF_BYTES / 4,
    DL_STEP_VECTORS = 1 + DL_OUTER_MAX_STATE /* theta and the outer vectors */
};

/* A run of elements of the f32 array that are treated alike: all or none decay, and where the
 * combiner treats tensors separately, one tensor. */
typedef struct dl_stretch {
    size_t begin, end;
    bool decay;
    bool plain; /* takes the weighted mean whatever the combiner */
} dl_stretch;

/* One thread's own. */
typedef struct dl_step_room {
    dl_leaf_hash hash[DL_STEP_VECTORS];
    float *G;              /* [DL_BLOCK] the combined update */
    size_t stride;         /* floats from one member's block to the next */
    float *decoded;        /* [max_members * stride] */
    const float **members; /* [max_members] this block of each: in `decoded`, or a view */
    float *mixed;          /* [max_members * stride] inputs that are sums of members */
    const float **inputs;  /* [max_members + 1] */
    float *sort;           /* [dl_sort_room(max_members)] */
    size_t bad;            /* the first element with a result that is not finite; SIZE_MAX: none */
    int bad_vector;        /* which vector it is in */
    size_t n_adopted;      /* elements of this block that have been adopted */
} dl_step_room;

struct dl_outer_scratch {
    dl_arena arena;  /* holds all that follows */
    size_t of_steps; /* bytes in it before what only a step in progress needs */
    size_t max_members;
    int n_threads;
    dl_step_room *rooms;              /* [n_threads] */
    double *sums[DL_OUTER_MAX_SUMS];  /* a number for each block (PROTOCOL B3) */
    double *own_dots;                 /* likewise: of the own member with G */
    dl_hash *leaves[DL_STEP_VECTORS]; /* a hash for each leaf (PROTOCOL B4) */
    float *unit, *ones;               /* [max_members] weights of the facts' sums */
    dl_stretch *stretches;            /* of all fragments, one after the other */
    size_t *first_stretch;            /* [n_fragments + 1] */
    dl_combine_rule rule;
    dl_combine_plan plan;
    double *norm2;        /* [max_members] of the members, from their checks */
    bool *plain;          /* [stretches of the largest fragment] */
    dl_arena whole_arena; /* holds, for an optimizer that steps whole fragments: */
    dl_combined whole;    /* of the largest */
    void *room;           /* of the row; NULL without outer->room */
    size_t n_partial;
    double *partial; /* [n_partial] dot products of each part of member_blocks.c: matrices of at
                      * most (max_members + 1)^2 */
};

/* These return to the system, if they are much: after a step what only it needed, and after
 * measuring the numbers of each part. */
void dl_step_let_go(dl_outer_scratch *scratch);
void dl_step_let_go_of_parts(dl_outer_scratch *scratch);

/* This block of the members that `which` lists, into room->members. */
void dl_step_gather(const dl_outer_step_args *args, dl_step_room *room, const size_t *which,
                    size_t n_members, size_t at, size_t n);

/* The dot product of a block of a member with G, as the tiles of a step measure it. */
double dl_step_dot(const float *G, const float *member, size_t n);

/* norm2[k] (PROTOCOL B3) of the sum of a block's members by weights[k], for 1 <= k < n_sums. */
void dl_step_spread(double *norm2, const float *const *g, const float *const *weights, int n_sums,
                    size_t n_members, size_t n);

/* The dot products that scratch->plan wants, into plan.gram: one walk over memory; `in` has the
 * previous update. */
void dl_step_measure(const dl_outer_step_args *args, const dl_fragment_state *in,
                     dl_outer_scratch *scratch, dl_pool *pool);
/* The same by slices (outer_step.h): dl_step_measure_slice writes the n_measures numbers that
 * args->first and count add. dl_step_take_measured fills scratch->norm2 and plan.gram from
 * args->measured, those of all slices. */
size_t dl_step_n_measures(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice);
void dl_step_measure_slice(double *out, const dl_outer_step_args *args, const dl_fragment_state *in,
                           dl_outer_scratch *scratch, dl_pool *pool);
void dl_step_take_measured(const dl_outer_step_args *args, dl_outer_scratch *scratch);

#endif
