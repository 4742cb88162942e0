/* combine.c - the cost of the combiners, beside the plain mean of the same members.
 *
 *     combine [elements] [members] [rounds] [threads]     defaults: 10000000, 8, 9, all cores
 *
 * Each case is a whole outer step (sgd, digests off) in place over float32 payloads in memory;
 * every round runs every case once, and the medians over the rounds count. bench/combine.md has
 * results, bench/combine_torch.py does the same in PyTorch operations. */
#include "base/clock.h"
#include "outer/outer_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 99, MAX_CASES = 32, MAX_BENCH_MEMBERS = 64 };

typedef struct bench {
    size_t n, n_members;
    dl_pool *pool;
    dl_manifest manifest;
    dl_codec_form form;
    dl_arena arena;
    dl_fragment_state state;
    float *members[MAX_BENCH_MEMBERS];
} bench;

typedef struct bench_case {
    const dl_combiner *combiner;
    char name[64];
    dl_outer_scratch *scratch;
    double seconds[MAX_ROUNDS];
} bench_case;

static void fail(void)
{
    fprintf(stderr, "%s\n", diloco_error_text());
    exit(1);
}

static void set_up(bench *b, int threads)
{
    static dl_config config;
    diloco_tensor tensor = {.name = "w", .n_dims = 1, .shape = {b->n}};
    dl_arena measure = {0};
    dl_config_init(&config);
    if (dl_isa_check() || dl_pool_create(&b->pool, threads) ||
        dl_manifest_init(&b->manifest, &tensor, 1, false) ||
        dl_codec_form_init(&b->form, &config, &b->manifest, 0))
        fail();
    for (dl_arena *arena = &measure;; arena = &b->arena) {
        dl_state_layout(&b->state, arena, b->manifest.fragments[0],
                        dl_outer_beside("sgd", dl_combiner_find("centered_clip")));
        for (size_t m = 0; m < b->n_members; m++)
            b->members[m] = DL_ARENA_ARRAY(arena, float, b->n);
        if (arena == &b->arena) break;
        if (dl_arena_init(&b->arena, measure.used)) fail();
    }
    for (size_t i = 0; i < b->n; i++)
        for (size_t m = 0; m < b->n_members; m++)
            b->members[m][i] = 1e-6f * (float)((i * 7919 + m * 104729) % 1000);
}

static void run(bench *b, const bench_case *c)
{
    dl_contribution_data members[MAX_BENCH_MEMBERS];
    float weight[MAX_BENCH_MEMBERS];
    uint64_t raw[MAX_BENCH_MEMBERS];
    dl_outer_step_facts facts;
    for (size_t m = 0; m < b->n_members; m++) {
        members[m] = (dl_contribution_data){
            .payload = (unsigned char *)b->members[m], .len = b->n * sizeof(float), .norm2 = 1};
        weight[m] = 1.0f / (float)b->n_members;
        raw[m] = 1;
    }
    dl_outer_step_args args = {.manifest = &b->manifest,
                               .form = &b->form,
                               .outer = dl_outer_beside("sgd", c->combiner),
                               .scalars = {1e-6f},
                               .n_members = b->n_members,
                               .members = members,
                               .weight = weight,
                               .raw = raw,
                               .no_digest = true};
    if (dl_outer_step(&b->state, &b->state, &args, &facts, c->scratch, b->pool)) fail();
}

/* Every combiner that the number of members allows; the last ones again after nnm. */
static size_t make_cases(bench_case *cases, const bench *b)
{
    size_t n = 0;
    for (size_t k = 0; dl_combiner_at(k); k++)
        for (int mixing = DL_MIX_NONE; mixing <= DL_MIX_NNM; mixing++) {
            dl_combine_rule rule = {.combiner = dl_combiner_at(k),
                                    .mixing = (dl_mixing)mixing,
                                    .trim = 200000000,
                                    .byzantine = 1,
                                    .clip_radius = 1};
            if (mixing && !rule.combiner->ignores_weights) continue;
            if (dl_combine_needed(&rule) > b->n_members || n == MAX_CASES) continue;
            bench_case *c = &cases[n++];
            c->combiner = rule.combiner;
            snprintf(c->name, sizeof c->name, "%s%s", mixing ? "nnm, " : "", rule.combiner->name);
            if (dl_outer_scratch_create(&c->scratch, &b->manifest, &rule, b->n_members,
                                        dl_pool_size(b->pool)))
                fail();
        }
    return n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static void report(const bench_case *cases, size_t n_cases, int rounds)
{
    printf("%-28s %8s  %s\n", "combiner", "ms", "times the mean");
    for (size_t k = 0; k < n_cases; k++) {
        double ratio[MAX_ROUNDS];
        for (int i = 0; i < rounds; i++)
            ratio[i] = cases[k].seconds[i] / cases[0].seconds[i];
        printf("%-28s %8.1f  %.2f\n", cases[k].name, 1e3 * median(cases[k].seconds, rounds),
               median(ratio, rounds));
    }
}

int main(int argc, char **argv)
{
    static bench_case cases[MAX_CASES];
    bench b = {.n = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000,
               .n_members = argc > 2 ? strtoull(argv[2], NULL, 10) : 8};
    int rounds = argc > 3 ? atoi(argv[3]) : 9, threads = argc > 4 ? atoi(argv[4]) : dl_cores();
    if (b.n == 0 || b.n_members == 0 || b.n_members > MAX_BENCH_MEMBERS || rounds < 1 ||
        rounds > MAX_ROUNDS || threads < 1) {
        fprintf(stderr,
                "usage: combine [elements] [members, at most %d] [rounds, at most %d] "
                "[threads]\n",
                MAX_BENCH_MEMBERS, MAX_ROUNDS);
        return 2;
    }
    set_up(&b, threads);
    size_t n_cases = make_cases(cases, &b);
    for (int round = -1; round < rounds; round++) /* round -1 warms up */
        for (size_t k = 0; k < n_cases; k++) {
            dl_time begin = dl_clock_now();
            run(&b, &cases[k]);
            if (round >= 0) cases[k].seconds[round] = dl_seconds(dl_clock_now() - begin);
        }
    printf("%zu elements, %zu members, %d rounds, %d threads, %s\n", b.n, b.n_members, rounds,
           threads, dl_isa_name(dl_isa_chosen()));
    report(cases, n_cases, rounds);
    for (size_t k = 0; k < n_cases; k++)
        dl_outer_scratch_destroy(cases[k].scratch);
    dl_codec_form_deinit(&b.form);
    dl_manifest_deinit(&b.manifest);
    dl_arena_deinit(&b.arena);
    dl_pool_destroy(b.pool);
    return 0;
}
