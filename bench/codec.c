/* codec.c - encode, check and decode of every codec on one core, against reading the same floats.
 *
 *     bench_codec [rows] [columns] [rounds]
 *
 * One tensor of normal numbers. Decoding goes block by block into a room of 16 KiB, as the outer
 * step does; the last column writes the whole vector. GB/s are of the float32 vector (4 bytes an
 * element) in every column, whatever the payload's size. `read` adds up the vector's bits; it
 * runs before each case of each round, and the ratio is that of the two minima. */
#include "codec/codec.h"
#include "base/clock.h"
#include "base/rng.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CASES = 32 };

static inline DL_BODY void add_bits_body(uint32_t *sum, const float *x, size_t n)
{
    uint32_t total = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        total += bits;
    }
    *sum = total;
}
DL_KERNEL(add_bits, (uint32_t * sum, const float *x, size_t n), add_bits_body(sum, x, n))

typedef struct bench {
    dl_config config;
    dl_manifest manifest;
    dl_codec_form form;
    float *g, *out;
    unsigned char *payload;
    size_t len;
    double sink;
} bench;

static void fail(void)
{
    fprintf(stderr, "%s\n", diloco_error_text());
    exit(1);
}

/* ---- the timed functions */

static void run_read(bench *b)
{
    uint32_t sum;
    dl_isa_call(add_bits)(&sum, b->g, b->form.n);
    b->sink += sum;
}

static void run_encode(bench *b)
{
    b->form.codec->encode(&b->form, b->payload, &b->len, b->g);
}

static void run_check(bench *b)
{
    size_t index;
    double norm2;
    if (dl_codec_check(&b->form, b->payload, b->len, INFINITY, &index, &norm2)) fail();
    b->sink += norm2;
}

static void run_decode(bench *b)
{
    float room[DL_BLOCK];
    dl_fp_state saved = dl_fp_enter();
    for (size_t i = 0; i < b->form.n; i += DL_BLOCK) {
        b->form.codec->decode(&b->form, room, b->payload, b->len, i,
                              dl_size_min(DL_BLOCK, b->form.n - i));
        b->sink += (double)room[0];
    }
    dl_fp_leave(saved);
}

static void run_round_trip(bench *b)
{
    dl_codec_round_trip(&b->form, b->out, b->payload, b->len);
}

static double seconds_of(bench *b, void (*run)(bench *b))
{
    dl_time begin = dl_clock_now();
    run(b);
    return dl_seconds(dl_clock_now() - begin);
}

/* ---- the table */

/* Beside every codec of the list as it is by default. */
static const char *const topk_values[] = {"int8", "2bit"};
enum { N_RUNS = 4, N_TOPK = sizeof topk_values / sizeof topk_values[0] };
static void (*const runs[N_RUNS])(bench *b) = {run_encode, run_check, run_decode, run_round_trip};

static void time_case(bench *b, const char *name, int rounds)
{
    double best[N_RUNS], read = INFINITY, bytes = (double)b->form.n * 4;
    for (int r = 0; r < N_RUNS; r++)
        best[r] = INFINITY;
    for (int round = -1; round < rounds; round++) /* round -1 warms up */
        for (int r = 0; r < N_RUNS; r++) {
            double yardstick = seconds_of(b, run_read), s = seconds_of(b, runs[r]);
            if (round >= 0) read = fmin(read, yardstick), best[r] = fmin(best[r], s);
        }
    printf("%-10s %7.3f %8.2f", name, 8.0 * (double)b->len / (double)b->form.n,
           bytes / read * 1e-9);
    for (int r = 0; r < N_RUNS; r++)
        printf("  %7.2f %6.2f %5.2f", best[r] * 1e3, bytes / best[r] * 1e-9, read / best[r]);
    printf("\n");
    fflush(stdout);
}

/* Normal numbers, by the sum of twelve uniform ones. */
static void fill(float *x, size_t n)
{
    dl_rng rng;
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, 6), 0);
    for (size_t i = 0; i < n; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++)
            sum += dl_rng_f32(&rng);
        x[i] = sum * 1e-3f;
    }
}

static void pin(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void measure(bench *b, const char *codec, const char *values, const char *only, int rounds)
{
    char name[32];
    if (only && strcmp(only, codec) != 0) return;
    snprintf(name, sizeof name, "%s%s%s", codec, strcmp(codec, "topk") ? "" : " ",
             strcmp(codec, "topk") ? "" : values);
    dl_config_init(&b->config);
    if (dl_config_set(&b->config, "codec", codec, "bench") ||
        dl_config_set(&b->config, "server.diloco.codec_values", values, "bench") ||
        dl_codec_form_init(&b->form, &b->config, &b->manifest, 0))
        fail();
    time_case(b, name, rounds);
    dl_codec_form_deinit(&b->form);
}

int main(int argc, char **argv)
{
    static bench b;
    size_t rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 5000;
    size_t columns = argc > 2 ? strtoull(argv[2], NULL, 10) : 5000, n = rows * columns;
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    diloco_tensor tensor = {.name = "w", .n_dims = 2, .shape = {rows, columns}};
    if (n == 0 || rounds < 1) {
        fprintf(stderr, "usage: bench_codec [rows] [columns] [rounds]\n");
        return 2;
    }
    if (dl_isa_check() || dl_manifest_init(&b.manifest, &tensor, 1, false)) fail();
    b.g = malloc(n * sizeof *b.g);
    b.out = malloc(n * sizeof *b.out);
    b.payload = malloc(5 * n + 4096);
    if (!b.g || !b.out || !b.payload) return 1;
    fill(b.g, n);
    pin();
    printf("%zu x %zu floats, %s, one core, minimum of %d; ms, GB/s of float32, ratio to read\n",
           rows, columns, dl_isa_name(dl_isa_chosen()), rounds);
    printf("%-10s %7s %8s  %-20s  %-20s  %-20s  %-20s\n", "codec", "bits", "read", "encode",
           "check", "decode", "decode to memory");
    const char *only = argc > 4 ? argv[4] : NULL;
    for (size_t i = 0; dl_codec_at(i); i++)
        measure(&b, dl_codec_at(i)->name, "f32", only, rounds);
    for (size_t i = 0; i < N_TOPK; i++)
        measure(&b, "topk", topk_values[i], only, rounds);
    dl_manifest_deinit(&b.manifest);
    free(b.g), free(b.out), free(b.payload);
    return b.sink == 0.5;
}
