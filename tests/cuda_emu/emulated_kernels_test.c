/* emulated_kernels_test.c - each kernel on the emulated device against the CPU's function.
 *
 * Operations on the whole gradient, and those of an exchange, have the CPU's bits. AdamW has not:
 * the CPU's function may be compiled with contraction and with vectors. Its error is a few
 * roundings of f32 (tolerance below). Muon's error is compared with float64. Sizes are odd and on
 * both sides of a block of threads (256) and of a block of the norm (4096). */
#include "emulated_backend.h"

#include "muon_definition.h"
#include "nn/cuda/start.h"
#include "nn/gradient.h"
#include "nn/inner.h"
#include "nn/movement.h"

#include <math.h>

enum { MOST = 70000 };
static const size_t sizes[] = {1, 17, 255, 256, 257, 4095, 4097, 12289, 65537};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

/* ---- on a gradient */

typedef struct rig {
    dl_gradient g;
    float *x, *anchor; /* on the backend */
} rig;

static void *room(dl_backend *b, size_t n)
{
    void *memory;
    CHECK_OK(dl_backend_alloc(b, &memory, n));
    return memory;
}

static rig open_rig(dl_backend *b, size_t n)
{
    rig r = {.g = {.backend = b, .n = n}};
    CHECK_OK(dl_pool_create(&r.g.pool, 2));
    r.g.values = room(b, n * sizeof(float));
    r.g.squares = room(b, dl_gradient_blocks(n) * sizeof(double));
    r.g.verdict = room(b, sizeof *r.g.verdict);
    r.x = room(b, n * sizeof(float));
    r.anchor = room(b, n * sizeof(float));
    return r;
}

static void close_rig(rig *r)
{
    dl_backend *b = r->g.backend;
    dl_backend_release(b, r->g.values);
    dl_backend_release(b, r->g.squares);
    dl_backend_release(b, r->g.verdict);
    dl_backend_release(b, r->x);
    dl_backend_release(b, r->anchor);
    dl_pool_destroy(r->g.pool);
    dl_backend_destroy(b);
}

typedef struct outcome {
    dl_verdict first, second;
    float values[MOST];
} outcome;

/* Pull, judge, scale, judge again. `bad`: an element that is not finite; n: none. */
static void operate(outcome *out, dl_backend *b, size_t n, size_t bad)
{
    static float x[MOST], anchor[MOST], values[MOST];
    for (size_t i = 0; i < n; i++) {
        x[i] = cosf((float)i * 0.3f);
        anchor[i] = x[i] - 1 / (float)(i + 3);
        values[i] = sinf((float)i) * 0.01f + 1e-5f;
    }
    if (bad < n) values[bad] = NAN;
    if (bad + 5 < n) values[bad + 5] = INFINITY;
    rig r = open_rig(b, n);
    r.g.clip = 0.125;
    r.g.margin = 1e-6;
    dl_backend_copy_in(b, r.g.values, values, n * sizeof(float));
    dl_backend_copy_in(b, r.x, x, n * sizeof(float));
    dl_backend_copy_in(b, r.anchor, anchor, n * sizeof(float));
    dl_gradient_pull(&r.g, &(dl_pull){r.x, r.anchor, n / 3, n - n / 5, 0.3f});
    dl_gradient_judge(&r.g);
    dl_backend_copy_out(b, &out->first, r.g.verdict, sizeof out->first);
    dl_gradient_scale(&r.g);
    dl_gradient_judge(&r.g);
    dl_backend_copy_out(b, &out->second, r.g.verdict, sizeof out->second);
    dl_backend_copy_out(b, out->values, r.g.values, n * sizeof(float));
    CHECK_OK(dl_backend_sync(b));
    close_rig(&r);
}

static void check_verdict(const dl_verdict *want, const dl_verdict *got)
{
    CHECK_INT(want->steps, got->steps);
    CHECK_INT(want->skipped, got->skipped);
    CHECK(want->clip_factor == got->clip_factor || want->skipped);
    if (want->skipped)
        CHECK_INT(want->bad, got->bad);
    else
        CHECK(want->norm == got->norm);
}

static void check_gradient(size_t n, size_t bad, size_t ways)
{
    static outcome want, got;
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    operate(&want, b, n, bad);
    for (size_t i = 0; i < ways; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_OK(emulated_open(&b, &setup));
        operate(&got, b, n, bad);
        check_verdict(&want.first, &got.first);
        check_verdict(&want.second, &got.second);
        CHECK_BYTES(want.values, got.values, n * sizeof(float));
        CHECK_INT(0, emulated_leaked());
    }
}

