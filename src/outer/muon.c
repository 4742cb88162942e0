/* muon.c - the inner optimizer Muon (nn/inner_muon.c) as an outer row: preset data_parallel
 * contributes gradients, and the moments are state of the run (PROTOCOL P22). Jordan et al. 2024,
 * kellerjordan.github.io/posts/muon, scaled as Moonlight's (arXiv:2502.16982, section 2.2).
 *
 * Hidden matrices (tensor/hidden_matrices.h) are stepped one after the other, each by all threads.
 * Everything else is stepped by the row adamw. A matrix's momentum m is in exp_avg; its exp_avg_sq
 * stays as it is. With mu of the entry, and + - * rounded to float32 one by one except in fma:
 *
 *     m <- fma(mu, m, (1 - mu) G);  u = nesterov ? fma(mu, m, (1 - mu) G) : m
 *     X = u * (1 / max(|u|, 1e-7)), transposed if it is tall
 *     steps times:  S = X X^T;  D = fma(B, S, C * (S S));  X <- fma(A, X, D X)
 *     theta <- fma(-lr wd, theta, theta)
 *     theta <- fma(-(lr * .2 * sqrt(max(rows, columns))), X, theta)
 *
 * Products are those of exact_product.h. |u| is a float64 sum by blocks of the matrix (PROTOCOL
 * B3), and its inverse is rounded once. So the result has the same bits on every machine, with any
 * number of threads. */
#include "base/arena.h"
#include "outer/exact_product.h"
#include "outer/outer_rows.h"
#include "outer/outer_tile.h"
#include "tensor/hidden_matrices.h"

#include <math.h>

/* The scalars of an entry. The first seven are those of the row adamw, in its order. */
enum { LR, WEIGHT_DECAY = 4, N_ADAMW = 7 };
enum { MUON_LR = N_ADAMW, MUON_MOMENTUM, MUON_NESTEROV, MUON_STEPS, N_SCALARS };

enum { MOMENTUM, N_STATE = 2 };  /* MOMENTUM: state vector exp_avg */
enum { MOST_STEPS = 99 };        /* of parameters.optimizer.muon_steps */
enum { GRAIN = 2, SQUARE = 16 }; /* rows multiplied together; side of a block to transpose */

/* Jordan's coefficients, as in nn/inner_muon.c. */
static const float A = 3.4445f, B = -4.7750f, C = 2.0315f, EPS = 1e-7f;

/* ---- memory */

/* The largest hidden matrix: elements, and the shorter side. They may be of different ones. */
typedef struct largest {
    size_t elements, side;
} largest;

static largest find_largest(const dl_manifest *manifest)
{
    largest most = {0};
    const dl_hidden_matrices hidden = dl_hidden_matrices_of(manifest);
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &manifest->tensors[i];
        if (!dl_is_hidden_matrix(&hidden, i)) continue;
        most.elements = dl_size_max(most.elements, t->count);
        most.side = dl_size_max(most.side, dl_size_min(t->shape[0], t->shape[1]));
    }
    return most;
}

/* A matrix that is being stepped. x is as wide as it is high, or wider. */
typedef struct work {
    const dl_outer_whole *step;
    size_t at, n;        /* its elements in the fragment */
    size_t side, longer; /* of x: rows, columns */
    bool tall;           /* x is transposed */
    float scale;         /* 1 / |u| */
    float *x, *next;     /* [side][longer] */
    float *s, *mix;      /* [side][side]: S, D */
    double *squares;     /* of u, by block */
    float *workspaces;   /* [threads][DL_EXACT_WORKSPACE] */
} work;

static void layout(work *w, dl_arena *arena, largest most, int n_threads)
{
    const size_t squares = most.side * most.side; /* of a matrix, so at most its elements */
    w->x = DL_ARENA_ARRAY(arena, float, most.elements);
    w->next = DL_ARENA_ARRAY(arena, float, most.elements);
    w->s = DL_ARENA_ARRAY(arena, float, squares);
    w->mix = DL_ARENA_ARRAY(arena, float, squares);
    w->squares = DL_ARENA_ARRAY(arena, double, (most.elements + DL_BLOCK - 1) / DL_BLOCK);
    w->workspaces = DL_ARENA_ARRAY(arena, float, (size_t)n_threads *DL_EXACT_WORKSPACE);
}

