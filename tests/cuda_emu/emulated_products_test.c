/* emulated_products_test.c - products by the library in place of our kernel: the same values, also
 * in graphs, and our kernel where the library is missing or has no algorithm. */
#include "emulated_backend.h"

#include "emulated_product.h"
#include "model/model.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/cuda/self_test/self_tests.h"
#include "nn/cuda/start.h"
#include "tensor/cuda/cuda_api.h"
#include "tensor/widths.h"

#include <math.h>
#include <stdlib.h>

static diloco_status open_with(dl_backend **out, const emulated_setup *setup, const char *library,
                               bool unrecorded)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const char *const libraries[] = {"libnosuchproducts.so.1", library, NULL};
    const dl_cuda_source source = {.name = "emulated",
                                   .library = EMULATED_LIBRARY,
                                   .images = images,
                                   .n_images = 1,
                                   .poisons = true,
                                   .products = libraries,
                                   .unrecorded = unrecorded};
    emulated_configure(setup);
    return dl_backend_cuda(out, &source, 0);
}

/* ---- products */

typedef struct product_shape {
    size_t m, n, k;
    bool a_transposed, b_transposed, bias, add;
    size_t shift; /* of all arrays, in floats */
} product_shape;

/* The library has no algorithm for k = 13. */
static const product_shape shapes[] = {
    {1, 70, 24, .b_transposed = true},
    {37, 72, 24, .b_transposed = true, .bias = true},
    {37, 24, 72, .shift = 1},
    {24, 72, 37, .a_transposed = true, .add = true, .shift = 2},
    {5, 1, 9, .a_transposed = true, .b_transposed = true, .bias = true, .add = true},
    {1, 9, 5, .a_transposed = true, .shift = 3},
    {6, 7, 13, .bias = true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0], MOST = 4096, REPEATS = 3 };

static void fill(float *to, size_t n, float step)
{
    for (size_t i = 0; i < n; i++)
        to[i] = sinf((float)i * step + 0.1f);
}

/* Arrays of the device have a float for each element, of which bf16 uses the first half. */
static void copy_in(dl_backend *b, float *to, const float *from, size_t n, bool narrow)
{
    static unsigned char bytes[2 * N_SHAPES * MOST];
    dl_narrow(bytes, from, n, "BF16");
    if (narrow)
        dl_backend_copy_in(b, to, bytes, 2 * n);
    else
        dl_backend_copy_in(b, to, from, n * sizeof *from);
}

static void copy_out(dl_backend *b, float *to, const float *from, size_t n, bool narrow)
{
    static unsigned char bytes[2 * MOST];
    if (narrow) {
        dl_backend_copy_out(b, bytes, from, 2 * n);
        dl_widen(to, bytes, n, "BF16");
    } else {
        dl_backend_copy_out(b, to, from, n * sizeof *to);
    }
}

static float *element(float *array, size_t i, bool narrow)
{
    return (float *)(void *)((unsigned char *)array + i * (narrow ? 2 : sizeof *array));
}

/* Each shape's product, all of them REPEATS times. out f32[N_SHAPES][MOST]. */
static diloco_status multiply_all(float *out, dl_backend *b, dl_cuda_types types)
{
    static float a[MOST], y[MOST], bias[MOST];
    float *memory;
    void *at;
    DL_TRY(dl_backend_alloc(b, &at, (size_t)(N_SHAPES + 3) * MOST * sizeof(float)));
    memory = at;
    float *at_a = memory + N_SHAPES * MOST, *at_b = at_a + MOST, *at_bias = at_b + MOST;
    fill(a, MOST, 0.7f), fill(y, MOST, 1.3f), fill(bias, MOST, 0.3f);
    fill(out, N_SHAPES * MOST, 2);
    const bool narrow = types != DL_CUDA_F32, narrow_c = types == DL_CUDA_BF16;
    for (size_t i = 0; i < N_SHAPES; i++)
        copy_in(b, memory + i * MOST, out + i * MOST, MOST, narrow_c);
    copy_in(b, at_a, a, MOST, narrow);
    copy_in(b, at_b, y, MOST, narrow);
    dl_backend_copy_in(b, at_bias, bias, sizeof bias);
    for (size_t i = 0; i < (size_t)REPEATS * (N_SHAPES + 1); i++) {
        if (i % (N_SHAPES + 1) == N_SHAPES) { /* the end of a sequence, long enough for a graph */
            dl_backend_submit(b);
            continue;
        }
        const product_shape *s = &shapes[i % (N_SHAPES + 1)];
        const dl_cuda_product_arguments p = {
            .c = element(memory + i % (N_SHAPES + 1) * MOST, s->shift, narrow_c),
            .a = element(at_a, s->shift, narrow),
            .b = element(at_b, s->shift, narrow),
            .bias = s->bias ? at_bias + s->shift : NULL,
            .m = s->m,
            .n = s->n,
            .k = s->k,
            .a_row = s->a_transposed ? 1 : s->k,
            .a_column = s->a_transposed ? s->m : 1,
            .b_row = s->b_transposed ? 1 : s->n,
            .b_column = s->b_transposed ? s->k : 1,
            .add = s->add};
        dl_cuda_product_on(b, &p, types);
        if (s->m == 37) dl_cuda_product_on(b, &p, types); /* twice in a sequence */
    }
    for (size_t i = 0; i < N_SHAPES; i++)
        copy_out(b, out + i * MOST, memory + i * MOST, MOST, narrow_c);
    const diloco_status status = dl_backend_sync(b);
    dl_backend_release(b, at);
    return status;
}

