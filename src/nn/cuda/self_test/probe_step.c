/* probe_step.c - the kernels of an optimizer step against the CPU's own functions. */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/gradient.h"
#include "nn/inner_rows.h"
#include "tensor/cuda/cuda_kernel.h"
#include "tensor/kernels.h"

#include <string.h>

/* Over one block of threads, and not all of the next. */
enum { N = 517, BLOCKS = 17, MANY = BLOCKS * DL_CUDA_BLOCK - 37 };

/* The CPU may contract a product and a sum; a step rounds a few times. */
static const double FEW_ROUNDINGS = 1e-6;

static void *zeroed(dl_probe *p, size_t n)
{
    return memset(dl_probe_bytes(p, n), 0, n);
}

diloco_status dl_probe_squares(dl_probe *p)
{
    float *values = dl_probe_input(p, MANY);
    double *squares = dl_probe_bytes(p, BLOCKS * sizeof *squares);
    const dl_cuda_squares_arguments a = {DL_PROBE_AT(p, values), MANY, DL_PROBE_AT(p, squares)};
    dl_probe_run(p, (size_t)BLOCKS * DL_CUDA_LANES, &a, sizeof a);
    for (size_t i = 0; i < BLOCKS; i++)
        squares[i] = dl_block_norm2(values + i * DL_CUDA_BLOCK,
                                    dl_size_min(MANY - i * DL_CUDA_BLOCK, DL_CUDA_BLOCK));
    return dl_probe_compare(p);
}

static diloco_status judge(dl_probe *p, size_t bad, double clip)
{
    dl_probe_begin(p);
    float *values = dl_probe_input(p, MANY);
    double *squares = dl_probe_bytes(p, BLOCKS * sizeof *squares);
    dl_verdict *verdict = zeroed(p, sizeof *verdict);
    const dl_gradient g = {.backend = p->cpu,
                           .pool = p->pool,
                           .values = values,
                           .n = MANY,
                           .squares = squares,
                           .verdict = verdict,
                           .clip = clip,
                           .margin = 1e-6};
    for (size_t i = bad; i < MANY; i += 1000)
        values[i] = INFINITY;
    dl_gradient_judge(&g); /* squares are an input of the kernel */
    *verdict = (dl_verdict){.steps = 41};
    const dl_cuda_judge_arguments a = {.values = DL_PROBE_AT(p, values),
                                       .n = MANY,
                                       .squares = DL_PROBE_AT(p, squares),
                                       .n_squares = BLOCKS,
                                       .verdict = DL_PROBE_AT(p, verdict),
                                       .clip = g.clip,
                                       .margin = g.margin};
    dl_probe_run(p, DL_GPU_THREADS, &a, sizeof a);
    dl_gradient_judge(&g);
    return dl_probe_compare(p);
}

diloco_status dl_probe_judge(dl_probe *p)
{
    DL_TRY(judge(p, MANY, 0.125));
    DL_TRY(judge(p, MANY, 0));
    return judge(p, MANY / 2, 0.125);
}

static diloco_status scale(dl_probe *p, bool skipped)
{
    dl_probe_begin(p);
    float *values = dl_probe_change(p, N, 0);
    dl_verdict *verdict = zeroed(p, sizeof *verdict);
    *verdict = (dl_verdict){.skipped = skipped, .clip_factor = 0.3f};
    const dl_gradient g = {
        .backend = p->cpu, .pool = p->pool, .values = values, .n = N, .verdict = verdict};
    const dl_cuda_scale_arguments a = {DL_PROBE_AT(p, values), N, DL_PROBE_AT(p, verdict)};
    dl_probe_run(p, N, &a, sizeof a);
    dl_gradient_scale(&g);
    return dl_probe_compare(p);
}

diloco_status dl_probe_scale(dl_probe *p)
{
    DL_TRY(scale(p, false));
    return scale(p, true);
}

diloco_status dl_probe_pull(dl_probe *p)
{
    float *values = dl_probe_change(p, N, 0), *x = dl_probe_input(p, N);
    float *anchor = dl_probe_input(p, N);
    const dl_gradient g = {.backend = p->cpu, .pool = p->pool, .values = values, .n = N};
    const dl_cuda_pull_arguments a = {DL_PROBE_AT(p, values), DL_PROBE_AT(p, x),
                                      DL_PROBE_AT(p, anchor), N, 0.3f};
    dl_probe_run(p, N, &a, sizeof a);
    dl_gradient_pull(&g, &(dl_pull){x, anchor, 0, N, a.mu});
    return dl_probe_compare(p);
}

/* ---- the update */

static const dl_hyper_options options = {.lr = 0.02,
                                         .weight_decay = 0.5,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .eps = 1e-8,
                                         .alpha = 0.99,
                                         .momentum = 0.9,
                                         .momentum_weight = 0.7,
                                         .muon_lr = 0.03,
                                         .muon_momentum = 0.8,
                                         .muon_nesterov = 1,
                                         .muon_steps = 5};

/* pow of a device may round otherwise. */
diloco_status dl_probe_hyper_of_step(dl_probe *p)
{
    dl_verdict *verdict = zeroed(p, sizeof *verdict);
    *verdict = (dl_verdict){.steps = 3, .clip_factor = 0.4f};
    dl_hyper *hyper = (void *)dl_probe_each(p, sizeof *hyper / sizeof(float), 1e-6);
    memset(hyper, 0, sizeof *hyper);
    const dl_cuda_hyper_arguments a = {DL_PROBE_AT(p, hyper), DL_PROBE_AT(p, verdict), options};
    dl_probe_run(p, 1, &a, sizeof a);
    dl_hyper_fill(hyper, &options, verdict);
    return dl_probe_compare(p);
}

