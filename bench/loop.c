/* loop.c - the cost of the outer loop between synchronisations, and of one synchronisation.
 *
 *     loop [elements] [rounds]      defaults: 100000000, 5
 *
 * The exchange does nothing, so that only the loop is measured: the difference and the checks
 * (g read back, bounds), the outer step (Nesterov) with adopting. bench/loop.md has results. */
#include "base/clock.h"
#include <diloco/loop.h>

#include <stdio.h>
#include <stdlib.h>

enum { QUIET_STEPS = 10000000, MAX_ROUNDS = 99 };

static diloco_status all_reduce(void *user, const diloco_reduce *reduce, void **handle)
{
    (void)user, (void)reduce, (void)handle;
    return DILOCO_OK;
}

static diloco_status wait_for(void *user, void *handle)
{
    (void)user, (void)handle;
    return DILOCO_OK;
}

static void must(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "loop: %s\n", diloco_error_text());
    exit(1);
}

static double now_s(void)
{
    return dl_seconds(dl_clock_now());
}

static diloco_loop *loop_of(float *w, size_t n, uint64_t sync_every)
{
    diloco_loop *loop;
    diloco_communicator c = {.size = sizeof c, .all_reduce = all_reduce, .wait = wait_for};
    diloco_loop_options options = {.size = sizeof options, .sync_every = sync_every};
    diloco_tensor t = {.name = "w", .data = w, .n_dims = 1, .shape = {n}};
    must(diloco_loop_create(&loop, &options, &c));
    must(diloco_loop_tensor(loop, &t));
    must(diloco_loop_start(loop));
    return loop;
}

static double seconds_of_a_quiet_step(void)
{
    float w[1] = {0};
    diloco_loop *loop = loop_of(w, 1, (uint64_t)QUIET_STEPS + 1);
    double begin = now_s();
    for (int i = 0; i < QUIET_STEPS; i++)
        must(diloco_loop_step(loop));
    double s = (now_s() - begin) / QUIET_STEPS;
    diloco_loop_destroy(loop);
    return s;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000000;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (n < 1 || rounds < 1 || rounds > MAX_ROUNDS) return 2;
    printf("a step between synchronisations %8.1f ns\n", 1e9 * seconds_of_a_quiet_step());

    float *w = calloc(n, sizeof *w);
    double prepare[MAX_ROUNDS], perform[MAX_ROUNDS];
    if (!w) return 1;
    diloco_loop *loop = loop_of(w, n, 1);
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i < n; i++)
            w[i] += 0.001f;
        double begin = now_s();
        must(diloco_loop_prepare(loop));
        double middle = now_s();
        must(diloco_loop_perform(loop, NULL));
        prepare[r] = middle - begin;
        perform[r] = now_s() - middle;
    }
    qsort(prepare, (size_t)rounds, sizeof *prepare, by_size);
    qsort(perform, (size_t)rounds, sizeof *perform, by_size);
    printf("prepare, %zu elements        %8.1f ms\n", n, 1e3 * prepare[rounds / 2]);
    printf("perform                              %8.1f ms\n", 1e3 * perform[rounds / 2]);
    diloco_loop_destroy(loop);
    free(w);
    return 0;
}
