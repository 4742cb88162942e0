/* train_speed.c - how fast the engine trains, and where the time goes.
 *
 * Trains a GPT on random tokens for some steps (forward, backward, clipped AdamW). It prints one
 * line of JSON with the seconds of every step, by the clock and of processor time; train_speed.py
 * compares it with PyTorch. With --detail it also prints the share of each operation, the matrix
 * products of a step alone (the same calls, nothing else), and the machine's peak of fused
 * multiply-adds. With --device cuda it trains on a card, in the precision that --precision names.
 * "bytes" is then the memory that the card has less after a step than before the model was made,
 * and "planned_bytes" is that of the arrays alone. "graphs" and "kernels" are launches of the last
 * step: of recorded sequences, and of single kernels.
 * --seconds ends the steps early, after at least one. */
#include "base/clock.h"
#include "base/rng.h"
#include "model/model.h"
#include "nn/cpu/tile.h"
#include "nn/device.h"
#include "nn/gemm.h"
#include "nn/inner.h"
#include "nn/op.h"
#include "tensor/cuda/backend_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "train_speed: %s\n", diloco_error_text());
    exit(diloco_exit_code(status));
}

typedef struct rig {
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    dl_inner *inner;
    size_t vocab, batch, threads, steps;
    double most_seconds; /* of all steps together */
    const char *device;
    bool detail;
    uint64_t left_before, bytes; /* of the card's memory: left without a model; most taken by it */
} rig;

static void read_arguments(rig *r, int argc, char **argv)
{
    dl_config_init(&r->config);
    r->vocab = 256, r->batch = 8, r->threads = 1, r->steps = 5;
    r->device = "cpu", r->most_seconds = 1e9;
    for (int i = 1; i < argc; i++) {
        char name[64];
        if (strcmp(argv[i], "--detail") == 0) {
            r->detail = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) {
            fprintf(stderr,
                    "usage: train_speed [--layers N] [--heads N] [--channels N] [--context N]"
                    " [--ffn N] [--vocab N] [--batch N] [--threads N] [--steps N] [--detail]"
                    " [--device NAME] [--precision f32|bf16] [--seconds N]\n");
            exit(2);
        }
        if (strcmp(argv[i], "--device") == 0) {
            r->device = argv[++i];
            continue;
        }
        if (strcmp(argv[i], "--precision") == 0) {
            must(dl_config_set(&r->config, "trainer.precision", argv[++i], "command line"));
            continue;
        }
        size_t value = strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--batch") == 0)
            r->batch = value;
        else if (strcmp(argv[i], "--threads") == 0)
            r->threads = value;
        else if (strcmp(argv[i], "--steps") == 0)
            r->steps = value;
        else if (strcmp(argv[i], "--vocab") == 0)
            r->vocab = value;
        else if (strcmp(argv[i], "--seconds") == 0)
            r->most_seconds = (double)value;
        else {
            snprintf(name, sizeof name, "parameters.model.%s", argv[i] + 2);
            must(dl_config_set(&r->config, name, argv[i + 1], "command line"));
        }
        i++;
    }
}

/* Returns 0 for the CPU. */
static uint64_t memory_left(const rig *r)
{
    uint64_t left = 0;
    if (r->backend->ops->device == DL_DEVICE_CUDA)
        must(dl_backend_cuda_memory_left(&left, r->backend));
    return left;
}

/* A step frees nothing that it has allocated, so what is left after a step is the least. */
static void note_memory(rig *r)
{
    const uint64_t left = memory_left(r);
    if (left < r->left_before && r->left_before - left > r->bytes) r->bytes = r->left_before - left;
}

