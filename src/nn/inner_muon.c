/* inner_muon.c - Muon (Keller Jordan et al. 2024, kellerjordan.github.io/posts/muon) as
 * torch.optim.Muon with adjust_lr_fn = "match_rms_adamw", in float32 throughout:
 *
 *     m = mu m + (1 - mu) g;  u = nesterov ? mu m + (1 - mu) g : m
 *     X = u / max(|u|, 1e-7);  steps times:  S = X X^T,  X = a X + (b S + c S^2) X
 *     p = (1 - lr wd) p - lr .2 sqrt(max(rows, columns)) X
 *
 * The iteration (Newton-Schulz, quintic) brings every singular value of X near 1. Where the matrix
 * is tall, S = X^T X is multiplied from the other side, so that S is as small as possible. The
 * factor of the last line is Moonlight's (arXiv:2502.16982, section 2.2). A matrix with unit
 * singular values has elements of root mean square 1/sqrt(max(rows, columns)); AdamW's updates have
 * about .2 to .4. With the factor one learning rate serves both.
 *
 * A matrix is worked on by all threads, each with its rows of every product. An element of a
 * product and the blocks of |u|^2 do not depend on how many they are. */
#include "nn/inner_rows.h"

#include "base/arena.h"
#include "nn/cuda/start.h"
#include "nn/gemm.h"
#include "tensor/kernels.h"

#include <math.h>

/* Jordan's coefficients. The slope at 0 is A, so that small singular values grow fast. They reach a
 * band around 1, not 1 itself, which is enough here. */
static const float A = 3.4445f, B = -4.7750f, C = 2.0315f, EPS = 1e-7f;

typedef struct work {
    const dl_inner_matrix *m;
    size_t n;          /* elements of the matrix */
    size_t side;       /* min(rows, columns) */
    float scale;       /* 1 / |u| */
    float *x, *next;   /* [rows][columns] */
    float *s, *mix;    /* [side][side]: S, b S + c S^2 */
    double *squares;   /* of u, by block */
    float *workspaces; /* [threads][DL_GEMM_WORKSPACE] */
} work;

/* Takes memory for the largest matrix. A tall and a wide one may set `longer` and `shorter`, so
 * their product bounds every matrix's elements. */
static void layout(work *w, dl_arena *arena, const dl_inner_sizes *sizes, int n_threads)
{
    size_t most = sizes->shorter * sizes->longer;
    w->x = DL_ARENA_ARRAY(arena, float, most);
    w->next = DL_ARENA_ARRAY(arena, float, most);
    w->s = DL_ARENA_ARRAY(arena, float, sizes->shorter * sizes->shorter);
    w->mix = DL_ARENA_ARRAY(arena, float, sizes->shorter * sizes->shorter);
    w->squares = DL_ARENA_ARRAY(arena, double, (most + DL_BLOCK - 1) / DL_BLOCK);
    w->workspaces = DL_ARENA_ARRAY(arena, float, (size_t)n_threads *DL_GEMM_WORKSPACE);
}

static size_t scratch(const dl_inner_sizes *sizes, int n_threads)
{
    work w;
    dl_arena measure = {0};
    layout(&w, &measure, sizes, n_threads);
    return measure.used;
}

/* ---- kernels */

static inline DL_BODY void momentum_body(float *restrict u, float *restrict m,
                                         const float *restrict g, size_t n, float clip, float mu,
                                         bool nesterov)
{
    float rest = 1 - mu;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        m[i] = mu * m[i] + rest * x;
        u[i] = nesterov ? mu * m[i] + rest * x : m[i];
    }
}
DL_KERNEL(momentum_block,
          (float *u, float *m, const float *g, size_t n, float clip, float mu, bool nesterov),
          momentum_body(u, m, g, n, clip, mu, nesterov))

/* y = a x + b y; x and y may be one. */
static inline DL_BODY void blend_body(float *y, const float *x, float a, float b, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + b * y[i];
}
DL_KERNEL(blend, (float *y, const float *x, float a, float b, size_t n), blend_body(y, x, a, b, n))

/* ---- each thread's share */

/* m and u of this part's blocks, and the sum of u^2 of each block. */
static void momentum_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const dl_inner_matrix *m = w->m;
    const dl_hyper *h = m->hyper;
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, w->n, DL_BLOCK, part, n_parts);
    for (size_t i = begin; i < end; i += DL_BLOCK) {
        size_t n = dl_size_min(end - i, DL_BLOCK);
        dl_isa_call(momentum_block)(w->x + i, m->vectors[0] + i, m->g + i, n, h->clip_factor,
                                    h->muon_momentum, h->muon_nesterov);
        w->squares[i / DL_BLOCK] = dl_block_norm2(w->x + i, n);
    }
    dl_fp_leave(saved);
}