TEST(pull_norm_and_scale_have_the_bits_of_the_cpu)
{
    for (size_t i = 0; i < N_SIZES; i++)
        check_gradient(sizes[i], sizes[i], sizes[i] < 5000 ? emulated_seeds(2) * EMULATED_WAYS : 6);
}

TEST(first_value_that_is_not_finite_is_found_and_zeros_follow)
{
    for (size_t i = 0; i < N_SIZES; i++)
        check_gradient(sizes[i], sizes[i] / 2, sizes[i] < 5000 ? EMULATED_WAYS : 3);
}

/* ---- of an exchange */

/* Arrays begin at odd places. Some values are subnormal, zeros of both signs or infinite. */
typedef struct exchanged {
    float g[MOST], mixed[MOST], copied[MOST];
    double squares[MOST / 4096 + 1];
} exchanged;

static void exchange(exchanged *out, dl_backend *b, size_t n)
{
    static float theta[MOST], local[MOST];
    for (size_t i = 0; i < n; i++) {
        theta[i] = i % 11 ? sinf((float)i) : i % 2 ? -0.0f : 1e-40f;
        local[i] = i % 13 ? theta[i] + 0.1f * cosf((float)i) : i % 3 ? 0.0f : -1e-40f;
    }
    local[n / 2] = INFINITY;
    rig r = open_rig(b, n + 3);
    float *t = r.x + 1, *l = r.anchor + 3, *g = r.g.values + 2;
    dl_backend_copy_in(b, t, theta, n * sizeof(float));
    dl_backend_copy_in(b, l, local, n * sizeof(float));
    dl_movement_form(b, g, t, l, n);
    dl_movement_squares(b, r.g.squares, g, n);
    dl_movement_adopt(b, l, t, 0.3f, n);
    dl_backend_copy_out(b, out->mixed, l, n * sizeof(float));
    dl_movement_adopt(b, l, t, 1, n);
    dl_movement_adopt(b, l, t, 0, n);
    dl_backend_copy_out(b, out->copied, l, n * sizeof(float));
    dl_backend_copy_out(b, out->g, g, n * sizeof(float));
    dl_backend_copy_out(b, out->squares, r.g.squares, dl_gradient_blocks(n) * sizeof(double));
    CHECK_OK(dl_backend_sync(b));
    CHECK_BYTES(theta, out->copied, n * sizeof(float));
    close_rig(&r);
}

TEST(movement_and_adoption_have_the_bits_of_the_cpu)
{
    static exchanged want, got;
    dl_backend *b;
    for (size_t i = 0; i < N_SIZES; i++) {
        const size_t ways = sizes[i] < 5000 ? emulated_seeds(2) * EMULATED_WAYS : 6;
        memset(&want, 0, sizeof want), memset(&got, 0, sizeof got);
        CHECK_OK(dl_backend_create(&b, "cpu"));
        exchange(&want, b, sizes[i]);
        for (size_t way = 0; way < ways; way++) {
            const emulated_setup setup = emulated_way(way);
            CHECK_OK(emulated_open(&b, &setup));
            exchange(&got, b, sizes[i]);
            CHECK_BYTES(&want, &got, sizeof want);
            CHECK_INT(0, emulated_leaked());
        }
    }
}

/* Blocks of zeros, of subnormal values, and of one large value. Rounding ties are in all others. */
static void encode(unsigned char *out, dl_backend *b, const dl_block_kind *kind, size_t n)
{
    static float x[MOST];
    for (size_t i = 0; i < n; i++)
        x[i] = i / 256 % 4 == 1   ? (i % 3 ? 0.0f : -0.0f)
               : i / 256 % 4 == 2 ? 1e-40f * (float)(i % 7)
               : i % 300 == 17    ? -3e8f
                                  : (float)(i % 255) * 0.5f - 63.5f;
    const size_t scales = (n + 255) / 256 * sizeof(float), codes = (n * kind->bits + 31) / 32 * 4;
    float *on_device = room(b, (n + 1) * sizeof(float));
    unsigned char *payload = room(b, scales + codes);
    dl_backend_copy_in(b, on_device + 1, x, n * sizeof(float));
    dl_movement_encode(b, &(dl_encoding){kind, payload + scales, payload}, on_device + 1, n);
    dl_backend_copy_out(b, out, payload, scales + codes);
    CHECK_OK(dl_backend_sync(b));
    dl_backend_release(b, on_device), dl_backend_release(b, payload);
    dl_backend_destroy(b);
}

