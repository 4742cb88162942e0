/* walk.c - the passes over a fragment's memory (declared in loop.h).
 *
 * A pass covers elements [begin, end) of a fragment. Each thread has a part whose borders are
 * multiples of DL_BLOCK. Its pieces have at most one block and do not cross a tensor, so that the
 * results stay in cache for the next operation. All operations are elementwise: the result has the
 * same bits for any number of threads and any size of a piece.
 *
 * A tensor that only the caller's copy functions reach is walked through the staging buffer, one
 * chunk after the other. The copy functions run on the caller's thread only. */
#include "loop/loop.h"

#include <float.h>
#include <string.h>

/* Values of g beyond this are refused, as those of contributions are. Neither the sum of two such
 * values nor their product overflows in float32. */
#define G_BOUND 1e18f

/* The limit of options.n_threads, which loop.c checks. */
enum { MAX_THREADS = 256 };

typedef struct walk walk;
/* Do the operation on elements [at, at + n) of the fragment, all of tensor t. `local` is the
 * tensor's part of the same length, NULL if the operation does not use it. `part` is the number of
 * the thread's part. It is called by several threads at once, on disjoint ranges. */
typedef void (*piece_fn)(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                         int part);

/* One pass. Read-only while the threads run, except bad[part], which its own thread writes. */
struct walk {
    diloco_loop *loop;
    const dl_loop_fragment *fragment;
    float *theta; /* of the fragment */
    piece_fn piece;
    /* The operation reads or changes the tensors. A pass with neither runs over g and theta alone.
     */
    bool reads, writes;
    size_t begin, end; /* of this pass */
    float *staged;     /* where element `begin` is; NULL: in the tensors */
    float mix;         /* for adopting */
    float scalars[DL_OUTER_MAX_SCALARS];
    size_t bad[MAX_THREADS]; /* first bad element each thread met; SIZE_MAX: none */
};

/* ---- operations on a piece */

static void delta_piece(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                        int part)
{
    (void)t, (void)part;
    dl_delta(w->loop->g + at, w->theta + at, local, n);
}

static void adopt_piece(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                        int part)
{
    (void)t, (void)part;
    dl_adopt(local, w->theta + at, w->mix, n);
}

/* theta = local. */
static void take_piece(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                       int part)
{
    (void)t, (void)part;
    memcpy(w->theta + at, local, n * sizeof *local);
}

/* The smallest bad element is kept, so that the message does not depend on the number of
 * threads. */
static void note_bad(walk *w, const float *x, size_t at, size_t n, float bound, int part)
{
    size_t bad = dl_first_bad(x, n, bound);
    if (bad < n) w->bad[part] = dl_size_min(w->bad[part], at + bad);
}

static void check_piece(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                        int part)
{
    (void)local, (void)t;
    note_bad(w, w->loop->g + at, at, n, G_BOUND, part);
}

/* One block of the outer step, then the adoption while the block is in cache. With mix 0 the block
 * function writes the new theta to the tensor itself. */
static void step_piece(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                       int part)
{
    const dl_outer *outer = w->loop->outer;
    const float *g = w->loop->g + at;
    dl_outer_block b = {.theta_out = w->theta + at,
                        .theta = w->theta + at,
                        .g = &g,
                        .n = n,
                        .scalars = w->scalars,
                        .decay = t->decay,
                        .adopt = w->mix == 0 ? local : NULL};
    for (int k = 0; k < outer->n_state; k++)
        b.state[k] = b.state_out[k] = w->loop->vectors[k] + w->fragment->begin + at;
    outer->block(&b);
    if (b.bad) note_bad(w, b.theta_out, at, n, FLT_MAX, part);
    if (b.bad && w->bad[part] == SIZE_MAX) w->bad[part] = at; /* in a vector of the optimizer */
    if (!b.adopt) dl_adopt(local, w->theta + at, w->mix, n);
}

/* ---- over all pieces */

/* The tensor that holds element `at`, by binary search. Tensors without elements are never
 * found. */