static void check_within(const float *want, const float *got, size_t n, double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        CHECK_NEAR(want[i], got[i], tolerance * largest);
}

static void check_near(const float *want, const float *got, size_t n)
{
    check_within(want, got, n, 1e-5);
}

static float want[N_SHAPES * MOST], got[N_SHAPES * MOST], first[N_SHAPES * MOST];

TEST(products_of_the_library_follow_our_kernel_with_and_without_graphs)
{
    dl_backend *b;
    for (size_t i = 0; i < EMULATED_WAYS; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_OK(open_with(&b, &setup, NULL, false));
        CHECK_OK(multiply_all(want, b, DL_CUDA_F32));
        dl_backend_destroy(b);
        CHECK_INT(0, emulated_leaked());
        for (int unrecorded = 0; unrecorded < 2; unrecorded++) {
            CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, unrecorded));
            CHECK_OK(multiply_all(got, b, DL_CUDA_F32));
            dl_backend_destroy(b);
            CHECK_INT(0, emulated_leaked());
            CHECK_INT(0, emulated_blas_objects());
            check_near(want, got, N_SHAPES * MOST);
            CHECK(memcmp(want, got, sizeof want) != 0); /* not our kernel */
            if (i == 0 && unrecorded == 0) memcpy(first, got, sizeof first);
            CHECK_BYTES(first, got, sizeof first);
        }
    }
}

/* A result in bf16 may be the next number, 2^-7 of it away, after each of the REPEATS additions. */
TEST(products_of_the_library_in_bf16_follow_our_kernels)
{
    static const dl_cuda_types all[] = {DL_CUDA_BF16, DL_CUDA_BF16_TO_F32};
    const emulated_setup setup = {.seed = 1};
    dl_backend *b;
    for (size_t t = 0; t < 2; t++) {
        const double tolerance = all[t] == DL_CUDA_BF16 ? 3.0 / 128 : 1e-5;
        CHECK_OK(open_with(&b, &setup, NULL, false));
        CHECK_OK(multiply_all(want, b, all[t]));
        dl_backend_destroy(b);
        CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
        const uint64_t before = emulated_blas_products();
        CHECK_OK(multiply_all(got, b, all[t]));
        CHECK(emulated_blas_products() > before);
        dl_backend_destroy(b);
        CHECK_INT(0, emulated_leaked());
        check_within(want, got, N_SHAPES * MOST, tolerance);
    }
}

TEST(library_that_is_missing_or_no_library_of_products_leaves_our_kernel)
{
    static const char *const libraries[] = {NULL, "libnosuchproducts.so.2", EMULATED_LIBRARY};
    dl_backend *b;
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(open_with(&b, &(emulated_setup){.seed = 1}, libraries[i], false));
        CHECK_OK(multiply_all(i ? got : want, b, DL_CUDA_F32));
        dl_backend_destroy(b);
        CHECK_INT(0, emulated_leaked());
        if (i) CHECK_BYTES(want, got, sizeof want);
    }
}

/* Checks that the text of a failure names the call. `failed` is the library's, or NULL. */
static void check_text(const char *failed)
{
    char expected[96];
    CHECK(!strstr(diloco_error_text(), "(null)"));
    CHECK(!strstr(diloco_error_text(), "cuBLASLt") == !failed);
    if (!failed) return;
    snprintf(expected, sizeof expected, "the emulated device failed: %s: cuBLASLt status 13",
             failed);
    CHECK_CONTAINS(expected, diloco_error_text());
}