static size_t room(const dl_manifest *manifest, int n_threads)
{
    work w;
    dl_arena measure = {0};
    layout(&w, &measure, find_largest(manifest), n_threads);
    return measure.used;
}

/* ---- kernels */

static inline DL_BODY void momentum_body(float *restrict u, float *restrict m,
                                         const float *restrict g, size_t n, float mu, bool nesterov)
{
    const float rest = 1 - mu;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        const float part = rest * g[i], now = fmaf(mu, m[i], part);
        m[i] = now;
        u[i] = nesterov ? fmaf(mu, now, part) : now;
    }
}
DL_KERNEL(momentum_block, (float *u, float *m, const float *g, size_t n, float mu, bool nesterov),
          momentum_body(u, m, g, n, mu, nesterov))

static inline DL_BODY void scale_body(float *x, float a, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        x[i] *= a;
}
DL_KERNEL(scale, (float *x, float a, size_t n), scale_body(x, a, n))

static inline DL_BODY void blend_body(float *restrict y, const float *restrict x, float a, float b,
                                      size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], b * y[i]);
}
DL_KERNEL(blend, (float *y, const float *x, float a, float b, size_t n), blend_body(y, x, a, b, n))

static inline DL_BODY void apply_body(float *restrict theta, const float *restrict x, float step,
                                      float decay, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        theta[i] = fmaf(-step, x[i], fmaf(-decay, theta[i], theta[i]));
}
DL_KERNEL(apply, (float *theta, const float *x, float step, float decay, size_t n),
          apply_body(theta, x, step, decay, n))

/* ---- each thread's share of a matrix */

/* m, u, which goes to x, and the sum of u^2 of each block. */
static void momentum_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const float *scalars = w->step->scalars;
    const dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, w->n, DL_BLOCK, part, n_parts);
    for (size_t i = begin; i < end; i += DL_BLOCK) {
        const size_t n = dl_size_min(DL_BLOCK, end - i);
        dl_isa_call(momentum_block)(w->x + i, w->step->state[MOMENTUM] + w->at + i,
                                    w->step->g + w->at + i, n, scalars[MUON_MOMENTUM],
                                    scalars[MUON_NESTEROV] != 0);
        w->squares[i / DL_BLOCK] = dl_block_norm2(w->x + i, n);
    }
    dl_fp_leave(saved);
}

static void scale_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, w->n, DL_BLOCK, part, n_parts);
    dl_isa_call(scale)(w->x + begin, w->scale, end - begin);
    dl_fp_leave(saved);
}

/* A transposition to `to`, f32[columns][rows]. A part has rows of the result. */
typedef struct turned {
    float *to;
    const float *from;
    size_t rows, columns; /* of `from` */
} turned;

static void turn_block(const turned *t, size_t row, size_t column)
{
    const size_t last_row = dl_size_min(t->rows, row + SQUARE);
    const size_t last_column = dl_size_min(t->columns, column + SQUARE);
    for (size_t j = column; j < last_column; j++)
        for (size_t i = row; i < last_row; i++)
            t->to[j * t->rows + i] = t->from[i * t->columns + j];
}

static void turn_part(void *context, int part, int n_parts)
{
    const turned *t = context;
    size_t begin, end;
    dl_part_range(&begin, &end, t->columns, SQUARE, part, n_parts);
    for (size_t column = begin; column < end; column += SQUARE)
        for (size_t row = 0; row < t->rows; row += SQUARE)
            turn_block(t, row, column);
}