/* X = u / |u|, in place. */
static void scale_part(void *context, int part, int n_parts)
{
    const work *w = context;
    size_t begin, end;
    dl_part_range(&begin, &end, w->n, DL_BLOCK, part, n_parts);
    dl_isa_call(blend)(w->x + begin, w->x + begin, w->scale, 0, end - begin);
}

/* y = a x + b y over the rows that this part multiplied. It follows a product on the same part, so
 * the rows are complete, and still in cache. */
static void blend_rows(float *y, const float *x, float a, float b, size_t rows, size_t columns,
                       int part, int n_parts)
{
    size_t begin, end;
    dl_gemm_range(&begin, &end, rows, part, n_parts);
    dl_isa_call(blend)(y + begin * columns, x + begin * columns, a, b, (end - begin) * columns);
}

/* S = X X^T, or X^T X of a tall X. */
static void gram_part(void *context, int part, int n_parts)
{
    const work *w = context;
    bool tall = w->m->rows > w->m->columns;
    dl_gemm_args s = {.trans_a = tall ? 'T' : 'N',
                      .trans_b = tall ? 'N' : 'T',
                      .m = w->side,
                      .n = w->side,
                      .k = w->n / w->side,
                      .c = w->s,
                      .a = w->x,
                      .b = w->x};
    dl_gemm_part(&s, part, n_parts, w->workspaces);
}

/* mix = B S + C S^2. The blend needs only the rows that this part multiplied, so no other part has
 * to be done. */
static void mix_part(void *context, int part, int n_parts)
{
    const work *w = context;
    dl_gemm_args square = {'N', 'N', w->side, w->side, w->side, w->mix, w->s, w->s, false};
    dl_gemm_part(&square, part, n_parts, w->workspaces);
    blend_rows(w->mix, w->s, B, C, w->side, w->side, part, n_parts);
}

/* next = A X + mix X, or A X + X mix of a tall X. */
static void next_part(void *context, int part, int n_parts)
{
    const work *w = context;
    bool tall = w->m->rows > w->m->columns;
    dl_gemm_args next = {.trans_a = 'N',
                         .trans_b = 'N',
                         .m = w->m->rows,
                         .n = w->m->columns,
                         .k = w->side,
                         .c = w->next,
                         .a = tall ? w->x : w->mix,
                         .b = tall ? w->mix : w->x};
    dl_gemm_part(&next, part, n_parts, w->workspaces);
    blend_rows(w->next, w->x, A, 1, w->m->rows, w->m->columns, part, n_parts);
}

/* p = keep p - lr .2 sqrt(max(rows, columns)) X */
static void apply_part(void *context, int part, int n_parts)
{
    const work *w = context;
    const dl_inner_matrix *m = w->m;
    float longer = (float)dl_size_max(m->rows, m->columns);
    float step = m->hyper->muon_lr * 0.2f * sqrtf(longer);
    size_t begin, end;
    dl_part_range(&begin, &end, w->n, DL_BLOCK, part, n_parts);
    dl_isa_call(blend)(m->p + begin, w->x + begin, -step, m->hyper->muon_keep, end - begin);
}

/* ---- a matrix */

/* 1 / |u|. The Frobenius norm bounds every singular value, so those of X are at most 1. The
 * iteration may diverge from larger ones. */
static float inverse_norm(const work *w)
{
    double sum = 0;
    for (size_t i = 0; i < (w->n + DL_BLOCK - 1) / DL_BLOCK; i++)
        sum += w->squares[i];
    return (float)(1 / fmax(sqrt(sum), (double)EPS));
}

/* Each dl_pool_run is a barrier: a product reads all rows of the one before. */
static void matrix(const dl_inner_matrix *m)
{
    work w = {.m = m, .n = m->rows * m->columns, .side = dl_size_min(m->rows, m->columns)};
    size_t bytes = scratch(m->sizes, dl_pool_size(m->pool));
    layout(&w, &(dl_arena){.base = m->scratch, .size = bytes}, m->sizes, dl_pool_size(m->pool));
    dl_pool_run(m->pool, momentum_part, &w);
    w.scale = inverse_norm(&w);
    dl_pool_run(m->pool, scale_part, &w);
    for (int i = 0; i < m->hyper->muon_steps; i++) {
        dl_pool_run(m->pool, gram_part, &w);
        dl_pool_run(m->pool, mix_part, &w);
        dl_pool_run(m->pool, next_part, &w);
        float *x = w.x;
        w.x = w.next;
        w.next = x;
    }
    dl_pool_run(m->pool, apply_part, &w);
}

/* ---- a matrix, on a GPU: the same steps as kernels of one stream. The host does not learn
 * 1 / |u|, which is in workspaces[0]. */

typedef struct product {
    float *c;
    const float *a, *b;
    size_t m, n, k;
    bool a_transposed, b_transposed;
} product;

