/* walk.c - the passes over a fragment's memory (declared in loop.h).
 *
 * A pass goes over elements [begin, end) of a fragment, each thread over a part whose borders
 * are multiples of DL_BLOCK. Its pieces have at most one block and do not cross a tensor, so the
 * results stay in cache for the next operation. All is elementwise: neither the threads nor the
 * pieces show in the bits.
 *
 * A tensor that only the caller's copy functions reach is walked through the staging buffer, one
 * chunk after the other. */
#include "loop/loop.h"

#include <float.h>
#include <string.h>

/* So large that neither a sum nor a product of two can overflow; as for contributions. */
#define G_BOUND 1e18f

enum { MAX_THREADS = 256 };

typedef struct walk walk;
typedef void (*piece_fn)(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                         int part);

struct walk {
    diloco_loop *loop;
    const dl_loop_fragment *fragment;
    float *theta; /* of the fragment */
    piece_fn piece;
    bool reads, writes; /* the tensors */
    size_t begin, end;  /* of this pass */
    float *staged;      /* where element `begin` is; NULL: in the tensors */
    float mix;          /* for adopting */
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

static void take_piece(walk *w, size_t at, size_t n, float *local, const dl_loop_tensor *t,
                       int part)
{
    (void)t, (void)part;
    memcpy(w->theta + at, local, n * sizeof *local);
}

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

static void run(walk *w, size_t begin, size_t end, float *staged)
{
    w->begin = begin;
    w->end = end;
    w->staged = staged;
    dl_pool_run(w->loop->pool, walk_part, w);
}

/* A tensor that is not float32 in memory, chunk by chunk. */
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

static diloco_status run_all(walk *w)
{
    if (!w->fragment->in_memory && (w->reads || w->writes)) return run_tensors(w);
    run(w, 0, w->fragment->n, NULL);
    return DILOCO_OK;
}

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