static void set_up(rig *r)
{
    size_t n_tensors;
    must(dl_device_open(&r->backend, r->device, 0));
    r->left_before = memory_left(r);
    must(dl_pool_create(&r->pool, (int)r->threads));
    const dl_sample sample = dl_sample_tokens(r->vocab, (size_t)r->config.context);
    must(dl_model_create(&r->model, &r->config, &sample, r->batch, r->backend, r->pool));
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    const dl_inner_model model = {.tensors = tensors,
                                  .hidden = dl_model_hidden(r->model),
                                  .n_tensors = n_tensors,
                                  .parameters = dl_model_parameters(r->model),
                                  .gradients = dl_model_gradients(r->model),
                                  .backend = r->backend,
                                  .pool = r->pool};
    must(dl_inner_create(&r->inner, &r->config, &model));
    const size_t n = dl_model_n_parameters(r->model);
    float *initial = malloc(n * sizeof *initial);
    if (!initial) exit(1);
    dl_model_initial(r->model, initial, 1);
    dl_backend_copy_in(r->backend, dl_model_parameters(r->model), initial, n * sizeof *initial);
    must(dl_backend_sync(r->backend));
    free(initial);
}

static void tear_down(rig *r)
{
    dl_inner_destroy(r->inner);
    dl_model_destroy(r->model);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
}

/* Seconds of processor time of all threads so far. */
static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns zeros for the CPU. */
static dl_cuda_counts launches(const rig *r)
{
    return r->backend->ops->device == DL_DEVICE_CUDA ? dl_backend_cuda_counts(r->backend)
                                                     : (dl_cuda_counts){.graphs = 0};
}

static double step(rig *r, const int32_t *inputs, const int32_t *targets)
{
    dl_time begin = dl_clock_now();
    must(dl_model_train(r->model, inputs, targets, r->batch, 1, false));
    must(dl_inner_step(r->inner, 4e-4));
    must(dl_backend_sync(r->backend));
    return dl_seconds(dl_clock_now() - begin);
}

/* ---- time of the products alone ------------------------------------------------------ */

typedef struct products {
    size_t m, n, k;
    float *a, *b, *c, *workspaces;
} products;

static void products_part(void *context, int part, int n_parts)
{
    const products *p = context;
    dl_gemm_args y = {'N', 'T', p->m, p->n, p->k, p->c, p->a, p->b, false};
    dl_gemm_args dx = {'N', 'N', p->m, p->k, p->n, p->a, p->c, p->b, false};
    dl_gemm_args dw = {'T', 'N', p->n, p->k, p->m, p->b, p->c, p->a, false};
    dl_gemm_part(&y, part, n_parts, p->workspaces);
    dl_gemm_part(&dx, part, n_parts, p->workspaces);
    dl_gemm_part(&dw, part, n_parts, p->workspaces);
}

/* Forward and backward products of one step's linear layers and head, on other memory. */
static double products_alone(rig *r)
{
    const dl_config *c = &r->config;
    size_t m = r->batch * (size_t)c->context, channels = (size_t)c->channels;
    size_t ffn = c->ffn ? (size_t)c->ffn : dl_size_round_up((8 * channels + 2) / 3, 32);
    size_t kv = (size_t)(c->kv_heads ? c->kv_heads : c->heads) * (channels / (size_t)c->heads);
    size_t shapes[][2] = {{channels + 2 * kv, channels},
                          {channels, channels},
                          {2 * ffn, channels},
                          {channels, ffn},
                          {r->vocab, channels}};
    size_t widest = dl_size_max(2 * ffn, dl_size_max(channels + 2 * kv, r->vocab));
    float *a = calloc(m * widest, sizeof *a), *b = calloc(widest * widest, sizeof *b);
    float *y = calloc(m * widest, sizeof *y);
    float *workspaces = calloc(r->threads * DL_GEMM_WORKSPACE, sizeof *workspaces);
    if (!a || !b || !y || !workspaces) exit(1);
    double best = 1e9;
    for (int repeat = 0; repeat < 5; repeat++) {
        dl_time begin = dl_clock_now();
        for (size_t i = 0; i < 5; i++) {
            products p = {m, shapes[i][0], shapes[i][1], a, b, y, workspaces};
            for (int64_t layer = 0; layer < (i == 4 ? 1 : c->layers); layer++)
                dl_pool_run(r->pool, products_part, &p);
        }
        double seconds = dl_seconds(dl_clock_now() - begin);
        if (seconds < best) best = seconds;
    }
    free(a), free(b), free(y), free(workspaces);
    return best;
}