/* The part's rows of a product, and then of y = a x + b y, where x is not NULL and y is C. */
static void multiply(const work *w, const dl_exact_product *p, const float *x, float a, float b,
                     int part, int n_parts)
{
    const dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, p->m, GRAIN, part, n_parts);
    dl_exact_product_rows(p, begin, end, w->workspaces + (size_t)part * DL_EXACT_WORKSPACE);
    if (x) dl_isa_call(blend)(p->c + begin * p->n, x + begin * p->n, a, b, (end - begin) * p->n);
    dl_fp_leave(saved);
}

/* S = X X^T; X^T is in `next`. */
static void gram_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const dl_exact_product p = {
        .c = w->s, .a = w->x, .b = w->next, .m = w->side, .n = w->side, .k = w->longer};
    multiply(w, &p, NULL, 0, 0, part, n_parts);
}

/* D = B S + C S^2 */
static void mix_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const dl_exact_product p = {
        .c = w->mix, .a = w->s, .b = w->s, .m = w->side, .n = w->side, .k = w->side};
    multiply(w, &p, w->s, B, C, part, n_parts);
}

/* next = A X + D X */
static void next_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const dl_exact_product p = {
        .c = w->next, .a = w->mix, .b = w->x, .m = w->side, .n = w->longer, .k = w->side};
    multiply(w, &p, w->x, A, 1, part, n_parts);
}

static void apply_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const float *scalars = w->step->scalars;
    const dl_fp_state saved = dl_fp_enter();
    const float step = scalars[MUON_LR] * 0.2f * sqrtf((float)w->longer);
    size_t begin, end;
    dl_part_range(&begin, &end, w->n, DL_BLOCK, part, n_parts);
    dl_isa_call(apply)(w->step->theta + w->at + begin, w->x + begin, step,
                       scalars[MUON_LR] * scalars[WEIGHT_DECAY], end - begin);
    dl_fp_leave(saved);
}

/* ---- a matrix. Each dl_pool_run is a barrier: a product reads all rows of the one before. */

/* 1 / |u|. The Frobenius norm bounds every singular value, so those of X are at most 1. The
 * iteration may diverge from larger ones. */
static float inverse_norm(const work *w)
{
    double sum = 0;
    const dl_fp_state saved = dl_fp_enter();
    for (size_t i = 0; i < (w->n + DL_BLOCK - 1) / DL_BLOCK; i++)
        sum += w->squares[i];
    const double norm = sqrt(sum);
    const float inverse = (float)(1 / (norm > (double)EPS ? norm : (double)EPS));
    dl_fp_leave(saved);
    return inverse;
}

static void swap(work *w)
{
    float *x = w->x;
    w->x = w->next;
    w->next = x;
}

/* Transposes x to next. */
static void turn(const work *w, size_t rows, size_t columns)
{
    turned t = {.to = w->next, .from = w->x, .rows = rows, .columns = columns};
    dl_pool_run(w->step->pool, turn_part, &t);
}

static void step_matrix(work *w)
{
    dl_pool *pool = w->step->pool;
    dl_pool_run(pool, momentum_part, w);
    w->scale = inverse_norm(w);
    dl_pool_run(pool, scale_part, w);
    if (w->tall) turn(w, w->longer, w->side), swap(w);
    for (int i = 0; i < (int)w->step->scalars[MUON_STEPS]; i++) {
        turn(w, w->side, w->longer);
        dl_pool_run(pool, gram_part, w);
        dl_pool_run(pool, mix_part, w);
        dl_pool_run(pool, next_part, w);
        swap(w);
    }
    if (w->tall) turn(w, w->side, w->longer), swap(w);
    dl_pool_run(pool, apply_part, w);
}