static void check_encoding(const dl_codec *codec, size_t n, size_t ways)
{
    static unsigned char want[2 * MOST], got[2 * MOST];
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    memset(want, 0, sizeof want), memset(got, 0, sizeof got);
    encode(want, b, codec->blocks, n);
    for (size_t way = 0; way < ways; way++) {
        const emulated_setup setup = emulated_way(way);
        CHECK_OK(emulated_open(&b, &setup));
        encode(got, b, codec->blocks, n);
        CHECK_BYTES(want, got, sizeof want);
        CHECK_INT(0, emulated_leaked());
    }
}

TEST(codes_of_integers_are_those_of_the_cpu)
{
    size_t n_codecs = 0;
    for (size_t k = 0; dl_codec_at(k); k++) {
        const dl_codec *codec = dl_codec_at(k);
        if (!dl_codec_has_integers(codec)) continue;
        for (size_t i = 0; i < N_SIZES; i++)
            check_encoding(codec, sizes[i],
                           sizes[i] < 5000 ? emulated_seeds(2) * EMULATED_WAYS : 6);
        n_codecs++;
    }
    CHECK_INT(3, n_codecs);
}

/* ---- products */

typedef struct product_shape {
    size_t m, n, k;
    bool a_transposed, b_transposed, bias, add;
} product_shape;
enum { FACTOR = 20000 };

static void fill(float *to, size_t n, float step)
{
    for (size_t i = 0; i < n; i++)
        to[i] = sinf((float)i * step + 0.1f);
}

/* The definition: each element is one chain of fma in the order of k. */
static void product_on_host(float *c, const float *a, const float *b, const float *bias,
                            const product_shape *s)
{
    for (size_t i = 0; i < s->m; i++)
        for (size_t j = 0; j < s->n; j++) {
            float sum = 0;
            for (size_t l = 0; l < s->k; l++)
                sum = fmaf(a[s->a_transposed ? l * s->m + i : i * s->k + l],
                           b[s->b_transposed ? j * s->k + l : l * s->n + j], sum);
            if (s->bias) sum += bias[j];
            c[i * s->n + j] = s->add ? c[i * s->n + j] + sum : sum;
        }
}

static void product_on(float *c, dl_backend *device, const float *a, const float *b,
                       const float *bias, const product_shape *s)
{
    float *memory = room(device, (s->m * s->n + s->m * s->k + s->k * s->n + s->n) * sizeof *c);
    float *at_a = memory + s->m * s->n, *at_b = at_a + s->m * s->k, *at_bias = at_b + s->k * s->n;
    const dl_cuda_product_arguments args = {.c = memory,
                                            .a = at_a,
                                            .b = at_b,
                                            .bias = s->bias ? at_bias : NULL,
                                            .m = s->m,
                                            .n = s->n,
                                            .k = s->k,
                                            .a_row = s->a_transposed ? 1 : s->k,
                                            .a_column = s->a_transposed ? s->m : 1,
                                            .b_row = s->b_transposed ? 1 : s->n,
                                            .b_column = s->b_transposed ? s->k : 1,
                                            .add = s->add};
    dl_backend_copy_in(device, memory, c, s->m * s->n * sizeof *c);
    dl_backend_copy_in(device, at_a, a, s->m * s->k * sizeof *c);
    dl_backend_copy_in(device, at_b, b, s->k * s->n * sizeof *c);
    dl_backend_copy_in(device, at_bias, bias, s->n * sizeof *c);
    dl_cuda_product_on(device, &args, DL_CUDA_F32);
    dl_backend_copy_out(device, c, memory, s->m * s->n * sizeof *c);
    CHECK_OK(dl_backend_sync(device));
    dl_backend_release(device, memory);
}

TEST(product_of_any_shape_is_one_chain_of_fma_for_each_element)
{
    static const product_shape shapes[] = {
        {1, 1, 1, .add = true},
        {1, 130, 33, .b_transposed = true},
        {130, 1, 40, .a_transposed = true, .bias = true},
        {64, 64, 16, .b_transposed = true, .bias = true},
        {65, 63, 17, .a_transposed = true, .add = true},
        {37, 129, 15, .bias = true, .add = true},
        {3, 5, 0, .bias = true},
    };
    static float a[FACTOR], b[FACTOR], bias[FACTOR], start[FACTOR], want[FACTOR], got[FACTOR];
    fill(a, FACTOR, 0.7f), fill(b, FACTOR, 1.3f), fill(bias, FACTOR, 0.3f), fill(start, FACTOR, 2);
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        const product_shape *s = &shapes[k];
        memcpy(want, start, sizeof want);
        product_on_host(want, a, b, bias, s);
        for (size_t i = 0; i < emulated_seeds(2) * EMULATED_WAYS; i++) {
            const emulated_setup setup = emulated_way(i);
            dl_backend *device;
            CHECK_OK(emulated_open(&device, &setup));
            memcpy(got, start, sizeof got);
            product_on(got, device, a, b, bias, s);
            dl_backend_destroy(device);
            CHECK_INT(0, emulated_leaked());
            CHECK_BYTES(want, got, sizeof want);
        }
    }
}

