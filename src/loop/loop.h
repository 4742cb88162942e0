/* loop.h - the parts of a diloco_loop, shared by the files of src/loop.
 *
 *     loop.c        options, registering, memory
 *     sync.c        the schedule, and the two halves of a synchronisation
 *     walk.c        the passes over a fragment's memory
 *     loop_image.c  the outer state as a file
 *
 * Memory: theta and each outer vector hold all fragments one after the other. Within a fragment the
 * tensors follow each other in registering order without gaps, so that a bucket is a range. g has
 * the size of the largest fragment and serves the one that is in flight.
 *
 * A loop is used by one thread at a time. The pool's threads run only inside a pass of walk.c. */
#ifndef DL_LOOP_LOOP_H
#define DL_LOOP_LOOP_H

#include "base/arena.h"
#include "base/thread.h"
#include "outer/outer.h"
#include <diloco/loop.h>

/* A registered tensor. The caller owns its data, and keeps it at the same address until destroy. */
typedef struct dl_loop_tensor {
    /* As registered; `name` points to the copy below. data NULL: only options.copy reaches the
     * values. */
    diloco_tensor about;
    char *name;          /* owned, as about.name */
    size_t number;       /* in registering order over all fragments */
    size_t begin, count; /* elements of its fragment */
    bool decay;          /* a matrix, for rules that treat them differently */
} dl_loop_tensor;

/* A range of g that is one all-reduce: a tensor, or a bucket of options.bucket_bytes. All replicas
 * cut a fragment into the same parts. */
typedef struct dl_loop_part {
    /* Elements of the fragment, from its first one. */
    size_t begin, n;
    const char *tensor; /* NULL: a bucket */
    /* Of the communicator, from all_reduce until wait. */
    void *handle;
} dl_loop_part;

/* A fragment's place in the shared memory. start() sets all of it; only `commits` changes later. */
typedef struct dl_loop_fragment {
    size_t first, n_tensors; /* in loop->tensors, which are in fragment order from start on */
    size_t begin, n;         /* elements of theta and the vectors */
    dl_loop_part *parts;     /* owned */
    size_t n_parts;
    /* Outer steps that were applied to this fragment. A caller may change it through
     * diloco_loop_view. */
    uint64_t commits;
    bool in_memory; /* all its tensors are float32 in memory */
} dl_loop_fragment;

/* The synchronisation in flight, from prepare until perform. */
typedef struct dl_loop_flight {
    /* -1: nothing is in flight. */
    int fragment;
    /* All-reduces that began. Exactly these have to be waited for, whatever failed later. */
    size_t n_begun;
    /* The first error since start_quorum, and its text. perform() votes no for it, and returns
     * it. */
    diloco_status status;
    char text[512];
} dl_loop_flight;

/* All state of one handle. theta, the vectors and g are in `arena`; staging is, too, unless
 * options.copy has a buffer. */
struct diloco_loop {
    diloco_loop_options options; /* .config and .copy point to nothing or to the copies below */
    diloco_communicator communicator;
    diloco_loop_copy copy;
    dl_config config;
    const dl_outer *outer; /* NULL: options.outer */
    /* H/P: steps between two synchronisations, of whichever fragments. */
    uint64_t interval;

    dl_loop_tensor *tensors; /* owned */
    size_t n_tensors;
    dl_loop_fragment *fragments; /* owned, [P] */

    /* diloco_loop_start succeeded: the members down to `staging` are valid, and no tensor can be
     * added. */
    bool started;
    dl_arena arena;
    dl_pool *pool;
    /* Elements of all fragments together: the length of theta and of each vector. */
    size_t n;
    float *theta, *vectors[DL_OUTER_MAX_STATE], *g, *staging;

    /* step: since a synchronisation was last due, below `interval`. entry: that of the last
     * prepare. commits and refused: votes with yes and no; commits is the sum over the
     * fragments. */
    uint64_t step, entry, commits, refused;
    dl_loop_flight flight;
};

/* ---- walk.c: passes over a fragment, on all threads. Of the caller's tensors only those of
 * `data` NULL can fail, with what the copy function gave. */

/* g = theta - local */
DL_MUST_CHECK diloco_status dl_loop_delta(diloco_loop *loop, int fragment);
/* local = theta + mix (local - theta) */
DL_MUST_CHECK diloco_status dl_loop_adopt(diloco_loop *loop, int fragment, float mix);
/* theta = local */
DL_MUST_CHECK diloco_status dl_loop_capture(diloco_loop *loop, int fragment);
/* The outer step of our optimizer with g, and dl_loop_adopt, in one pass. DILOCO_ENUMERIC. */
DL_MUST_CHECK diloco_status dl_loop_outer_step(diloco_loop *loop, int fragment, float mix);
/* DILOCO_ENUMERIC: an element of g is not finite, or so large that a step could overflow. */
DL_MUST_CHECK diloco_status dl_loop_check_g(diloco_loop *loop, int fragment);

/* ---- loop_image.c: diloco_loop_load, from memory. */
DL_MUST_CHECK diloco_status dl_loop_load_image(diloco_loop *loop, const void *bytes, size_t len);

/* DILOCO_EINVAL unless started and with nothing in flight; `what` begins the sentence. */
DL_MUST_CHECK diloco_status dl_loop_idle(const diloco_loop *loop, const char *what);

#endif
