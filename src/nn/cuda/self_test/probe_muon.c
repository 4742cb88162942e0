/* probe_muon.c - the kernels of Muon against its formulas (nn/inner_muon.c). */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"

#include <math.h>
#include <string.h>

enum { N = 517 };
static const double FEW_ROUNDINGS = 1e-6;

typedef struct step {
    dl_hyper *hyper;
    dl_verdict *verdict;
} step;

static step begin_step(dl_probe *p, bool nesterov, bool skipped)
{
    dl_probe_begin(p);
    step s = {dl_probe_bytes(p, sizeof *s.hyper), dl_probe_bytes(p, sizeof *s.verdict)};
    memset(s.hyper, 0, sizeof *s.hyper);
    memset(s.verdict, 0, sizeof *s.verdict);
    *s.hyper = (dl_hyper){.clip_factor = 0.4f,
                          .muon_lr = 0.03f,
                          .muon_keep = 0.9f,
                          .muon_momentum = 0.8f,
                          .muon_nesterov = nesterov};
    s.verdict->skipped = skipped;
    return s;
}

static diloco_status momentum(dl_probe *p, bool nesterov, bool skipped)
{
    const step s = begin_step(p, nesterov, skipped);
    float *u = dl_probe_output(p, N, FEW_ROUNDINGS), *m = dl_probe_change(p, N, FEW_ROUNDINGS);
    const float *g = dl_probe_input(p, N), mu = s.hyper->muon_momentum;
    const dl_cuda_muon_arguments a = {.u = DL_PROBE_AT(p, u),
                                      .momentum = DL_PROBE_AT(p, m),
                                      .g = DL_PROBE_AT(p, g),
                                      .n = N,
                                      .hyper = DL_PROBE_AT(p, s.hyper),
                                      .verdict = DL_PROBE_AT(p, s.verdict)};
    dl_probe_run(p, N, &a, sizeof a);
    for (size_t i = 0; !skipped && i < N; i++) {
        const float x = g[i] * s.hyper->clip_factor;
        m[i] = mu * m[i] + (1 - mu) * x;
        u[i] = nesterov ? mu * m[i] + (1 - mu) * x : m[i];
    }
    return dl_probe_compare(p);
}

diloco_status dl_probe_muon_momentum(dl_probe *p)
{
    DL_TRY(momentum(p, true, true));
    DL_TRY(momentum(p, true, false));
    return momentum(p, false, false);
}

diloco_status dl_probe_muon_inverse(dl_probe *p)
{
    for (int k = 0; k < 2; k++) {
        enum { SUMS = 7 };
        dl_probe_begin(p);
        double sum = 0, *squares = dl_probe_bytes(p, SUMS * sizeof *squares);
        float *out = dl_probe_output(p, 1, 0);
        for (size_t i = 0; i < SUMS; i++)
            sum += squares[i] = k ? 0 : 1.0 / (double)(i + 3);
        const dl_cuda_inverse_arguments a = {DL_PROBE_AT(p, squares), SUMS, DL_PROBE_AT(p, out),
                                             1e-7f};
        dl_probe_run(p, 1, &a, sizeof a);
        *out = (float)(1 / fmax(sqrt(sum), (double)a.eps));
        DL_TRY(dl_probe_compare(p));
    }
    return DILOCO_OK;
}

static diloco_status blend(dl_probe *p, float b)
{
    dl_probe_begin(p);
    float *y = b != 0 ? dl_probe_change(p, N, FEW_ROUNDINGS) : dl_probe_output(p, N, FEW_ROUNDINGS);
    const float *x = dl_probe_input(p, N), *factor = dl_probe_input(p, 1);
    const dl_cuda_blend_arguments a = {.y = DL_PROBE_AT(p, y),
                                       .x = DL_PROBE_AT(p, x),
                                       .factor = b != 0 ? NULL : DL_PROBE_AT(p, factor),
                                       .n = N,
                                       .a = -1.5f,
                                       .b = b};
    dl_probe_run(p, N, &a, sizeof a);
    for (size_t i = 0; i < N; i++)
        y[i] = b != 0 ? a.a * x[i] + b * y[i] : a.a * *factor * x[i];
    return dl_probe_compare(p);
}

diloco_status dl_probe_muon_blend(dl_probe *p)
{
    DL_TRY(blend(p, 0.75f));
    return blend(p, 0);
}

diloco_status dl_probe_muon_apply(dl_probe *p)
{
    for (int skipped = 1; skipped >= 0; skipped--) {
        const step s = begin_step(p, false, skipped);
        float *w = dl_probe_change(p, N, FEW_ROUNDINGS);
        const float *x = dl_probe_input(p, N);
        const dl_cuda_apply_arguments a = {.p = DL_PROBE_AT(p, w),
                                           .x = DL_PROBE_AT(p, x),
                                           .n = N,
                                           .scale = 2.5f,
                                           .hyper = DL_PROBE_AT(p, s.hyper),
                                           .verdict = DL_PROBE_AT(p, s.verdict)};
        dl_probe_run(p, N, &a, sizeof a);
        for (size_t i = 0; !skipped && i < N; i++)
            w[i] = s.hyper->muon_keep * w[i] - s.hyper->muon_lr * a.scale * x[i];
        DL_TRY(dl_probe_compare(p));
    }
    return DILOCO_OK;
}
