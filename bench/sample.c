/* sample.c LAYERS CHANNELS HEADS VOCAB CONTEXT TOKENS THREADS: tokens a second of the decoder after
 * a prompt of CONTEXT / 2, and their share of the memory's reading speed, in turns.
 */
#include "model/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURNS = 5, ACCUMULATORS = 16 };

typedef struct reading {
    const float *data;
    size_t n;
    double sums[256];
} reading;

/* As fast as memory gives it: a sum for each of many lanes. */
static void read_part(void *context, int part, int n_parts)
{
    reading *r = context;
    size_t begin, end;
    float lanes[ACCUMULATORS * 8] = {0};
    dl_part_range(&begin, &end, r->n, ACCUMULATORS * 8, part, n_parts);
    for (size_t i = begin; i + ACCUMULATORS * 8 <= end; i += ACCUMULATORS * 8)
        for (size_t l = 0; l < ACCUMULATORS * 8; l++)
            lanes[l] += r->data[i + l];
    for (size_t l = 0; l < ACCUMULATORS * 8; l++)
        r->sums[part] += (double)lanes[l];
}

static void set(dl_config *config, const char *name, const char *value)
{
    if (!dl_config_set(config, name, value, "bench")) return;
    fprintf(stderr, "%s\n", diloco_error_text());
    exit(2);
}

static void check(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", diloco_error_text());
    exit(1);
}

/* Seconds: on one thread those of the processor, so that other work on the machine does not count.
 */
static double now(int n_threads)
{
    struct timespec t;
    clock_gettime(n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    dl_decoder *decoder;
    dl_config_init(&config);
    if (argc != 8) {
        fprintf(stderr, "sample LAYERS CHANNELS HEADS VOCAB CONTEXT TOKENS THREADS\n");
        return 2;
    }
    set(&config, "parameters.model.layers", argv[1]);
    set(&config, "parameters.model.channels", argv[2]);
    set(&config, "parameters.model.heads", argv[3]);
    set(&config, "parameters.model.vocab", argv[4]);
    set(&config, "parameters.model.context", argv[5]);
    int n_threads = atoi(argv[7]);
    size_t n_tokens = strtoul(argv[6], NULL, 10), context = (size_t)config.context;
    const dl_sample sample = dl_sample_tokens((size_t)config.vocab, context);
    check(dl_backend_create(&backend, "cpu"));
    check(dl_pool_create(&pool, n_threads));
    check(dl_model_create(&model, &config, &sample, 1, backend, pool));
    size_t n_tensors;
    const diloco_tensor *tensors = dl_model_tensors(model, &n_tensors);
    check(dl_decoder_create(&decoder, tensors, n_tensors, &config, pool));
    size_t n = dl_model_n_parameters(model);
    float *p = dl_model_parameters(model), *logits = malloc((size_t)config.vocab * sizeof *logits);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(i * 2654435761u % 1024) / 25600.0f - 0.02f;
    for (size_t i = 0; i < context / 2; i++)
        dl_decoder_step(decoder, NULL, (int32_t)(i % (size_t)config.vocab));
    double decode = 1e30, read = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        reading r = {.data = p, .n = n};
        double begin = now(n_threads);
        for (size_t i = 0; i < n_tokens; i++)
            dl_decoder_step(decoder, logits, (int32_t)i);
        double seconds = (now(n_threads) - begin) / (double)n_tokens;
        if (seconds < decode) decode = seconds;
        begin = now(n_threads);
        for (int i = 0; i < 4; i++)
            dl_pool_run(pool, read_part, &r);
        seconds = (now(n_threads) - begin) / 4;
        if (seconds < read) read = seconds;
        if (r.sums[0] > 1e30) return 1; /* so that the sums are needed */
    }
    printf("%.1f M parameters: %.1f tokens/s; reading them takes %.2f ms (%.1f GB/s), a token %.2f "
           "ms: "
           "%.0f %%\n",
           (double)n / 1e6, 1 / decode, read * 1e3, 4 * (double)n / read / 1e9, decode * 1e3,
           100 * read / decode);
    dl_decoder_destroy(decoder);
    dl_model_destroy(model);
    dl_pool_destroy(pool);
    dl_backend_destroy(backend);
    free(logits);
    return 0;
}