/* A failure while the library is opened leaves our kernel, and one later is the device's. Two kinds
 * do not matter: no memory for a graph, since kernels are then started one by one, and a call that
 * frees memory or the graph of a product. */
TEST(fault_of_any_call_with_the_library_is_reported)
{
    static const int codes[] = {DL_CUDA_OUT_OF_MEMORY, DL_CUDA_LAUNCH_FAILED};
    dl_backend *b;
    size_t n_ignored = 0;
    CHECK_OK(open_with(&b, &(emulated_setup){.seed = 1}, EMULATED_BLAS, false));
    const uint64_t opened = emulated_calls();
    CHECK_OK(multiply_all(want, b, DL_CUDA_F32));
    const uint64_t calls = emulated_calls();
    dl_backend_destroy(b);
    for (uint64_t at = 1; at <= calls; at++) {
        const int code = codes[(at + emulated_first_seed()) % 2];
        const emulated_setup setup = {.seed = 1, .fail_at = at, .fail_with = code};
        diloco_status status = open_with(&b, &setup, EMULATED_BLAS, false);
        CHECK(!status || emulated_blas_objects() == 0);
        if (status) continue;
        status = multiply_all(got, b, DL_CUDA_F32);
        dl_backend_destroy(b);
        CHECK_INT(0, emulated_blas_objects());
        const char *failed = emulated_blas_failed();
        if (status) {
            CHECK(status == DILOCO_EIO || status == DILOCO_ENOMEM);
            check_text(failed);
        } else {
            check_near(want, got, N_SHAPES * MOST);
            n_ignored += at > opened && code != DL_CUDA_OUT_OF_MEMORY;
        }
    }
    CHECK(n_ignored <= N_SHAPES + 2);
}

/* ---- the self-test of a card */

TEST(self_test_compares_the_library_and_names_it)
{
    dl_backend *b;
    dl_cuda_card card;
    emulated_setup setup = {.seed = 1};
    CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
    CHECK_OK(dl_backend_cuda_card(&card, b));
    CHECK_INT(130101, card.products);
    CHECK_STR("emulated device", card.name);
    CHECK_STR("emulated device, cuBLASLt 13.1.1", dl_backend_card(b));
    CHECK_OK(dl_cuda_self_test(b));
    dl_backend_destroy(b);
    setup.fault = EMULATED_BLOCK_LOST;
    snprintf(setup.fault_in, sizeof setup.fault_in, "emulated_product");
    CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
    CHECK_STATUS(DILOCO_EREFUSED, dl_cuda_self_test(b));
    CHECK_CONTAINS("kernel cublasLtMatmul gives a wrong result", diloco_error_text());
    dl_backend_destroy(b);
}

/* The library's part of the self-test alone: calls calls[0] + 1 to calls[1]. */
static diloco_status probe_library(dl_backend *b, uint64_t calls[2])
{
    dl_probe probe;
    CHECK_OK(dl_probe_open(&probe, b));
    calls[0] = emulated_calls();
    probe.kernel = "cublasLtMatmul";
    const diloco_status status = dl_probe_library(&probe);
    calls[1] = emulated_calls();
    dl_probe_close(&probe);
    return status;
}

/* A product that failed is none for which there is no algorithm. DISTANCE seeds have each call. */
TEST(call_that_fails_in_the_library_fails_its_part_of_the_self_test)
{
    enum { DISTANCE = 17 };
    dl_backend *b;
    emulated_setup setup = {.seed = 1, .fail_with = DL_CUDA_LAUNCH_FAILED};
    uint64_t calls[2], ignored[2];
    CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
    CHECK_OK(probe_library(b, calls));
    dl_backend_destroy(b);
    for (setup.fail_at = calls[0] + 1 + emulated_first_seed() % DISTANCE; setup.fail_at <= calls[1];
         setup.fail_at += DISTANCE) {
        CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
        CHECK_STATUS(DILOCO_EIO, probe_library(b, ignored));
        CHECK_CONTAINS("kernel cublasLtMatmul: the emulated device failed", diloco_error_text());
        dl_backend_destroy(b);
    }
}