static void start_product(dl_backend *backend, const product *p)
{
    const dl_cuda_product_arguments a = {.c = p->c,
                                         .a = p->a,
                                         .b = p->b,
                                         .m = p->m,
                                         .n = p->n,
                                         .k = p->k,
                                         .a_row = p->a_transposed ? 1 : p->k,
                                         .a_column = p->a_transposed ? p->m : 1,
                                         .b_row = p->b_transposed ? 1 : p->n,
                                         .b_column = p->b_transposed ? p->k : 1};
    dl_cuda_product_on(backend, &a, DL_CUDA_F32);
}

static void start_blend(dl_backend *backend, const dl_cuda_blend_arguments *a)
{
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_muon_blend", a->n, a, sizeof *a});
}

/* Queues m and u, |u|^2 by blocks, 1 / |u|, and X = u / |u|. */
static void start_momentum(const work *w)
{
    const dl_inner_matrix *m = w->m;
    const size_t blocks = (w->n + DL_BLOCK - 1) / DL_BLOCK;
    const dl_cuda_muon_arguments u = {.u = w->x,
                                      .momentum = m->vectors[0],
                                      .g = m->g,
                                      .n = w->n,
                                      .hyper = m->hyper,
                                      .verdict = m->verdict};
    const dl_cuda_squares_arguments squares = {w->x, w->n, w->squares};
    const dl_cuda_inverse_arguments inverse = {w->squares, blocks, w->workspaces, EPS};
    const dl_cuda_blend_arguments scaled = {
        .y = w->x, .x = w->x, .factor = w->workspaces, .n = w->n, .a = 1};
    dl_backend_cuda_launch(m->backend, &(dl_cuda_launch){"dl_muon_momentum", w->n, &u, sizeof u});
    dl_backend_cuda_launch(m->backend, &(dl_cuda_launch){"dl_squares", blocks * DL_CUDA_LANES,
                                                         &squares, sizeof squares});
    dl_backend_cuda_launch(m->backend,
                           &(dl_cuda_launch){"dl_muon_inverse", 1, &inverse, sizeof inverse});
    start_blend(m->backend, &scaled);
}

/* Queues S, S^2, b S + c S^2, its product with X, and a X + that, into next. */
static void start_iteration(const work *w)
{
    const size_t rows = w->m->rows, columns = w->m->columns, side = w->side;
    const bool tall = rows > columns;
    dl_backend *b = w->m->backend;
    const product gram = {w->s, w->x, w->x, side, side, w->n / side, tall, !tall};
    const product square = {w->mix, w->s, w->s, side, side, side, false, false};
    const product next = {.c = w->next,
                          .a = tall ? w->x : w->mix,
                          .b = tall ? w->mix : w->x,
                          .m = rows,
                          .n = columns,
                          .k = side};
    start_product(b, &gram);
    start_product(b, &square);
    start_blend(
        b, &(dl_cuda_blend_arguments){.y = w->mix, .x = w->s, .n = side * side, .a = B, .b = C});
    start_product(b, &next);
    start_blend(b, &(dl_cuda_blend_arguments){.y = w->next, .x = w->x, .n = w->n, .a = A, .b = 1});
}

/* Queues the same steps. The number of iterations is the host's copy, because hyper is in device
 * memory. After a skipped step the iterations run on old numbers, and apply writes nothing. */
static void matrix_on_cuda(const dl_inner_matrix *m)
{
    work w = {.m = m, .n = m->rows * m->columns, .side = dl_size_min(m->rows, m->columns)};
    const int n_threads = dl_pool_size(m->pool);
    layout(&w, &(dl_arena){.base = m->scratch, .size = scratch(m->sizes, n_threads)}, m->sizes,
           n_threads);
    start_momentum(&w);
    for (int i = 0; i < m->muon_steps; i++) {
        start_iteration(&w);
        float *x = w.x;
        w.x = w.next;
        w.next = x;
    }
    const dl_cuda_apply_arguments a = {.p = m->p,
                                       .x = w.x,
                                       .n = w.n,
                                       .scale =
                                           0.2f * sqrtf((float)dl_size_max(m->rows, m->columns)),
                                       .hyper = m->hyper,
                                       .verdict = m->verdict};
    dl_backend_cuda_launch(m->backend, &(dl_cuda_launch){"dl_muon_apply", a.n, &a, sizeof a});
}

static size_t n_vectors(const dl_config *config)
{
    (void)config;
    return 1;
}

const dl_rule dl_rule_muon = {
    .n_vectors = n_vectors,
    .vectors = {"momentum_buffer"},
    .matrix = {[DL_DEVICE_CPU] = matrix, [DL_DEVICE_CUDA] = matrix_on_cuda},
    .scratch = scratch,
};