/* ---- an optimizer */

enum {
    VECTOR = 300,
    ROWS = 5,
    COLUMNS = 103,
    ALL = VECTOR + ROWS * COLUMNS + 7,
    STEPS = 4,
    BAD_STEP = 2,
    ROOMS = 4 /* the model and up to three vectors */
};
#define DECAY    0.5
#define CLIP     0.05
#define TEXT(x)  TEXT_(x)
#define TEXT_(x) #x
static const diloco_tensor tensors[] = {
    {.name = "vector", .n_dims = 1, .shape = {VECTOR}},
    {.name = "matrix", .n_dims = 2, .shape = {ROWS, COLUMNS}},
    {.name = "frozen", .n_dims = 1, .shape = {7}, .role = DILOCO_FROZEN},
};

static float start_at(size_t i)
{
    return sinf((float)i);
}

static float gradient_at(size_t i, int t)
{
    return t == BAD_STEP && i == 301 ? INFINITY : 0.01f * cosf((float)i * 0.7f + (float)t);
}

static double lr_at(int t)
{
    return 0.01 / (1 + t);
}

/* STEPS steps, one with a gradient that is not finite. The model, and its moments. */
static void train(float out[ROOMS * ALL], dl_backend *b, const char *optimizer)
{
    dl_config config;
    dl_inner *inner;
    dl_pool *pool;
    double norm;
    float p[ALL], g[ALL];
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "parameters.optimizer.weight_decay", TEXT(DECAY), "test"));
    CHECK_OK(dl_config_set(&config, "trainer.gradient_clip", TEXT(CLIP), "test"));
    CHECK_OK(dl_config_set(&config, "trainer.optimizer", optimizer, "test"));
    CHECK_OK(dl_config_set(&config, "parameters.optimizer.momentum", "0.9", "test"));
    CHECK_OK(dl_pool_create(&pool, 1));
    float *parameters = room(b, sizeof p), *gradients = room(b, sizeof g);
    const bool hidden[] = {false, true, false}; /* the matrix, for Muon */
    const dl_inner_model model = {.tensors = tensors,
                                  .hidden = hidden,
                                  .n_tensors = 3,
                                  .parameters = parameters,
                                  .gradients = gradients,
                                  .backend = b,
                                  .pool = pool};
    CHECK_OK(dl_inner_create(&inner, &config, &model));
    for (size_t i = 0; i < ALL; i++)
        p[i] = start_at(i);
    dl_backend_copy_in(b, parameters, p, sizeof p);
    for (int t = 0; t < STEPS; t++) {
        for (size_t i = 0; i < ALL; i++)
            g[i] = gradient_at(i, t);
        dl_backend_copy_in(b, gradients, g, sizeof g);
        CHECK_OK(dl_inner_step(inner, lr_at(t)));
        CHECK_STATUS(t == BAD_STEP ? DILOCO_ENUMERIC : DILOCO_OK, dl_inner_norm(inner, &norm));
        if (t == BAD_STEP) CHECK_CONTAINS("matrix[1]", diloco_error_text());
    }
    CHECK_INT(STEPS - 1, dl_inner_steps(inner));
    dl_backend_copy_out(b, out, parameters, sizeof p);
    memset(out + ALL, 0, (ROOMS - 1) * sizeof p);
    for (size_t v = 0, n; v < dl_inner_n_vectors(inner); v++) {
        const float *vector = dl_inner_vector(inner, v, &n);
        dl_backend_copy_out(b, out + (v + 1) * ALL, vector, n * sizeof *vector);
    }
    CHECK_OK(dl_backend_sync(b));
    dl_inner_destroy(inner);
    dl_backend_release(b, parameters);
    dl_backend_release(b, gradients);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
}

/* ---- the error of Muon */

enum { MATRIX = ROWS * COLUMNS };