/* The library's part is the last one. After it the self-test only frees its memory. */
TEST(call_that_fails_in_the_library_fails_the_self_test)
{
    enum { TRIED = 3, DISTANCE = 5 };
    dl_backend *b;
    emulated_setup setup = {.seed = 1, .fail_with = DL_CUDA_OUT_OF_MEMORY};
    uint64_t calls[2];
    CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
    CHECK_OK(probe_library(b, calls));
    dl_backend_destroy(b);
    CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
    CHECK_OK(dl_cuda_self_test(b));
    const uint64_t middle = emulated_calls() - (calls[1] - calls[0]) / 2;
    dl_backend_destroy(b);
    for (size_t i = 0; i < TRIED; i++) {
        setup.fail_at = middle + i * DISTANCE;
        CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, false));
        CHECK_STATUS(DILOCO_EIO, dl_cuda_self_test(b));
        CHECK_CONTAINS("kernel cublasLtMatmul: the emulated device failed", diloco_error_text());
        dl_backend_destroy(b);
    }
}

/* ---- a model */

enum { VOCAB = 70, CONTEXT = 13, ROWS = 3, N_MOST = 20000 };

static size_t gradient_of_model(float *out, dl_backend *b, const char *precision)
{
    const char *const options[][2] = {
        {"trainer.precision", precision},    {"parameters.model.layers", "2"},
        {"parameters.model.channels", "16"}, {"parameters.model.heads", "2"},
        {"parameters.model.kv_heads", "1"},  {"parameters.model.context", "13"},
        {"parameters.model.ffn", "24"}};
    int32_t inputs[ROWS * CONTEXT], targets[ROWS * CONTEXT];
    dl_config config;
    dl_model *model;
    dl_pool *pool;
    const dl_sample sample = dl_sample_tokens(VOCAB, CONTEXT);
    dl_config_init(&config);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECK_OK(dl_config_set(&config, options[i][0], options[i][1], "test"));
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_OK(dl_model_create(&model, &config, &sample, ROWS, b, pool));
    const size_t n = dl_model_n_parameters(model);
    CHECK(n <= N_MOST);
    dl_model_initial(model, out, 1);
    dl_backend_copy_in(b, dl_model_parameters(model), out, n * sizeof *out);
    for (int i = 0; i < ROWS * CONTEXT; i++) {
        inputs[i] = (i * i + 3 * i) % VOCAB;
        targets[i] = (i * 5 + 1) % VOCAB;
    }
    for (int i = 0; i < 4; i++)
        CHECK_OK(dl_model_train(model, inputs, targets, ROWS, 1, i > 0));
    dl_backend_copy_out(b, out, dl_model_gradients(model), n * sizeof *out);
    CHECK_OK(dl_backend_sync(b));
    dl_model_destroy(model);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
    return n;
}

TEST(model_with_products_of_the_library_has_the_gradients_of_the_cpu)
{
    static float on_cpu[N_MOST], on_device[N_MOST];
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    const size_t n = gradient_of_model(on_cpu, b, "f32");
    for (int unrecorded = 0; unrecorded < 2; unrecorded++) {
        const emulated_setup setup = emulated_way(4);
        CHECK_OK(open_with(&b, &setup, EMULATED_BLAS, unrecorded));
        CHECK_INT(n, gradient_of_model(on_device, b, "f32"));
        CHECK_INT(0, emulated_leaked());
        check_near(on_cpu, on_device, n);
    }
}

/* emulated_model_test.c derives the bound of bf16. */
TEST(model_in_bf16_with_products_of_the_library_follows_the_cpu)
{
    static float on_cpu[N_MOST], on_device[N_MOST];
    double error = 0, norm = 0;
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    const size_t n = gradient_of_model(on_cpu, b, "f32");
    const uint64_t before = emulated_blas_products();
    CHECK_OK(open_with(&b, &(emulated_setup){.seed = 1}, EMULATED_BLAS, false));
    CHECK_INT(n, gradient_of_model(on_device, b, "bf16"));
    CHECK(emulated_blas_products() > before);
    CHECK_INT(0, emulated_leaked());
    for (size_t i = 0; i < n; i++) {
        error += pow((double)on_device[i] - (double)on_cpu[i], 2);
        norm += pow((double)on_cpu[i], 2);
    }
    const double relative = sqrt(error / norm);
    if (!(relative > 1e-4 && relative < 0.036)) CHECK_FAIL("error %g of the gradient", relative);
}

TEST_MAIN(products_of_the_library_follow_our_kernel_with_and_without_graphs,
          products_of_the_library_in_bf16_follow_our_kernels,
          library_that_is_missing_or_no_library_of_products_leaves_our_kernel,
          fault_of_any_call_with_the_library_is_reported,
          self_test_compares_the_library_and_names_it,
          call_that_fails_in_the_library_fails_its_part_of_the_self_test,
          call_that_fails_in_the_library_fails_the_self_test,
          model_with_products_of_the_library_has_the_gradients_of_the_cpu,
          model_in_bf16_with_products_of_the_library_follows_the_cpu)