static void step_matrices(const dl_outer_whole *step)
{
    const dl_manifest *manifest = step->manifest;
    const dl_hidden_matrices hidden = dl_hidden_matrices_of(manifest);
    const largest most = find_largest(manifest);
    const int n_threads = dl_pool_size(step->pool);
    const size_t bytes = room(manifest, n_threads);
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &manifest->tensors[i];
        if (t->fragment != (int)step->fragment || !dl_is_hidden_matrix(&hidden, i)) continue;
        if (t->count == 0) continue;
        dl_arena arena = {.base = step->room, .size = bytes};
        work w = {.step = step,
                  .at = t->offset,
                  .n = t->count,
                  .side = dl_size_min(t->shape[0], t->shape[1]),
                  .longer = dl_size_max(t->shape[0], t->shape[1]),
                  .tall = t->shape[0] > t->shape[1]};
        layout(&w, &arena, most, n_threads);
        step_matrix(&w);
    }
}

/* ---- everything else */

/* Steps elements [begin, end) by the row adamw, in place. */
static void step_range(const dl_outer_whole *step, size_t begin, size_t end, bool decay)
{
    for (size_t at = begin; at < end; at += DL_BLOCK) {
        const float *g = step->g + at;
        dl_outer_block b = {.theta_out = step->theta + at,
                            .theta = step->theta + at,
                            .g = &g,
                            .n = dl_size_min(DL_BLOCK, end - at),
                            .scalars = step->scalars,
                            .decay = decay};
        for (int k = 0; k < N_STATE; k++)
            b.state[k] = b.state_out[k] = step->state[k] + at;
        dl_outer_adamw.block(&b);
    }
}

/* The part's elements of every other tensor. Decay is as in step_scratch.c. */
static void rest_part(void *context, int part, int n_parts)
{
    const dl_outer_whole *step = context;
    const dl_manifest *manifest = step->manifest;
    const dl_hidden_matrices hidden = dl_hidden_matrices_of(manifest);
    const dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, step->n, DL_BLOCK, part, n_parts);
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &manifest->tensors[i];
        if (t->fragment != (int)step->fragment || t->region != DL_TRAINED) continue;
        if (dl_is_hidden_matrix(&hidden, i)) continue;
        step_range(step, dl_size_max(begin, t->offset), dl_size_min(end, t->offset + t->count),
                   t->n_dims >= 2);
    }
    dl_fp_leave(saved);
}

/* ---- the row */

/* An entry may be forged, so the number of iterations, which costs time, is bounded. */
static diloco_status whole(const dl_outer *row, const dl_outer_whole *step)
{
    const float steps = step->scalars[MUON_STEPS];
    if (!(steps >= 1 && steps <= MOST_STEPS && steps == floorf(steps)))
        return dl_fail(DILOCO_ENUMERIC,
                       "outer optimizer %s: the entry's muon_steps is %g, and not "
                       "a whole number from 1 to %d",
                       row->name, (double)steps, MOST_STEPS);
    dl_outer_whole rest = *step;
    dl_pool_run(step->pool, rest_part, &rest);
    step_matrices(step);
    return DILOCO_OK;
}

/* Finds the block stepped by `whole`. */
static void block(dl_outer_block *b)
{
    dl_outer_look(b, N_STATE);
}

/* Muon's own learning rate follows the schedule of lr: it is scaled by lr / (configured lr). */
static void scalars(float *out, const dl_outer_settings *settings)
{
    const bool own = settings->muon_lr > 0 && settings->inner_lr > 0;
    dl_outer_adamw.scalars(out, settings);
    out[MUON_LR] =
        (float)(own ? settings->lr * settings->muon_lr / settings->inner_lr : settings->lr);
    out[MUON_MOMENTUM] = (float)settings->muon_momentum;
    out[MUON_NESTEROV] = settings->muon_nesterov;
    out[MUON_STEPS] = (float)settings->muon_steps;
}

const dl_outer dl_outer_muon = {
    .name = "muon",
    .summary = "Muon and AdamW on the mean gradient, for preset data_parallel",
    .n_state = N_STATE,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta1", "beta2", "eps", "weight_decay", "correction1", "correction2",
                     "muon_lr", "muon_momentum", "muon_nesterov", "muon_steps"},
    .scalars = scalars,
    .gradients = true,
    .counts = true,
    .block = block,
    .whole = whole,
    .room = room,
    .most_lr = 1,
};