/* ---- the machine's peak --------------------------------------------------------------- */

/* A tile of registers times data of a few KiB: nothing but multiply-adds that never wait. */
enum { PEAK_M = 12, PEAK_N = 32, PEAK_K = 64, PEAK_TURNS = 40000 };

static inline DL_BODY void peak_body(const dl_tile *t, int lanes)
{
    for (int i = 0; i < PEAK_TURNS; i++) {
        if (lanes == 16) dl_tile_strip16(t, 0, 12, 2);
        if (lanes == 8) dl_tile_strip8(t, 0, 6, 2), dl_tile_strip8(t, 16, 6, 2);
        if (lanes == 4) dl_tile_product4(t, 4);
    }
}
DL_TILE_KERNEL(peak, (const dl_tile *t), peak_body(t, lanes))

static void peak_part(void *context, int part, int n_parts)
{
    static const float a[PEAK_M * PEAK_K], b[PEAK_K * PEAK_N];
    float c[PEAK_M * PEAK_N];
    (void)context, (void)part, (void)n_parts;
    dl_tile t = {.c = c,
                 .a = a,
                 .b = b,
                 .m = PEAK_M,
                 .n = PEAK_N,
                 .k = PEAK_K,
                 .c_row = PEAK_N,
                 .a_row = PEAK_K,
                 .a_col = 1,
                 .b_row = PEAK_N};
    dl_isa_call(peak)(&t);
}

