/* loop.h - the parts of a diloco_loop, shared by the files of src/loop.
 *
 *   loop.c   options, registering, memory
 *   sync.c   when, and the two halves of a synchronisation
 *   walk.c   the passes over a fragment's memory
 *   loop_image.c  the outer state as a file
 *
 * Memory: theta and each outer vector hold all fragments one after the other, each fragment's
 * tensors in registering order without gaps, so that a bucket is a range. g serves whichever
 * fragment is in flight. */
#ifndef DL_LOOP_LOOP_H
#define DL_LOOP_LOOP_H

#include "base/arena.h"
#include "base/thread.h"
#include "outer/outer.h"
#include <diloco/loop.h>

typedef struct dl_loop_tensor {
    diloco_tensor about; /* data NULL: by copy */
    char *name;          /* owned, as about.name */
    size_t number;       /* in registering order over all fragments */
    size_t begin, count; /* elements of its fragment */
    bool decay;          /* a matrix, for rules that treat them differently */
} dl_loop_tensor;

/* A range of g that is one all-reduce. */
typedef struct dl_loop_part {
    size_t begin, n;
    const char *tensor; /* NULL: a bucket */
    void *handle;
} dl_loop_part;

typedef struct dl_loop_fragment {
    size_t first, n_tensors; /* in loop->tensors, which are in fragment order from start on */
    size_t begin, n;         /* elements of theta and the vectors */
    dl_loop_part *parts;     /* owned */
    size_t n_parts;
    uint64_t commits;
    bool in_memory; /* all its tensors are float32 in memory */
} dl_loop_fragment;

/* Of the synchronisation that is in flight. */
typedef struct dl_loop_flight {
    int fragment; /* -1: none */
    size_t n_begun;
    diloco_status status; /* the first error so far, and its text */
    char text[512];
} dl_loop_flight;

struct diloco_loop {
    diloco_loop_options options; /* .config and .copy point to nothing or to the copies below */
    diloco_communicator communicator;
    diloco_loop_copy copy;
    dl_config config;
    const dl_outer *outer; /* NULL: options.outer */
    uint64_t interval;     /* H/P */

    dl_loop_tensor *tensors; /* owned */
    size_t n_tensors;
    dl_loop_fragment *fragments; /* owned, [P] */

    bool started;
    dl_arena arena;
    dl_pool *pool;
    size_t n; /* elements of all fragments */
    float *theta, *vectors[DL_OUTER_MAX_STATE], *g, *staging;

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
