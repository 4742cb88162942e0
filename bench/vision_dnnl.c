/* vision_dnnl.c - the time of oneDNN's convolutions alone in a step of ResNet-18, in the layouts
 * that it chooses itself (blocked), without conversions. vision.md compares a whole step with it.
 *
 *     OMP_NUM_THREADS=N bench_vision_dnnl [--batch N] [--steps N] [--winograd]
 *
 * Sums over the taps, as convolutions are by default; --winograd lets it choose that algorithm,
 * which rounds differently and takes half as many multiplications.
 *
 * One JSON object: the least processor seconds and seconds of forward, backward by data (but for
 * the first layer) and backward by weights, added up over all layers. */
#include <oneapi/dnnl/dnnl.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Convolutions of the network: image side, channels, kernel, stride, padding, how many. */
static const struct layer {
    dnnl_dim_t side, in, out, size, stride, pad;
    int count;
} layers[] = {
    {32, 3, 64, 3, 1, 1, 1},    {32, 64, 64, 3, 1, 1, 4},   {32, 64, 128, 3, 2, 1, 1},
    {32, 64, 128, 1, 2, 0, 1},  {16, 128, 128, 3, 1, 1, 3}, {16, 128, 256, 3, 2, 1, 1},
    {16, 128, 256, 1, 2, 0, 1}, {8, 256, 256, 3, 1, 1, 3},  {8, 256, 512, 3, 2, 1, 1},
    {8, 256, 512, 1, 2, 0, 1},  {4, 512, 512, 3, 1, 1, 3},
};

static void must(dnnl_status_t status)
{
    if (status == dnnl_success) return;
    fprintf(stderr, "bench_vision_dnnl: oneDNN says %d\n", (int)status);
    exit(1);
}

static double clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct times {
    double seconds, processor;
} times;

static dnnl_alg_kind_t algorithm = dnnl_convolution_direct;

/* Least time of executing a primitive over memory of its own. */
static times measure(dnnl_engine_t engine, dnnl_primitive_desc_t pd, const dnnl_query_t what[3],
                     const int args[3], int repeats)
{
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t memory[3];
    times best = {1e9, 1e9};
    must(dnnl_primitive_create(&primitive, pd));
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i < 3; i++) {
        const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what[i], 0);
        memory[i].arg = args[i];
        must(dnnl_memory_create(&memory[i].memory, md, engine, DNNL_MEMORY_ALLOCATE));
        float *data;
        must(dnnl_memory_get_data_handle(memory[i].memory, (void **)&data));
        for (size_t k = 0; k < dnnl_memory_desc_get_size(md) / sizeof *data; k++)
            data[k] = (float)(k % 17) * 0.1f - 0.8f;
    }
    for (int i = 0; i <= repeats; i++) {
        double begin = clock_of(CLOCK_MONOTONIC), spent = clock_of(CLOCK_PROCESS_CPUTIME_ID);
        must(dnnl_primitive_execute(primitive, stream, 3, memory));
        must(dnnl_stream_wait(stream));
        double seconds = clock_of(CLOCK_MONOTONIC) - begin;
        double processor = clock_of(CLOCK_PROCESS_CPUTIME_ID) - spent;
        if (i && seconds < best.seconds) best.seconds = seconds;
        if (i && processor < best.processor) best.processor = processor;
    }
    for (int i = 0; i < 3; i++)
        must(dnnl_memory_destroy(memory[i].memory));
    must(dnnl_primitive_destroy(primitive));
    must(dnnl_stream_destroy(stream));
    return best;
}

static times layer_times(dnnl_engine_t engine, const struct layer *l, dnnl_dim_t batch, bool first,
                         int repeats)
{
    static const dnnl_query_t forward_md[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                              dnnl_query_dst_md};
    static const dnnl_query_t data_md[] = {dnnl_query_diff_src_md, dnnl_query_weights_md,
                                           dnnl_query_diff_dst_md};
    static const dnnl_query_t weights_md[] = {dnnl_query_src_md, dnnl_query_diff_weights_md,
                                              dnnl_query_diff_dst_md};
    const int forward_args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    const int data_args[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
    const int weights_args[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    dnnl_dim_t out = (l->side + 2 * l->pad - l->size) / l->stride + 1;
    const dnnl_dims_t x = {batch, l->in, l->side, l->side}, y = {batch, l->out, out, out};
    const dnnl_dims_t w = {l->out, l->in, l->size, l->size}, stride = {l->stride, l->stride};
    const dnnl_dims_t pad = {l->pad, l->pad};
    dnnl_memory_desc_t xd, yd, wd;
    dnnl_convolution_desc_t fd, bd, gd;
    dnnl_primitive_desc_t fp, bp, gp;
    must(dnnl_memory_desc_init_by_tag(&xd, 4, x, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&yd, 4, y, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&wd, 4, w, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_convolution_forward_desc_init(&fd, dnnl_forward_training, algorithm, &xd, &wd, NULL,
                                            &yd, stride, pad, pad));
    must(dnnl_primitive_desc_create(&fp, &fd, NULL, engine, NULL));
    must(dnnl_convolution_backward_data_desc_init(&bd, algorithm, &xd, &wd, &yd, stride, pad, pad));
    must(dnnl_primitive_desc_create(&bp, &bd, NULL, engine, fp));
    must(dnnl_convolution_backward_weights_desc_init(&gd, algorithm, &xd, &wd, NULL, &yd, stride,
                                                     pad, pad));
    must(dnnl_primitive_desc_create(&gp, &gd, NULL, engine, fp));
    times f = measure(engine, fp, forward_md, forward_args, repeats), b = {0, 0};
    if (!first) b = measure(engine, bp, data_md, data_args, repeats);
    times g = measure(engine, gp, weights_md, weights_args, repeats);
    dnnl_primitive_desc_destroy(fp);
    dnnl_primitive_desc_destroy(bp);
    dnnl_primitive_desc_destroy(gp);
    return (times){f.seconds + b.seconds + g.seconds, f.processor + b.processor + g.processor};
}

int main(int argc, char **argv)
{
    dnnl_engine_t engine;
    times all = {0, 0};
    dnnl_dim_t batch = 64;
    int repeats = 3;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--winograd") == 0)
            algorithm = dnnl_convolution_auto;
        else if (strcmp(argv[i], "--batch") == 0 && i + 1 < argc)
            batch = atol(argv[++i]);
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            repeats = atoi(argv[++i]);
    must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        times t = layer_times(engine, &layers[i], batch, i == 0, repeats);
        all.seconds += t.seconds * layers[i].count;
        all.processor += t.processor * layers[i].count;
    }
    printf("{\"seconds\":[%.4f],\"processor_seconds\":[%.4f]}\n", all.seconds, all.processor);
    dnnl_engine_destroy(engine);
    return 0;
}
