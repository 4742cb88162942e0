/* outer_step.c - the fused outer step against the machine's memory.
 *
 *     outer_step [elements] [rounds] [threads]      defaults: 100000000, 9, all cores
 *
 * Every round runs each case once, one after the other, so that a busy moment meets all; the
 * medians over the rounds count. The yardstick ("stream") reads and writes the same arrays in
 * place with little arithmetic, on the same threads; numbers stay small, so that no round
 * meets denormals or infinities. bench/outer_step.md has results. */
#include "outer/outer_step.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 4, MAX_ROUNDS = 99 };

typedef struct bench {
    size_t n;
    dl_pool *pool;
    dl_manifest manifest;
    dl_codec_form form;
    dl_arena arena;
    dl_fragment_state state;
    float *members[MEMBERS], *local;
    dl_outer_scratch *scratch;
    size_t n_streams; /* members that the yardstick reads */
    bool read_only;
    double sink[256];
} bench;

/* ---- the yardstick */

static inline DL_BODY void stream1_body(float *theta, float *v, const float *g, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        v[i] = fmaf(0.5f, v[i], g[i]);
        theta[i] = fmaf(1e-6f, v[i], theta[i]);
    }
}
DL_KERNEL(stream1, (float *theta, float *v, const float *g, size_t n), stream1_body(theta, v, g, n))

static inline DL_BODY void stream4_body(float *theta, float *v, const float *a, const float *b,
                                        const float *c, const float *d, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        v[i] = fmaf(0.5f, v[i], (a[i] + b[i]) + (c[i] + d[i]));
        theta[i] = fmaf(1e-6f, v[i], theta[i]);
    }
}
DL_KERNEL(stream4,
          (float *theta, float *v, const float *a, const float *b, const float *c, const float *d,
           size_t n),
          stream4_body(theta, v, a, b, c, d, n))

static void stream_part(void *context, int part, int n_parts)
{
    bench *b = context;
    size_t at, end;
    dl_part_range(&at, &end, b->n, DL_BLOCK, part, n_parts);
    float *theta = b->state.theta + at, *v = b->state.outer[0] + at, **g = b->members;
    if (b->read_only)
        b->sink[part] = dl_norm2(theta, end - at);
    else if (b->n_streams == 1)
        dl_isa_call(stream1)(theta, v, g[0] + at, end - at);
    else
        dl_isa_call(stream4)(theta, v, g[0] + at, g[1] + at, g[2] + at, g[3] + at, end - at);
}

/* ---- the cases */

static void fail(void)
{
    fprintf(stderr, "%s\n", diloco_error_text());
    exit(1);
}

static void stream(bench *b, size_t n_members)
{
    b->read_only = n_members == 0;
    b->n_streams = n_members;
    dl_pool_run(b->pool, stream_part, b);
}

static void outer(bench *b, size_t n_members, bool digest, bool adopt)
{
    dl_contribution_data members[MEMBERS];
    float weight[MEMBERS];
    uint64_t raw[MEMBERS];
    dl_local_tensor local = {b->local, 0, b->n, DL_TRAINED};
    dl_outer_step_facts facts;
    for (size_t m = 0; m < n_members; m++) {
        members[m] = (dl_contribution_data){
            .payload = (unsigned char *)b->members[m], .len = b->n * sizeof(float), .norm2 = 1};
        weight[m] = 1.0f / (float)n_members;
        raw[m] = 1;
    }
    dl_outer_step_args args = {.manifest = &b->manifest,
                               .form = &b->form,
                               .outer = dl_outer_find("nesterov"),
                               .scalars = {1e-6f, 0.5f},
                               .n_members = n_members,
                               .members = members,
                               .weight = weight,
                               .raw = raw,
                               .local = adopt ? &local : NULL,
                               .n_local = adopt,
                               .no_digest = !digest};
    if (dl_outer_step(&b->state, &b->state, &args, &facts, b->scratch, b->pool)) fail();
}

static void delta_part(void *context, int part, int n_parts)
{
    bench *b = context;
    size_t at, end;
    dl_part_range(&at, &end, b->n, DL_BLOCK, part, n_parts);
    dl_delta(b->members[0] + at, b->state.theta + at, b->local + at, end - at);
}

static void run_read(bench *b)
{
    stream(b, 0);
}
static void run_stream1(bench *b)
{
    stream(b, 1);
}
static void run_stream4(bench *b)
{
    stream(b, MEMBERS);
}
static void run_plain1(bench *b)
{
    outer(b, 1, false, false);
}
static void run_digest1(bench *b)
{
    outer(b, 1, true, false);
}
static void run_plain4(bench *b)
{
    outer(b, MEMBERS, false, false);
}
static void run_digest4(bench *b)
{
    outer(b, MEMBERS, true, false);
}

static void run_sync(bench *b) /* the work of outer_step_torch.py */
{
    dl_pool_run(b->pool, delta_part, b);
    outer(b, 1, false, true);
}