/* The rooms of an update, and the same as arguments of the CPU's function. */
typedef struct update {
    dl_inner_part part;
    dl_hyper *hyper;
    dl_verdict *verdict;
} update;

static update begin_update(dl_probe *p, size_t n_vectors, bool skipped)
{
    dl_probe_begin(p);
    update u = {.hyper = zeroed(p, sizeof *u.hyper), .verdict = zeroed(p, sizeof *u.verdict)};
    *u.verdict = (dl_verdict){.steps = 3, .skipped = skipped, .clip_factor = 0.4f};
    dl_hyper_fill(u.hyper, &options, u.verdict);
    u.part = (dl_inner_part){.p = dl_probe_change(p, N, FEW_ROUNDINGS),
                             .g = dl_probe_input(p, N),
                             .n = N,
                             .hyper = u.hyper,
                             .verdict = u.verdict,
                             .decays = true,
                             .backend = p->cpu};
    for (size_t v = 0; v < n_vectors; v++)
        u.part.vectors[v] = dl_probe_change(p, N, FEW_ROUNDINGS);
    for (size_t i = 0; n_vectors == 2 && i < N; i++) /* means of squares */
        u.part.vectors[1][i] *= u.part.vectors[1][i];
    return u;
}

static diloco_status end_update(dl_probe *p, const update *u, const dl_rule *rule)
{
    if (!u->verdict->skipped) rule->update[DL_DEVICE_CPU](&u->part);
    return dl_probe_compare(p);
}

static diloco_status moments(dl_probe *p, const dl_rule *rule, bool skipped)
{
    const update u = begin_update(p, 2, skipped);
    const dl_cuda_adamw_arguments a = {.p = DL_PROBE_AT(p, u.part.p),
                                       .m = DL_PROBE_AT(p, u.part.vectors[0]),
                                       .v = DL_PROBE_AT(p, u.part.vectors[1]),
                                       .g = DL_PROBE_AT(p, u.part.g),
                                       .n = N,
                                       .hyper = DL_PROBE_AT(p, u.hyper),
                                       .verdict = DL_PROBE_AT(p, u.verdict),
                                       .decays = true};
    dl_probe_run(p, N, &a, sizeof a);
    return end_update(p, &u, rule);
}

diloco_status dl_probe_adamw(dl_probe *p)
{
    DL_TRY(moments(p, &dl_rule_adamw, true));
    return moments(p, &dl_rule_adamw, false);
}

diloco_status dl_probe_qhadamw(dl_probe *p)
{
    DL_TRY(moments(p, &dl_rule_qhadamw, true));
    return moments(p, &dl_rule_qhadamw, false);
}

static diloco_status sgd(dl_probe *p, size_t n_vectors, bool skipped)
{
    const update u = begin_update(p, n_vectors, skipped);
    const dl_cuda_sgd_arguments a = {.p = DL_PROBE_AT(p, u.part.p),
                                     .momentum =
                                         n_vectors ? DL_PROBE_AT(p, u.part.vectors[0]) : NULL,
                                     .g = DL_PROBE_AT(p, u.part.g),
                                     .n = N,
                                     .hyper = DL_PROBE_AT(p, u.hyper),
                                     .verdict = DL_PROBE_AT(p, u.verdict),
                                     .decays = true};
    dl_probe_run(p, N, &a, sizeof a);
    return end_update(p, &u, &dl_rule_sgd);
}

diloco_status dl_probe_sgd(dl_probe *p)
{
    DL_TRY(sgd(p, 1, true));
    DL_TRY(sgd(p, 1, false));
    return sgd(p, 0, false);
}

/* The squares are well above the mean's square, since their difference would lose its digits. */
static diloco_status rmsprop(dl_probe *p, size_t n_vectors, bool skipped)
{
    const update u = begin_update(p, n_vectors, skipped);
    for (size_t i = 0; i < N; i++)
        u.part.vectors[0][i] = 2 + u.part.vectors[0][i] * u.part.vectors[0][i];
    const dl_cuda_rmsprop_arguments a = {
        .p = DL_PROBE_AT(p, u.part.p),
        .squares = DL_PROBE_AT(p, u.part.vectors[0]),
        .momentum = n_vectors > 1 ? DL_PROBE_AT(p, u.part.vectors[1]) : NULL,
        .mean = n_vectors > 2 ? DL_PROBE_AT(p, u.part.vectors[2]) : NULL,
        .g = DL_PROBE_AT(p, u.part.g),
        .n = N,
        .hyper = DL_PROBE_AT(p, u.hyper),
        .verdict = DL_PROBE_AT(p, u.verdict),
        .decays = true};
    dl_probe_run(p, N, &a, sizeof a);
    return end_update(p, &u, &dl_rule_rmsprop);
}

diloco_status dl_probe_rmsprop(dl_probe *p)
{
    DL_TRY(rmsprop(p, 3, true));
    DL_TRY(rmsprop(p, 3, false));
    DL_TRY(rmsprop(p, 2, false));
    return rmsprop(p, 1, false);
}
