/* emulated_launches_test.c - sequences of kernels that are started as graphs, against the same
 * kernels started one by one. */
#include "emulated_backend.h"

#include "faulty_kernels.h"
#include "model/model.h"
#include "nn/cuda/kernel_arguments.h"
#include "nn/inner.h"
#include "tensor/cuda/cuda_api.h"

#include <math.h>
#include <stdlib.h>

/* ---- sequences of one kernel */

enum { N = 300, ARRAYS = 3, KERNELS = 12, REPEATS = 6 };

/* y = a x + b y on three arrays in turn: another order of the kernels gives other values. `a`
 * depends on the repetition, as a learning rate does. *calls: of the driver in the last one. */
static diloco_status blend(float out[ARRAYS * N], uint64_t *calls, dl_backend *b)
{
    void *memory;
    DL_TRY(dl_backend_alloc(b, &memory, ARRAYS * N * sizeof(float)));
    float *y = memory;
    for (size_t i = 0; i < ARRAYS * N; i++)
        out[i] = cosf((float)i);
    dl_backend_copy_in(b, y, out, ARRAYS * N * sizeof(float));
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        const uint64_t before = emulated_calls();
        for (int k = 0; k < KERNELS; k++) {
            const dl_cuda_blend_arguments a = {.y = y + k % ARRAYS * N,
                                               .x = y + (k + 1) % ARRAYS * N,
                                               .n = N,
                                               .a = k == 5 ? 0.1f * (float)repeat : 0.5f,
                                               .b = 0.25f};
            dl_backend_cuda_launch(b, &(dl_cuda_launch){"dl_muon_blend", N, &a, sizeof a});
        }
        dl_backend_submit(b);
        *calls = emulated_calls() - before;
    }
    dl_backend_copy_out(b, out, y, ARRAYS * N * sizeof(float));
    const diloco_status status = dl_backend_sync(b);
    dl_backend_release(b, memory);
    return status;
}

/* A repetition is three calls: the context, the arguments that changed, the graph. */
TEST(sequence_that_comes_again_is_one_call_with_the_bits_of_single_launches)
{
    float want[ARRAYS * N], got[ARRAYS * N];
    uint64_t calls;
    dl_backend *b;
    for (size_t i = 0; i < 2 * EMULATED_WAYS; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_OK(emulated_open_as(&b, &setup, true));
        CHECK_OK(blend(want, &calls, b));
        CHECK_INT(1 + KERNELS, calls);
        dl_backend_destroy(b);
        CHECK_OK(emulated_open(&b, &setup));
        CHECK_OK(blend(got, &calls, b));
        CHECK_INT(3, calls);
        dl_backend_destroy(b);
        CHECK_INT(0, emulated_leaked());
        CHECK_BYTES(want, got, sizeof want);
    }
}

/* Sequences of 8 to 8 + lengths - 1 kernels in turn: each comes again after more others than graphs
 * are kept. */
TEST(more_sequences_than_graphs_are_kept_run_with_the_same_bits)
{
    enum { LENGTHS = 40, TURNS = 3 };
    float want[N], got[N] = {0};
    for (int graphs = 0; graphs < 2; graphs++) {
        void *y;
        dl_backend *b;
        CHECK_OK(emulated_open_as(&b, &(emulated_setup){.seed = 1}, graphs == 0));
        CHECK_OK(dl_backend_alloc(b, &y, N * sizeof(float)));
        for (size_t i = 0; i < N; i++)
            got[i] = sinf((float)i);
        dl_backend_copy_in(b, y, got, sizeof got);
        for (int turn = 0; turn < TURNS; turn++)
            for (int length = 8; length < 8 + LENGTHS; length++) {
                for (int k = 0; k < length; k++) {
                    const dl_cuda_blend_arguments a = {
                        .y = y, .x = y, .n = N, .a = 0.01f * (float)turn, .b = 0.99f};
                    dl_backend_cuda_launch(b, &(dl_cuda_launch){"dl_muon_blend", N, &a, sizeof a});
                }
                dl_backend_submit(b);
            }
        dl_backend_copy_out(b, got, y, sizeof got);
        CHECK_OK(dl_backend_sync(b));
        dl_backend_release(b, y);
        dl_backend_destroy(b);
        CHECK_INT(0, emulated_leaked());
        if (graphs == 0) memcpy(want, got, sizeof want);
    }
    CHECK_BYTES(want, got, sizeof want);
}