static const struct row {
    const char *name;
    void (*run)(bench *b);
    int arrays; /* read: bytes over time is the rate shown */
    int yardstick;
    double goal;
} rows[] = {
    {"read only", run_read, 1, 0, 0},
    {"stream, 1 member", run_stream1, 3, 1, 0},
    {"outer step, 1 member", run_plain1, 3, 1, 0.85},
    {"outer step, 1 member, digests", run_digest1, 3, 1, 0.75},
    {"stream, 4 members", run_stream4, 6, 4, 0},
    {"outer step, 4 members", run_plain4, 6, 4, 0.85},
    {"outer step, 4 members, digests", run_digest4, 6, 4, 0.75},
    {"delta, outer step, adopt", run_sync, 5, 0, 0},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* ---- setting up and telling */

static void set_up(bench *b, size_t n, int threads)
{
    static dl_config config;
    diloco_tensor tensor = {.name = "w", .n_dims = 1, .shape = {n}};
    dl_arena measure = {0};
    dl_combine_rule mean = dl_combine_mean();
    *b = (bench){.n = n};
    dl_config_init(&config);
    if (dl_isa_check() || dl_pool_create(&b->pool, threads) ||
        dl_manifest_init(&b->manifest, &tensor, 1, false) ||
        dl_codec_form_init(&b->form, &config, &b->manifest, 0) ||
        dl_outer_scratch_create(&b->scratch, &b->manifest, &mean, MEMBERS, threads))
        fail();
    for (dl_arena *arena = &measure;; arena = &b->arena) {
        dl_state_layout(&b->state, arena, b->manifest.fragments[0], dl_outer_find("nesterov"));
        b->local = DL_ARENA_ARRAY(arena, float, n);
        for (int m = 0; m < MEMBERS; m++)
            b->members[m] = DL_ARENA_ARRAY(arena, float, n);
        if (arena == &b->arena) break;
        if (dl_arena_init(&b->arena, measure.used)) fail();
    }
    memset(b->arena.base, 0, b->arena.size); /* so that every page is there */
    for (size_t i = 0; i < n; i++) {
        b->state.theta[i] = b->local[i] = 1;
        for (int m = 0; m < MEMBERS; m++)
            b->members[m][i] = 1e-6f * (float)((i + (size_t)m) % 1000);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* The row that is the yardstick of row r, or -1. */
static int yardstick_of(int r)
{
    for (int y = 0; y < N_ROWS && rows[r].yardstick; y++)
        if (y != r && rows[y].yardstick == rows[r].yardstick) return y < r ? y : -1;
    return -1;
}

static void report(double seconds[N_ROWS][MAX_ROUNDS], int rounds, size_t n)
{
    printf("%-32s %8s %8s %8s  %s\n", "case", "ms", "GB/s", "ratio", "goal");
    for (int r = 0; r < N_ROWS; r++) {
        double sorted[MAX_ROUNDS], ratio[MAX_ROUNDS];
        int y = yardstick_of(r);
        memcpy(sorted, seconds[r], sizeof sorted);
        double s = median(sorted, rounds);
        printf("%-32s %8.1f %8.2f", rows[r].name, s * 1e3,
               (double)n * 4 * rows[r].arrays / s * 1e-9);
        for (int i = 0; i < rounds && y >= 0; i++)
            ratio[i] = seconds[y][i] / seconds[r][i];
        if (y >= 0) printf(" %8.3f", median(ratio, rounds));
        if (rows[r].goal > 0) printf("  %.2f", rows[r].goal);
        printf("\n");
    }
    printf(
        "GB/s: of the arrays read. ratio: time of the stream of the same round over this time\n");
}

int main(int argc, char **argv)
{
    static double seconds[N_ROWS][MAX_ROUNDS];
    static bench b;
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000000;
    int rounds = argc > 2 ? atoi(argv[2]) : 9;
    int threads = argc > 3 ? atoi(argv[3]) : dl_cores();
    if (n == 0 || rounds < 1 || rounds > MAX_ROUNDS || threads < 1) {
        fprintf(stderr, "usage: outer_step [elements] [rounds, at most %d] [threads]\n",
                MAX_ROUNDS);
        return 2;
    }
    set_up(&b, n, threads);
    for (int round = -1; round < rounds; round++) /* round -1 warms up */
        for (int r = 0; r < N_ROWS; r++) {
            dl_time begin = dl_clock_now();
            rows[r].run(&b);
            if (round >= 0) seconds[r][round] = dl_seconds(dl_clock_now() - begin);
        }
    printf("%zu elements, %d rounds, %d threads, %s\n", n, rounds, threads,
           dl_isa_name(dl_isa_chosen()));
    report(seconds, rounds, n);
    dl_outer_scratch_destroy(b.scratch);
    dl_manifest_deinit(&b.manifest);
    dl_arena_deinit(&b.arena);
    dl_pool_destroy(b.pool);
    return 0;
}