/* The matrix after all steps, in float64. */
static void train_by_definition(double p[MATRIX])
{
    double m[MATRIX] = {0}, g[MATRIX];
    const muon_matrix x = {ROWS, COLUMNS, p, m, (double)0.95f, true, 5};
    for (size_t i = 0; i < MATRIX; i++)
        p[i] = (double)start_at(VECTOR + i);
    for (int t = 0; t < STEPS; t++) {
        double sum = 0;
        if (t == BAD_STEP) continue;
        for (size_t i = 0; i < ALL; i++)
            sum += pow((double)gradient_at(i, t), 2);
        for (size_t i = 0; i < MATRIX; i++)
            g[i] = (double)gradient_at(VECTOR + i, t) * fmin(1, CLIP / sqrt(sum));
        muon_step(&x, g, lr_at(t), DECAY);
    }
}

static double largest_error(const float *model, const double *definition)
{
    double largest = 0;
    for (size_t i = 0; i < MATRIX; i++)
        largest = fmax(largest, fabs((double)model[VECTOR + i] - definition[i]));
    return largest;
}

/* Checks that the device errs as the CPU does, both against float64.
 *
 * The iteration f(s) = a s + b s^3 + c s^5 of the singular values enlarges an error by at most
 * L = max |f'| = 3.97, since they stay below 1.2025, the maximum of f. An iteration multiplies by
 * sums of at most COLUMNS terms, whose roundings add to u sqrt(COLUMNS) |X|^2 if they are
 * independent, u = 2^-24 (Higham and Mary 2019). Here |X|^2 <= 2 * 1.2025^2, because the gradient
 * has rank 2. So an iteration adds at most (|b| + 2 c 1.2025^2) 1.2025 u sqrt(COLUMNS) |X|^2 =
 * 2.3e-5, and five of them with what L makes of it 7.5e-3. A step moves a parameter by
 * lr .2 sqrt(COLUMNS) X, so three steps err by at most 2.7e-4: the bound of the CPU.
 *
 * That worst case has all errors in the smallest singular value; in fact they are a thousand times
 * smaller. So the device is compared with the CPU's own error. Its sums run over COLUMNS terms one
 * after another, and the CPU's over at least one. So its error may be sqrt(COLUMNS) < 11 times as
 * large. */
static void check_muon(const float *on_cpu, const float *on_device)
{
    static double definition[MATRIX];
    train_by_definition(definition);
    const double cpu = largest_error(on_cpu, definition);
    const double device = largest_error(on_device, definition);
    if (!(cpu <= 2.7e-4 && device <= 11 * cpu))
        CHECK_FAIL("Muon's error is %g on the CPU and %g on the device", cpu, device);
}

/* AdamW and the others round a few times in each step. A sum whose terms cancel keeps their
 * rounding. The terms of RMSprop's momentum buffer are 1 / sqrt(1 - alpha) = 10 in the first step,
 * and those of its parameters lr_at(0) = .01 of that. A vector follows the model in the arrays. */
static void check_near(const float *want, const float *got, size_t begin, size_t end,
                       const char *name)
{
    const bool is_rmsprop = strcmp(name, "rmsprop") == 0;
    for (size_t i = begin; i < end; i++) {
        const double term = !is_rmsprop ? 1e-3 : i < ALL ? 0.1 : 10;
        CHECK_NEAR(want[i], got[i], 8e-7 * (term + fabs((double)want[i])));
    }
}

static void check_optimizer(const char *name)
{
    static float want[ROOMS * ALL], first[ROOMS * ALL], got[ROOMS * ALL];
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    train(want, b, name);
    for (size_t i = 0; i < emulated_seeds(2) * EMULATED_WAYS; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_OK(emulated_open(&b, &setup));
        train(got, b, name);
        if (i == 0) memcpy(first, got, sizeof got);
        CHECK_BYTES(first, got, sizeof got);
        CHECK_INT(0, emulated_leaked());
    }
    const bool muon = strcmp(name, "muon") == 0;
    check_near(want, got, 0, VECTOR, name);
    if (muon)
        check_muon(want, got);
    else
        check_near(want, got, VECTOR, VECTOR + MATRIX, name);
    check_near(want, got, VECTOR + MATRIX, ROOMS * ALL, name);
}

TEST(optimizers_follow_the_cpu_and_have_the_same_bits_in_every_order)
{
    for (size_t i = 0; dl_inner_name_at(i); i++)
        check_optimizer(dl_inner_name_at(i));
}

TEST_MAIN(pull_norm_and_scale_have_the_bits_of_the_cpu,
          movement_and_adoption_have_the_bits_of_the_cpu, codes_of_integers_are_those_of_the_cpu,
          first_value_that_is_not_finite_is_found_and_zeros_follow,
          product_of_any_shape_is_one_chain_of_fma_for_each_element,
          optimizers_follow_the_cpu_and_have_the_same_bits_in_every_order)