TEST(fault_of_any_call_with_graphs_is_reported)
{
    static const int codes[] = {DL_CUDA_OUT_OF_MEMORY, DL_CUDA_LAUNCH_FAILED};
    float want[ARRAYS * N], got[ARRAYS * N];
    uint64_t ignored;
    dl_backend *b;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1}));
    const uint64_t opened = emulated_calls();
    CHECK_OK(blend(want, &ignored, b));
    const uint64_t calls = emulated_calls();
    dl_backend_destroy(b);
    for (size_t k = 0; k < 2; k++)
        for (uint64_t at = opened + 1; at <= calls; at++) {
            const emulated_setup setup = {.seed = 1, .fail_at = at, .fail_with = codes[k]};
            CHECK_OK(emulated_open(&b, &setup));
            const diloco_status status = blend(got, &ignored, b);
            dl_backend_destroy(b);
            if (status) {
                CHECK(status == DILOCO_EIO || status == DILOCO_ENOMEM);
                CHECK(!strstr(diloco_error_text(), "(null)")); /* it names the call */
            } else {
                CHECK_BYTES(want, got, sizeof want);
            }
        }
}

/* ---- a training step */

enum { VOCAB = 70, CONTEXT = 13, ROWS = 3, STEPS = 5, MOST = 20000 };

typedef struct outcome {
    size_t n;
    float parameters[MOST];
    uint64_t calls; /* of the driver in the last step */
    dl_cuda_counts launches;
} outcome;

/* Steps with a rate that changes; the third has fewer rows, and so other sizes. Two micro-batches,
 * or one. */
static void train(outcome *out, dl_backend *b, const char *optimizer, int micro_batches)
{
    static const char *const options[][2] = {
        {"parameters.model.layers", "2"},   {"parameters.model.channels", "16"},
        {"parameters.model.heads", "2"},    {"parameters.model.kv_heads", "1"},
        {"parameters.model.context", "13"}, {"parameters.model.ffn", "24"},
        {"trainer.gradient_clip", "0.5"}};
    int32_t inputs[ROWS * CONTEXT], targets[ROWS * CONTEXT];
    dl_config config;
    dl_model *model;
    dl_inner *inner;
    dl_pool *pool;
    dl_model_loss loss;
    size_t n_tensors;
    double norm;
    const dl_sample sample = dl_sample_tokens(VOCAB, CONTEXT);
    dl_config_init(&config);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECK_OK(dl_config_set(&config, options[i][0], options[i][1], "test"));
    CHECK_OK(dl_config_set(&config, "trainer.optimizer", optimizer, "test"));
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_OK(dl_model_create(&model, &config, &sample, ROWS, b, pool));
    const diloco_tensor *tensors = dl_model_tensors(model, &n_tensors);
    const dl_inner_model of = {.tensors = tensors,
                               .hidden = dl_model_hidden(model),
                               .n_tensors = n_tensors,
                               .parameters = dl_model_parameters(model),
                               .gradients = dl_model_gradients(model),
                               .backend = b,
                               .pool = pool};
    CHECK_OK(dl_inner_create(&inner, &config, &of));
    out->n = dl_model_n_parameters(model);
    CHECK(out->n <= MOST);
    dl_model_initial(model, out->parameters, 1);
    dl_backend_copy_in(b, of.parameters, out->parameters, out->n * sizeof(float));
    for (int step = 0; step < STEPS; step++) {
        const uint64_t before = emulated_calls();
        const dl_cuda_counts launched = dl_backend_cuda_counts(b);
        for (int i = 0; i < ROWS * CONTEXT; i++) {
            inputs[i] = (i * i + 3 * i + step) % VOCAB;
            targets[i] = i % 9 == step ? -1 : (i * 5 + 1) % VOCAB;
        }
        for (int k = 0; k < micro_batches; k++)
            CHECK_OK(dl_model_train(model, inputs, targets, step == 2 ? 1 : ROWS,
                                    1 / (float)micro_batches, k > 0));
        CHECK_OK(dl_inner_step(inner, 0.01 / (1 + step)));
        CHECK_OK(dl_inner_norm(inner, &norm));
        CHECK_OK(dl_model_take_loss(model, &loss));
        out->calls = emulated_calls() - before;
        out->launches = dl_backend_cuda_counts(b);
        out->launches.graphs -= launched.graphs;
        out->launches.kernels -= launched.kernels;
    }
    dl_backend_copy_out(b, out->parameters, of.parameters, out->n * sizeof(float));
    CHECK_OK(dl_backend_sync(b));
    dl_inner_destroy(inner);
    dl_model_destroy(model);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
}