static const dl_loop_tensor *tensor_of(const walk *w, size_t at)
{
    const dl_loop_tensor *low = w->loop->tensors + w->fragment->first;
    const dl_loop_tensor *high = low + w->fragment->n_tensors;
    while (low < high) { /* the first tensor that ends after `at` */
        const dl_loop_tensor *middle = low + (high - low) / 2;
        if (middle->begin + middle->count > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* One thread's part of a pass. It runs in the library's floating-point mode: a caller's own
 * rounding or flush-to-zero must not change the bits. */
static void walk_part(void *context, int part, int n_parts)
{
    walk *w = context;
    size_t at, end;
    dl_part_range(&at, &end, w->end - w->begin, DL_BLOCK, part, n_parts);
    at += w->begin, end += w->begin;
    dl_fp_state saved = dl_fp_enter();
    for (const dl_loop_tensor *t = at < end ? tensor_of(w, at) : NULL; at < end; t++) {
        size_t last = dl_size_min(end, t->begin + t->count);
        while (at < last) {
            size_t n = dl_size_min(DL_BLOCK, last - at);
            float *data = t->about.data; /* NULL: the piece has nothing to do with it */
            if (data) data += at - t->begin;
            if (w->staged) data = w->staged + (at - w->begin);
            w->piece(w, at, n, data, t, part);
            at += n;
        }
    }
    dl_fp_leave(saved);
}

/* Run [begin, end) on all threads, and wait for them. */
static void run(walk *w, size_t begin, size_t end, float *staged)
{
    w->begin = begin;
    w->end = end;
    w->staged = staged;
    dl_pool_run(w->loop->pool, walk_part, w);
}

/* Walk one tensor through the staging buffer: read a chunk, run the pass over it, write it. After
 * an error the chunks before it are done and the others are not. */
static diloco_status run_copied(walk *w, const dl_loop_tensor *t)
{
    const diloco_loop_copy *copy = &w->loop->copy;
    float *staging = w->loop->staging;
    diloco_status status = DILOCO_OK;
    for (size_t at = 0; at < t->count && !status;) {
        size_t n = dl_size_min(copy->n_staging, t->count - at);
        if (w->reads) status = copy->read(copy->user, staging, t->number, at, n);
        if (!status) run(w, t->begin + at, t->begin + at + n, staging);
        if (!status && w->writes) status = copy->write(copy->user, staging, t->number, at, n);
        at += n;
    }
    return status ? dl_fail(status, "tensor %s: options.copy failed (%s)", t->about.name,
                            diloco_status_name(status))
                  : DILOCO_OK;
}

/* Tensor by tensor, for a fragment of which some are not in memory. Results have the same bits as
 * those of one run over all of it. */
static diloco_status run_tensors(walk *w)
{
    const dl_loop_fragment *f = w->fragment;
    for (size_t i = f->first; i < f->first + f->n_tensors; i++) {
        const dl_loop_tensor *t = &w->loop->tensors[i];
        if (t->about.data)
            run(w, t->begin, t->begin + t->count, NULL);
        else
            DL_TRY(run_copied(w, t));
    }
    return DILOCO_OK;
}

/* One run is enough if every tensor is in memory, or if the pass does not touch the tensors. */
static diloco_status run_all(walk *w)
{
    if (!w->fragment->in_memory && (w->reads || w->writes)) return run_tensors(w);
    run(w, 0, w->fragment->n, NULL);
    return DILOCO_OK;
}

/* Returns DILOCO_ENUMERIC if a thread has found a bad element, and names the first one. */
static diloco_status first_bad(const walk *w, const char *what)
{
    size_t bad = SIZE_MAX;
    for (int part = 0; part < dl_pool_size(w->loop->pool); part++)
        bad = dl_size_min(bad, w->bad[part]);
    if (bad == SIZE_MAX) return DILOCO_OK;
    const dl_loop_tensor *t = tensor_of(w, bad);
    return dl_fail(DILOCO_ENUMERIC,
                   "entry %llu: %s of tensor %s, element %zu, is not finite or "
                   "out of all bounds",
                   (unsigned long long)w->loop->entry, what, t->about.name, bad - t->begin);
}

static walk walk_of(diloco_loop *loop, int fragment, piece_fn piece)
{
    walk w = {.loop = loop, .fragment = &loop->fragments[fragment], .piece = piece};
    w.theta = loop->theta + w.fragment->begin;
    for (int part = 0; part < MAX_THREADS; part++)
        w.bad[part] = SIZE_MAX;
    return w;
}

/* ---- the passes */

diloco_status dl_loop_delta(diloco_loop *loop, int fragment)
{
    walk w = walk_of(loop, fragment, delta_piece);
    w.reads = true;
    return run_all(&w);
}

/* mix 1 keeps the local values, and 0 overwrites them unread. So with 0 the copy functions are not
 * called to read. */
diloco_status dl_loop_adopt(diloco_loop *loop, int fragment, float mix)
{
    walk w = walk_of(loop, fragment, adopt_piece);
    if (mix == 1) return DILOCO_OK;
    w.mix = mix;
    w.reads = mix != 0;
    w.writes = true;
    return run_all(&w);
}

diloco_status dl_loop_capture(diloco_loop *loop, int fragment)
{
    walk w = walk_of(loop, fragment, take_piece);
    w.reads = true;
    return run_all(&w);
}

diloco_status dl_loop_check_g(diloco_loop *loop, int fragment)
{
    walk w = walk_of(loop, fragment, check_piece);
    DL_TRY(run_all(&w));
    return first_bad(&w, "the mean");
}

/* The learning rate follows the entry's round: entries divided by the number of fragments. */
diloco_status dl_loop_outer_step(diloco_loop *loop, int fragment, float mix)
{
    walk w = walk_of(loop, fragment, step_piece);
    dl_outer_settings settings = dl_outer_settings_of(&loop->config);
    settings.lr = dl_outer_lr(&loop->config, loop->entry / loop->options.fragments);
    settings.n_commits = w.fragment->commits;
    loop->outer->scalars(w.scalars, &settings);
    w.mix = mix;
    w.reads = mix != 0 && mix != 1;
    w.writes = mix != 1;
    DL_TRY(run_all(&w));
    return first_bad(&w, "the outer step");
}
