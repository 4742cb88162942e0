/* vision_speed.c - steps of image models: forward, backward, a clipped AdamW step over random
 * images. See vision.md.
 *
 *     bench_vision_speed [--model lenet5|resnet_18] [--batch N] [--threads N] [--steps N]
 * [--detail]
 *
 * One JSON object: the seconds and the processor seconds of every step; --detail adds the share of
 * every operation. */
#include "base/clock.h"
#include "base/rng.h"
#include "model/model.h"
#include "nn/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rig {
    dl_config config;
    dl_sample sample;
    size_t batch, threads, steps;
    bool detail;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    dl_inner *inner;
    uint8_t *images;
    int32_t *labels;
} rig;

static void must(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "bench_vision_speed: %s\n", diloco_error_text());
    exit(1);
}

static void read_arguments(rig *r, int argc, char **argv)
{
    dl_config_init(&r->config);
    must(dl_config_set(&r->config, "trainer.model_name", "lenet5", "bench"));
    r->batch = 64, r->threads = 1, r->steps = 20;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        size_t *number = strcmp(argv[i], "--batch") == 0     ? &r->batch
                         : strcmp(argv[i], "--threads") == 0 ? &r->threads
                         : strcmp(argv[i], "--steps") == 0   ? &r->steps
                                                             : NULL;
        if (strcmp(argv[i], "--detail") == 0) {
            r->detail = true;
            continue;
        }
        if (strcmp(argv[i], "--model") == 0) {
            must(dl_config_set(&r->config, "trainer.model_name", value, "bench"));
        } else if (number && atol(value) > 0) {
            *number = (size_t)atol(value);
        } else {
            fprintf(stderr, "usage: bench_vision_speed [--model lenet5|resnet_18] [--batch N] "
                            "[--threads N] [--steps N] [--detail]\n");
            exit(2);
        }
        i++;
    }
    bool gray = strcmp(r->config.model, "lenet5") == 0;
    size_t side = gray ? 28 : 32;
    r->sample = (dl_sample){.kind = DL_IMAGES,
                            .length = 1,
                            .classes = 10,
                            .channels = gray ? 1 : 3,
                            .height = side,
                            .width = side,
                            .mean = {0.5f, 0.5f, 0.5f},
                            .deviation = {0.25f, 0.25f, 0.25f}};
}

static void set_up(rig *r)
{
    size_t n_tensors, bytes = r->batch * dl_sample_bytes(&r->sample);
    must(dl_backend_create(&r->backend, "cpu"));
    must(dl_pool_create(&r->pool, (int)r->threads));
    must(dl_model_create(&r->model, &r->config, &r->sample, r->batch, r->backend, r->pool));
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    const dl_inner_model inner = {.tensors = tensors,
                                  .hidden = dl_model_hidden(r->model),
                                  .n_tensors = n_tensors,
                                  .parameters = dl_model_parameters(r->model),
                                  .gradients = dl_model_gradients(r->model),
                                  .backend = r->backend,
                                  .pool = r->pool};
    must(dl_inner_create(&r->inner, &r->config, &inner));
    dl_model_initial(r->model, dl_model_parameters(r->model), 1);
    dl_rng rng;
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, 0), 0);
    r->images = malloc(bytes);
    r->labels = malloc(r->batch * sizeof *r->labels);
    if (!r->images || !r->labels) exit(1);
    for (size_t i = 0; i < bytes; i++)
        r->images[i] = (uint8_t)dl_rng_u32(&rng);
    for (size_t i = 0; i < r->batch; i++)
        r->labels[i] = (int32_t)dl_rng_below(&rng, 10);
}

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double step(rig *r)
{
    double norm;
    dl_time begin = dl_clock_now();
    must(dl_model_train(r->model, r->images, r->labels, r->batch, 1, false));
    must(dl_inner_step(r->inner, 1e-3));
    must(dl_inner_norm(r->inner, &norm));
    return dl_seconds(dl_clock_now() - begin);
}

static void print_seconds(const char *key, const double *seconds, size_t n)
{
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < n; i++)
        printf("%s%.6f", i ? "," : "", seconds[i]);
    printf("]");
}

static void print_detail(const dl_profile *profile)
{
    printf("%-14s %10s %10s\n", "operation", "forward ms", "backward");
    for (size_t i = 0; dl_op_at(i); i++)
        if (profile->seconds[i][0] + profile->seconds[i][1] > 0)
            printf("%-14s %10.2f %10.2f\n", dl_op_at(i)->name, 1e3 * profile->seconds[i][0],
                   1e3 * profile->seconds[i][1]);
}

int main(int argc, char **argv)
{
    static rig r;
    dl_profile profile = {0}, fastest = {0};
    dl_model_loss loss;
    read_arguments(&r, argc, argv);
    set_up(&r);
    double *seconds = calloc(2 * r.steps, sizeof *seconds), least = 0;
    if (!seconds) return 1;
    step(&r), step(&r); /* to touch all memory */
    if (r.detail) dl_model_profile(r.model, &profile);
    for (size_t i = 0; i < r.steps; i++) {
        profile = (dl_profile){0};
        double begin = processor_time();
        seconds[i] = step(&r);
        seconds[r.steps + i] = processor_time() - begin;
        if (i == 0 || seconds[i] < least) fastest = profile, least = seconds[i];
    }
    must(dl_model_take_loss(r.model, &loss));
    printf("{\"parameters\":%zu,\"loss\":%.6f", dl_model_n_parameters(r.model),
           loss.sum / (double)loss.n_targets);
    print_seconds("seconds", seconds, r.steps);
    print_seconds("processor_seconds", seconds + r.steps, r.steps);
    printf("}\n");
    if (r.detail) print_detail(&fastest);
    free(seconds), free(r.images), free(r.labels);
    dl_inner_destroy(r.inner);
    dl_model_destroy(r.model);
    dl_pool_destroy(r.pool);
    dl_backend_destroy(r.backend);
    return 0;
}