static void check_training(const char *optimizer, int micro_batches, size_t ways)
{
    static outcome want, got;
    dl_backend *b;
    for (size_t i = 0; i < ways; i++) {
        const emulated_setup setup = emulated_way(4 * i + 1);
        CHECK_OK(emulated_open_as(&b, &setup, true));
        train(&want, b, optimizer, micro_batches);
        CHECK_OK(emulated_open(&b, &setup));
        train(&got, b, optimizer, micro_batches);
        CHECK_BYTES(want.parameters, got.parameters, want.n * sizeof(float));
        if (i == 0)
            printf("%s, %d micro-batches: %d calls of the driver in a step, %d without graphs\n",
                   optimizer, micro_batches, (int)got.calls, (int)want.calls);
        CHECK_INT(0, want.launches.graphs);
        CHECK(want.launches.kernels > (uint64_t)(50 * micro_batches));
        CHECK_INT(micro_batches, got.launches.graphs);
        CHECK_INT(0, got.launches.kernels);
    }
}

TEST(step_is_one_graph_a_micro_batch_with_the_bits_of_single_launches)
{
    check_training("adamw", 1, 2);
    check_training("adamw", 3, 1);
    check_training("muon", 2, 1);
}

/* ---- graphs of the emulated driver */

static bool add_kernel(const dl_cuda *cuda, void *graph, const char *kernel, const void *arguments,
                       size_t size)
{
    void *function, *node;
    void *extra[] = {DL_CUDA_EXTRA_POINTER, (void *)(uintptr_t)arguments, DL_CUDA_EXTRA_SIZE, &size,
                     DL_CUDA_EXTRA_END};
    if (cuda->function(&function, graph, kernel)) return false;
    const dl_cuda_kernel_node of = {.function = function,
                                    .grid_x = 2,
                                    .grid_y = 1,
                                    .grid_z = 1,
                                    .block_x = 256,
                                    .block_y = 1,
                                    .block_z = 1,
                                    .extra = extra};
    return !cuda->graph_add_kernel(&node, graph, NULL, 0, &of);
}

/* Element 1 after two kernels without a dependency: one writes 1 to it, the other doubles it. */
static float without_dependency(emulated_order order)
{
    dl_cuda cuda;
    void *context = NULL, *stream = NULL, *graph = NULL, *executable = NULL, *host = NULL;
    uint64_t at = 0;
    float values[2] = {0};
    int device = 0;
    emulated_configure(&(emulated_setup){.seed = 1, .order = order});
    CHECK_OK(dl_cuda_load(&cuda, EMULATED_LIBRARY));
    CHECK(!cuda.init(0) && !cuda.device_get(&device, 0));
    CHECK(!cuda.context_retain(&context, device) && !cuda.context_set(context));
    CHECK(!cuda.stream_create(&stream, 1) && !cuda.alloc(&at, N * sizeof(float)));
    CHECK(!cuda.host_alloc(&host, sizeof values, 0) && !cuda.graph_create(&graph, 0));
    CHECK(!cuda.fill(at, 0, N * sizeof(float), stream));
    float *const y = (float *)(uintptr_t)at;
    const faulty_arguments write = {.values = y, .n = N};
    const dl_cuda_blend_arguments twice = {.y = y, .x = y, .n = N, .a = 2};
    CHECK(add_kernel(&cuda, graph, "faulty_good", &write, sizeof write));
    CHECK(add_kernel(&cuda, graph, "dl_muon_blend", &twice, sizeof twice));
    CHECK(!cuda.graph_instantiate(&executable, graph, 0) && !cuda.graph_destroy(graph));
    CHECK_INT(DL_CUDA_INVALID_VALUE, cuda.graph_destroy(graph));
    CHECK_INT(DL_CUDA_INVALID_VALUE, cuda.graph_launch(graph, stream));
    CHECK(!cuda.graph_launch(executable, stream) && !cuda.graph_exec_destroy(executable));
    CHECK(!cuda.copy_out(host, at, sizeof values, stream) && !cuda.stream_wait(stream));
    memcpy(values, host, sizeof values);
    CHECK(!cuda.release(at) && !cuda.host_release(host) && !cuda.stream_destroy(stream));
    CHECK(!cuda.context_release(device));
    dl_cuda_unload(&cuda);
    CHECK_INT(0, emulated_leaked());
    return values[1];
}

TEST(missing_dependency_in_a_graph_gives_another_result_in_another_order)
{
    CHECK(without_dependency(EMULATED_ASCENDING) == 2);
    CHECK(without_dependency(EMULATED_DESCENDING) == 1);
}

TEST_MAIN(sequence_that_comes_again_is_one_call_with_the_bits_of_single_launches,
          more_sequences_than_graphs_are_kept_run_with_the_same_bits,
          fault_of_any_call_with_graphs_is_reported,
          step_is_one_graph_a_micro_batch_with_the_bits_of_single_launches,
          missing_dependency_in_a_graph_gives_another_result_in_another_order)
