/* gradient.c - see gradient.h. The table `rows` has a column of functions for each kind of device.
 *
 *   clip   factor = clip / (norm + margin) where norm > clip; with a margin of 1e-6 as in
 *          torch.nn.utils.clip_grad_norm_ */
#include "nn/gradient.h"

#include "nn/cuda/columns.h"
#include "nn/enter.h"
#include "tensor/kernels.h"

#include <math.h>
#include <string.h>

size_t dl_gradient_blocks(size_t n)
{
    return (n + DL_BLOCK - 1) / DL_BLOCK;
}

/* ---- on the CPU */

/* Sums of squares of this part's blocks, each by PROTOCOL B3. */
static void square_part(void *context, int part, int n_parts)
{
    const dl_gradient *g = context;
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, dl_gradient_blocks(g->n), 1, part, n_parts);
    for (size_t i = begin; i < end; i++)
        g->squares[i] =
            dl_block_norm2(g->values + i * DL_BLOCK, dl_size_min(g->n - i * DL_BLOCK, DL_BLOCK));
    dl_fp_leave(saved);
}

/* The sums of blocks are added in index order, so the norm has the same bits at any number of
 * threads. Only a norm that is not finite costs a search for the element. */
static void judge_on_cpu(const dl_gradient *g)
{
    double sum = 0;
    dl_pool_run(g->pool, square_part, (void *)(uintptr_t)g);
    for (size_t i = 0; i < dl_gradient_blocks(g->n); i++)
        sum += g->squares[i];
    dl_verdict *v = g->verdict;
    v->norm = sqrt(sum);
    v->skipped = !isfinite(v->norm);
    v->clip_factor =
        g->clip > 0 && v->norm > g->clip ? (float)(g->clip / (v->norm + g->margin)) : 1.0f;
    if (v->skipped)
        v->bad = dl_first_bad(g->values, g->n, INFINITY);
    else
        v->steps++;
}

static void scale_part(void *context, int part, int n_parts)
{
    const dl_gradient *g = context;
    const float factor = g->verdict->clip_factor;
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, g->n, DL_BLOCK, part, n_parts);
    for (size_t i = begin; i < end; i++)
        g->values[i] *= factor;
    dl_fp_leave(saved);
}

/* Factor 1 is exact, so nothing is written then. */
static void scale_on_cpu(const dl_gradient *g)
{
    if (g->verdict->skipped)
        memset(g->values, 0, g->n * sizeof *g->values);
    else if (g->verdict->clip_factor != 1)
        dl_pool_run(g->pool, scale_part, (void *)(uintptr_t)g);
}

static inline DL_BODY void pull_body(float *restrict g, const float *restrict x,
                                     const float *restrict anchor, float mu, size_t n)
{
    for (size_t i = 0; i < n; i++)
        g[i] = fmaf(mu, x[i] - anchor[i], g[i]);
}
DL_KERNEL(pull_range, (float *g, const float *x, const float *anchor, float mu, size_t n),
          pull_body(g, x, anchor, mu, n))

/* FedProx's proximal term (arXiv:1812.06127): the gradient of mu/2 ||parameters - anchor||^2. */
static void pull_on_cpu(const dl_gradient *g, const dl_pull *p)
{
    dl_isa_call(pull_range)(g->values + p->begin, p->parameters + p->begin, p->anchor + p->begin,
                            p->mu, p->end - p->begin);
}

/* ---- the table */

/* A device's functions. Each queues its work, or does it at once on the CPU. */
typedef struct row {
    void (*judge)(const dl_gradient *g);
    void (*scale)(const dl_gradient *g);
    void (*pull)(const dl_gradient *g, const dl_pull *p);
} row;

static const row rows[DL_N_DEVICES] = {
    [DL_DEVICE_CPU] = {.judge = judge_on_cpu, .scale = scale_on_cpu, .pull = pull_on_cpu},
    [DL_DEVICE_CUDA] = {.judge = dl_cuda_judge, .scale = dl_cuda_scale, .pull = dl_cuda_pull},
};

void dl_gradient_judge(const dl_gradient *g)
{
    dl_backend_enter(g->backend);
    rows[g->backend->ops->device].judge(g);
    dl_backend_leave(g->backend);
}

void dl_gradient_scale(const dl_gradient *g)
{
    dl_backend_enter(g->backend);
    rows[g->backend->ops->device].scale(g);
    dl_backend_leave(g->backend);
}

void dl_gradient_pull(const dl_gradient *g, const dl_pull *p)
{
    dl_backend_enter(g->backend);
    rows[g->backend->ops->device].pull(g, p);
    dl_backend_leave(g->backend);
}