/* Floating-point operations a second of all the pool's threads together. */
static double measure_peak(rig *r)
{
    double best = 0;
    for (int repeat = 0; repeat < 5; repeat++) {
        dl_time begin = dl_clock_now();
        dl_pool_run(r->pool, peak_part, NULL);
        double rate = 2.0 * PEAK_M * PEAK_N * PEAK_K * PEAK_TURNS * (double)r->threads /
                      dl_seconds(dl_clock_now() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

/* ---- the report ----------------------------------------------------------------------- */

static dl_model_plan plan_of(const rig *r)
{
    dl_model_plan plan;
    const dl_device device = r->backend->ops->device;
    const dl_sample sample = dl_sample_tokens(r->vocab, (size_t)r->config.context);
    must(dl_model_plan_for(&plan, &r->config, &sample,
                           &(dl_graph_target){.device = device,
                                              .element = dl_model_element(&r->config, device),
                                              .max_rows = r->batch,
                                              .n_threads = (int)r->threads}));
    return plan;
}

/* Bytes of the arrays of model and optimizer. */
static uint64_t planned_bytes_of(const rig *r)
{
    const dl_model_plan plan = plan_of(r);
    const dl_inner_bytes inner = dl_inner_plan(&r->config, &plan.inner, (int)r->threads);
    return plan.parameter_bytes + plan.gradient_bytes + plan.activation_bytes + inner.vectors +
           inner.scratch;
}

/* The profile is that of the fastest step: seconds[0], since they are sorted. */
static void print_detail(rig *r, const dl_profile *profile, const double *seconds)
{
    double median = seconds[r->steps / 2];
    const dl_model_plan plan = plan_of(r);
    double tokens = (double)(r->batch * (size_t)r->config.context), total = 0;
    double alone = products_alone(r), peak_rate = measure_peak(r);
    printf("%zu parameters, %.0f tokens a step, %.1f MB of activations\n", plan.n_parameters,
           tokens, (double)plan.activation_bytes * 1e-6);
    for (size_t i = 0; dl_op_at(i); i++) {
        const double *s = profile->seconds[i];
        total += s[0] + s[1];
        printf("  %-10s forward %8.2f ms  backward %8.2f ms\n", dl_op_at(i)->name, s[0] * 1e3,
               s[1] * 1e3);
    }
    printf("  rest (mostly the optimizer)           %8.2f ms\n", (seconds[0] - total) * 1e3);
    printf("median step %.2f ms, fastest %.2f ms, %.0f tokens/s; products alone %.2f ms: %.0f %% "
           "of what they would allow\n",
           median * 1e3, seconds[0] * 1e3, tokens / median, alone * 1e3, 100 * alone / median);
    printf("%.1f GFLOP/s; peak %.1f: %.0f %%\n", plan.flops_per_token * tokens / median * 1e-9,
           peak_rate * 1e-9, 100 * plan.flops_per_token * tokens / median / peak_rate);
}

static void print_seconds(const char *key, const double *seconds, size_t n)
{
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < n; i++)
        printf("%s%.6f", i ? "," : "", seconds[i]);
    printf("]");
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

int main(int argc, char **argv)
{
    rig r = {0};
    dl_profile profile = {0}, fastest = {0};
    double fastest_seconds = 0;
    read_arguments(&r, argc, argv);
    if (r.detail && strcmp(r.device, "cpu") != 0) {
        fprintf(stderr, "train_speed: --detail is for the CPU: a card's kernels are queued\n");
        return 2;
    }
    const bool narrow = r.config.precision == DL_PRECISION_BF16;
    if (narrow && strcmp(r.device, "cpu") == 0) { /* which would train in f32 */
        fprintf(stderr, "train_speed: --precision bf16 is for a card: name it by --device\n");
        return 2;
    }
    set_up(&r);
    size_t n = r.batch * (size_t)r.config.context;
    int32_t *inputs = malloc(n * sizeof *inputs), *targets = malloc(n * sizeof *targets);
    double *seconds = calloc(r.steps + 1, sizeof *seconds);
    dl_model_loss loss;
    double *processor = calloc(r.steps + 1, sizeof *processor);
    dl_rng rng;
    if (!inputs || !targets || !seconds || !processor) return 1;
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, 0), 0);
    for (size_t i = 0; i < n; i++) {
        inputs[i] = (int32_t)dl_rng_below(&rng, r.vocab);
        targets[i] = (int32_t)dl_rng_below(&rng, r.vocab);
    }
    for (int i = 0; i < 2; i++) /* to touch all memory */
        step(&r, inputs, targets);
    if (r.detail) dl_model_profile(r.model, &profile);
    must(dl_model_take_loss(r.model, &loss));
    dl_cuda_counts before = launches(&r);
    const dl_time began = dl_clock_now();
    for (size_t i = 0; i < r.steps; i++) {
        if (i > 0 && dl_seconds(dl_clock_now() - began) > r.most_seconds) r.steps = i;
        if (i == r.steps) break;
        profile = (dl_profile){0};
        double begin = processor_time();
        before = launches(&r);
        seconds[i] = step(&r, inputs, targets);
        processor[i] = processor_time() - begin;
        note_memory(&r);
        if (i == 0 || seconds[i] < fastest_seconds) fastest = profile, fastest_seconds = seconds[i];
    }
    const dl_cuda_counts after = launches(&r);
    must(dl_model_take_loss(r.model, &loss));
    printf("{\"device\":\"%s\",\"precision\":\"%s\",\"parameters\":%zu,\"tokens\":%zu,"
           "\"bytes\":%" PRIu64 ",\"planned_bytes\":%" PRIu64 ",\"graphs\":%" PRIu64
           ",\"kernels\":%" PRIu64 ",\"loss\":%.6f",
           dl_backend_card(r.backend), narrow ? "bf16" : "f32", dl_model_n_parameters(r.model), n,
           r.bytes, planned_bytes_of(&r), after.graphs - before.graphs,
           after.kernels - before.kernels, loss.sum / (double)loss.n_targets);
    print_seconds("seconds", seconds, r.steps);
    print_seconds("processor_seconds", processor, r.steps);
    printf("}\n");
    qsort(seconds, r.steps, sizeof *seconds, ascending);
    if (r.detail) print_detail(&r, &fastest, seconds);
    free(inputs), free(targets), free(seconds), free(processor);
    tear_down(&r);
    return 0;
}
