/* gradient_test.c - operations on the whole gradient, on the CPU and with its memory locked away.
 */
#include "nn/gradient.h"

#include "check.h"

#include <stdlib.h>

enum { N = 10000 }; /* more than two blocks, the last one short */

typedef struct rig {
    dl_gradient g;
    float host[N];
} rig;

static void *room(dl_backend *b, size_t n)
{
    void *memory;
    CHECK_OK(dl_backend_alloc(b, &memory, n));
    return memory;
}

static rig *open_rig(const char *backend, int threads)
{
    rig *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    CHECK_OK(dl_backend_create(&r->g.backend, backend));
    CHECK_OK(dl_pool_create(&r->g.pool, threads));
    r->g.n = N;
    r->g.values = room(r->g.backend, sizeof r->host);
    r->g.squares = room(r->g.backend, dl_gradient_blocks(N) * sizeof *r->g.squares);
    r->g.verdict = room(r->g.backend, sizeof *r->g.verdict);
    for (size_t i = 0; i < N; i++)
        r->host[i] = sinf((float)i);
    return r;
}

static void close_rig(rig *r)
{
    dl_backend_release(r->g.backend, r->g.values);
    dl_backend_release(r->g.backend, r->g.squares);
    dl_backend_release(r->g.backend, r->g.verdict);
    dl_pool_destroy(r->g.pool);
    dl_backend_destroy(r->g.backend);
    free(r);
}

static dl_verdict judge(rig *r)
{
    dl_verdict v;
    dl_backend_copy_in(r->g.backend, r->g.values, r->host, sizeof r->host);
    dl_gradient_judge(&r->g);
    dl_backend_copy_out(r->g.backend, &v, r->g.verdict, sizeof v);
    return v;
}

static void scaled(rig *r, float out[N])
{
    dl_gradient_scale(&r->g);
    dl_backend_copy_out(r->g.backend, out, r->g.values, N * sizeof *out);
}

static void check_clip(const char *backend, int threads)
{
    static float out[N];
    rig *r = open_rig(backend, threads);
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += (double)r->host[i] * (double)r->host[i];
    dl_verdict v = judge(r);
    CHECK_NEAR(sqrt(sum), v.norm, 1e-9 * sqrt(sum));
    CHECK(v.clip_factor == 1 && v.steps == 1 && !v.skipped);
    scaled(r, out);
    CHECK_BYTES(r->host, out, sizeof out);
    r->g.clip = 0.5;
    v = judge(r);
    CHECK(v.clip_factor == (float)(0.5 / v.norm));
    CHECK_INT(2, v.steps);
    scaled(r, out);
    for (size_t i = 0; i < N; i++)
        CHECK(out[i] == r->host[i] * v.clip_factor);
    r->g.margin = 1e-6;
    v = judge(r);
    CHECK(v.clip_factor == (float)(0.5 / (v.norm + 1e-6)));
    close_rig(r);
}

TEST(norm_above_the_clip_gives_a_factor_and_scaling_applies_it)
{
    check_clip("cpu", 1);
    check_clip("cpu", 3);
    check_clip("trap", 2);
}

TEST(norm_has_the_same_bits_at_any_number_of_threads)
{
    rig *one = open_rig("cpu", 1), *three = open_rig("cpu", 3);
    const dl_verdict a = judge(one), b = judge(three);
    CHECK(a.norm == b.norm);
    close_rig(one), close_rig(three);
}

TEST(value_that_is_not_finite_is_found_and_scaling_then_gives_zeros)
{
    static float out[N];
    rig *r = open_rig("trap", 2);
    r->host[5003] = NAN;
    r->host[7001] = INFINITY;
    const dl_verdict v = judge(r);
    CHECK(!isfinite(v.norm) && v.skipped);
    CHECK_INT(5003, v.bad);
    CHECK_INT(0, v.steps);
    scaled(r, out);
    for (size_t i = 0; i < N; i++)
        CHECK(out[i] == 0);
    close_rig(r);
}

TEST(pull_adds_mu_times_the_distance_from_the_anchor_in_its_range_only)
{
    static float x[N], anchor[N], out[N];
    rig *r = open_rig("trap", 1);
    dl_backend *b = r->g.backend;
    void *px = room(b, sizeof x), *pa = room(b, sizeof anchor);
    for (size_t i = 0; i < N; i++) {
        x[i] = cosf((float)i);
        anchor[i] = x[i] - 1 / (float)(i + 3);
    }
    dl_backend_copy_in(b, px, x, sizeof x);
    dl_backend_copy_in(b, pa, anchor, sizeof anchor);
    dl_backend_copy_in(b, r->g.values, r->host, sizeof r->host);
    const dl_pull pull = {.parameters = px, .anchor = pa, .begin = 7, .end = N - 5, .mu = 0.3f};
    dl_gradient_pull(&r->g, &pull);
    dl_backend_copy_out(b, out, r->g.values, sizeof out);
    for (size_t i = 0; i < N; i++) {
        const bool inside = i >= pull.begin && i < pull.end;
        const float want = fmaf(0.3f, x[i] - anchor[i], r->host[i]);
        CHECK(out[i] == (inside ? want : r->host[i]));
    }
    dl_backend_release(b, px);
    dl_backend_release(b, pa);
    close_rig(r);
}

TEST_MAIN(norm_above_the_clip_gives_a_factor_and_scaling_applies_it,
          norm_has_the_same_bits_at_any_number_of_threads,
          value_that_is_not_finite_is_found_and_scaling_then_gives_zeros,
          pull_adds_mu_times_the_distance_from_the_anchor_in_its_range_only)
