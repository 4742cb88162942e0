/* codec_suite_test.c - properties of every codec, with each of its options, over tensors of
 * every awkward size. The bytes and the bits are the same on every instruction set. Decoding works
 * in pieces. No zero is negative. Decoded vectors encode to themselves. An untrusted peer's bytes
 * are refused or decode to numbers within the bound. Each codec's own test checks the meaning of
 * its numbers. */
#include "base/rng.h"
#include "codec/codec.h"

#include "check.h"

/* Every setting of a codec; the codecs without a row here have the defaults. */
static const struct variant {
    const char *codec, *option, *value, *option2, *value2;
    bool settles; /* decode(encode(.)) of a decoded vector is that vector */
} variants[] = {
    {"f32", NULL, NULL, NULL, NULL, true},
    {"bf16", NULL, NULL, NULL, NULL, true},
    {"f16", NULL, NULL, NULL, NULL, true},
    {"int8", NULL, NULL, NULL, NULL, true},
    {"int4", NULL, NULL, NULL, NULL, true},
    {"int2", NULL, NULL, NULL, NULL, true},
    {"e3m0", NULL, NULL, NULL, NULL, true},
    {"sign", NULL, NULL, NULL, NULL, true},
    {"prune", NULL, NULL, NULL, NULL, true},
    {"prune", "server.diloco.codec_prune", "0", NULL, NULL, true},
    {"prune", "server.diloco.codec_prune", "0.999", NULL, NULL, true},
    {"topk", NULL, NULL, NULL, NULL, true},
    {"topk", "server.diloco.codec_keep", "1", NULL, NULL, true},
    {"topk", "server.diloco.codec_keep", "0.11", "server.diloco.codec_values", "int8", true},
    {"topk", "server.diloco.codec_keep", "0.013", "server.diloco.codec_values", "2bit", false},
    {"topk", "server.diloco.codec_keep", "1", "server.diloco.codec_values", "2bit", false},
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

#define P DILOCO_PARAMETER
/* The tensors of fragment i; others are there to be left out. */
static const diloco_tensor tensors[] = {
    {"scalar", NULL, DILOCO_F32, P, 0, {0}, 0},
    {"w1", NULL, DILOCO_F32, P, 1, {1}, 1},
    {"w2", NULL, DILOCO_F32, P, 1, {2}, 2},
    {"w63", NULL, DILOCO_F32, P, 1, {63}, 3},
    {"w255", NULL, DILOCO_F32, P, 1, {255}, 4},
    {"w256", NULL, DILOCO_F32, P, 1, {256}, 5},
    {"w257", NULL, DILOCO_F32, P, 1, {257}, 6},
    {"w4096", NULL, DILOCO_F32, P, 1, {4096}, 7},
    {"w9001", NULL, DILOCO_F32, P, 1, {9001}, 8},
    {"whole", NULL, DILOCO_F32, P, 2, {128, 192}, 9},
    {"ragged", NULL, DILOCO_F32, P, 2, {131, 77}, 10},
    {"low", NULL, DILOCO_F32, P, 2, {3, 5000}, 11},
    {"high", NULL, DILOCO_F32, P, 2, {5000, 3}, 12},
    {"column", NULL, DILOCO_F32, P, 2, {4500, 1}, 13},
    {"kernel", NULL, DILOCO_F32, P, 4, {70, 3, 3, 3}, 14},
    {"a", NULL, DILOCO_F32, P, 1, {7}, 15}, /* from here many in one fragment */
    {"frozen", NULL, DILOCO_F32, DILOCO_FROZEN, 2, {9, 70}, 15},
    {"b", NULL, DILOCO_F32, P, 2, {65, 130}, 15},
    {"count", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {4}, 15},
    {"c", NULL, DILOCO_F32, P, 0, {0}, 15},
    {"d", NULL, DILOCO_F32, P, 1, {301}, 15},
    {"e", NULL, DILOCO_F32, P, 2, {40, 200}, 15},
    {"no floats", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {4}, 16},
};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0], N_FRAGMENTS = 17, MOST = 32768 };

typedef struct bench {
    const struct variant *variant;
    dl_config config;
    dl_manifest manifest;
    dl_codec_form form;
    float *g, *decoded, *again;    /* [form.n], with nothing after it for a sanitizer to miss */
    unsigned char *room, *payload; /* payload is at an odd place in room */
    size_t len;
} bench;

static void open_form(bench *b, const struct variant *v, int fragment)
{
    *b = (bench){.variant = v};
    dl_config_init(&b->config);
    CHECK_OK(dl_config_set(&b->config, "codec", v->codec, "test"));
    if (v->option) CHECK_OK(dl_config_set(&b->config, v->option, v->value, "test"));
    if (v->option2) CHECK_OK(dl_config_set(&b->config, v->option2, v->value2, "test"));
    CHECK_OK(dl_manifest_init(&b->manifest, tensors, N_TENSORS, false));
    CHECK_OK(dl_codec_form_init(&b->form, &b->config, &b->manifest, fragment));
    CHECK(b->form.n <= MOST && b->form.bound <= b->form.room);
    b->g = calloc(b->form.n + 1, sizeof *b->g);
    b->decoded = malloc((b->form.n + 1) * sizeof *b->decoded);
    b->again = malloc((b->form.n + 1) * sizeof *b->again);
    b->room = malloc(b->form.room + 1);
    b->payload = b->room + 1;
    CHECK(b->g && b->decoded && b->again && b->room);
}

static void close_form(bench *b)
{
    free(b->g), free(b->decoded), free(b->again), free(b->room);
    dl_codec_form_deinit(&b->form);
    dl_manifest_deinit(&b->manifest);
}

/* ---- inputs */

enum { NORMAL, WILD, ZEROS, EQUAL, TINY, N_INPUTS };

/* Floats of any size to 2^59, denormals, zeros of both signs. */
static float wild(uint32_t bits, size_t i)
{
    float x;
    bits = (bits & 0x807fffff) | (uint32_t)(bits >> 23 & 255) % 186 << 23;
    if (i % 8 == 1) bits &= 0x807fffff;
    if (i % 9 == 2) bits &= 0x80000000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void fill(bench *b, int input)
{
    dl_rng rng;
    dl_rng_init(&rng, (uint64_t)input + 5, DL_STREAM(DL_STREAM_TEST, 7), 0);
    for (size_t i = 0; i < b->form.n; i++) {
        float uniform = dl_rng_f32(&rng) - 0.5f;
        switch (input) {
        case NORMAL:
            b->g[i] = (uniform + dl_rng_f32(&rng) - 0.5f) * (i % 5 ? 0.01f : 1);
            break;
        case WILD:
            b->g[i] = wild(dl_rng_u32(&rng), i);
            break;
        case ZEROS:
            b->g[i] = uniform < 0 ? -0.0f : 0.0f;
            break;
        case EQUAL:
            b->g[i] = uniform < 0 ? -0.75f : 0.75f;
            break;
        default:
            b->g[i] = uniform * 1e-44f;
        }
    }
}

static void encode(bench *b)
{
    memset(b->room, 0xa5, b->form.room + 1);
    b->form.codec->encode(&b->form, b->payload, &b->len, b->g);
    CHECK(b->len <= b->form.bound);
}

typedef void (*property)(bench *b, int input);

static void for_all(property check)
{
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (int fragment = 0; fragment < N_FRAGMENTS; fragment++) {
            bench b;
            open_form(&b, &variants[v], fragment);
            for (int input = 0; input < N_INPUTS; input++) {
                fill(&b, input);
                check(&b, input);
            }
            close_form(&b);
        }
}

/* ---- properties */

static void check_parts(bench *b, int input)
{
    (void)input;
    const size_t n_blocks = (b->form.n + DL_BLOCK - 1) / DL_BLOCK;
    if (!b->form.codec->encode_part) return;
    encode(b);
    unsigned char *whole = malloc(b->len + 1);
    memcpy(whole, b->payload, b->len);
    for (size_t n_parts = 1; n_parts <= n_blocks; n_parts++) {
        memset(b->payload, 0x5a, b->len);
        for (int k = (int)n_parts - 1; k >= 0; k--) { /* in any order */
            size_t begin, end;
            dl_part_range(&begin, &end, b->form.n, DL_BLOCK, k, (int)n_parts);
            b->form.codec->encode_part(&b->form, b->payload, b->g, begin, end - begin);
        }
        CHECK_BYTES(whole, b->payload, b->len);
    }
    free(whole);
}

TEST(a_payload_encoded_in_parts_is_the_same)
{
    for_all(check_parts);
}

TEST(a_long_vector_is_encoded_by_all_threads_to_the_same_bytes)
{
    enum { LONG = (1 << 18) + 4097 };
    static const char *const codecs[] = {"bf16", "int4", "e3m0", "f32", "topk"};
    static const diloco_tensor w[] = {{.name = "a", .n_dims = 1, .shape = {1001}},
                                      {.name = "b", .n_dims = 1, .shape = {LONG}}};
    float *g = malloc((1001 + LONG) * sizeof *g);
    dl_manifest manifest;
    dl_pool *pool;
    CHECK_OK(dl_manifest_init(&manifest, w, 2, false));
    CHECK_OK(dl_pool_create(&pool, 3));
    for (size_t i = 0; i < 1001 + LONG; i++)
        g[i] = (float)((i * 2654435761u) % 2001) / 1000 - 1;
    for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++) {
        dl_config config;
        dl_codec_form form;
        size_t alone_len, len;
        dl_config_init(&config);
        CHECK_OK(dl_config_set(&config, "server.diloco.codec", codecs[k], "test"));
        CHECK_OK(dl_codec_form_init(&form, &config, &manifest, 0));
        unsigned char *alone = malloc(form.room), *together = malloc(form.room);
        form.codec->encode(&form, alone, &alone_len, g);
        CHECK_OK(dl_codec_encode(&form, together, &len, g, pool));
        CHECK_INT(alone_len, len);
        CHECK_BYTES(alone, together, len);
        free(alone), free(together);
        dl_codec_form_deinit(&form);
    }
    dl_pool_destroy(pool);
    dl_manifest_deinit(&manifest);
    free(g);
}

TEST(every_codec_of_the_table_has_a_variant)
{
    for (size_t i = 0; dl_codec_at(i); i++) {
        size_t v = 0;
        while (v < N_VARIANTS && strcmp(variants[v].codec, dl_codec_at(i)->name) != 0)
            v++;
        if (v == N_VARIANTS) CHECK_FAIL("codec %s is not in this suite", dl_codec_at(i)->name);
        CHECK(dl_codec_find(dl_codec_at(i)->name) == dl_codec_at(i));
        CHECK(strlen(dl_codec_at(i)->summary) > 0);
    }
}

static void accepts_its_own(bench *b, int input)
{
    size_t index;
    double norm2;
    (void)input;
    encode(b);
    CHECK_OK(dl_codec_check(&b->form, b->payload, b->len, 1e18f, &index, &norm2));
    dl_codec_round_trip(&b->form, b->decoded, b->payload, b->len);
    CHECK(norm2 == dl_norm2(b->decoded, b->form.n));
    for (size_t i = 0; i < b->form.n; i++)
        if (!isfinite(b->decoded[i]) || (b->decoded[i] == 0 && signbit(b->decoded[i])))
            CHECK_FAIL("%s: element %zu is %g", b->variant->codec, i, (double)b->decoded[i]);
}

TEST(a_payload_passes_its_check_and_decodes_to_numbers_without_negative_zeros)
{
    for_all(accepts_its_own);
}

static void settles(bench *b, int input)
{
    (void)input;
    if (!b->variant->settles) return;
    encode(b);
    dl_codec_round_trip(&b->form, b->decoded, b->payload, b->len);
    memcpy(b->g, b->decoded, b->form.n * sizeof *b->g);
    encode(b);
    dl_codec_round_trip(&b->form, b->again, b->payload, b->len);
    CHECK_BYTES(b->decoded, b->again, b->form.n * sizeof *b->again);
}

TEST(decoded_values_encode_to_themselves)
{
    for_all(settles);
}

static void never_adds(bench *b, int input)
{
    double error = 0, size = 0;
    (void)input;
    encode(b);
    dl_codec_round_trip(&b->form, b->decoded, b->payload, b->len);
    for (size_t i = 0; i < b->form.n; i++) {
        double x = (double)b->g[i], miss = x - (double)b->decoded[i];
        error += miss * miss;
        size += x * x;
    }
    CHECK(b->form.codec->lossy ? error <= size * (1 + 1e-6) : error == 0); /* s is rounded */
}

TEST(the_residual_is_never_larger_than_the_encoded_values) /* error feedback relies on it */
{
    for_all(never_adds);
}

static void agrees_everywhere(bench *b, int input)
{
    static unsigned char first[5 * MOST];
    size_t index;
    double norm2, sum2 = 0;
    dl_isa before = dl_isa_chosen();
    (void)input;
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        encode(b);
        dl_codec_round_trip(&b->form, b->again, b->payload, b->len);
        CHECK_OK(dl_codec_check(&b->form, b->payload, b->len, 1e18f, &index, &norm2));
        if (isa == 0) {
            CHECK(b->len <= sizeof first);
            memcpy(first, b->payload, b->len);
            memcpy(b->decoded, b->again, b->form.n * sizeof *b->again);
            sum2 = norm2;
        }
        CHECK_BYTES(first, b->payload, b->len);
        CHECK_BYTES(b->decoded, b->again, b->form.n * sizeof *b->again);
        CHECK(norm2 == sum2);
    }
    dl_isa_use(before);
}

TEST(every_instruction_set_gives_the_same_bytes_and_bits)
{
    for_all(agrees_everywhere);
}

static void alignment_is_nothing(bench *b, int input)
{
    (void)input;
    encode(b); /* at an odd address */
    dl_codec_round_trip(&b->form, b->decoded, b->payload, b->len);
    memmove(b->room, b->payload, b->len);
    dl_codec_round_trip(&b->form, b->again, b->room, b->len);
    CHECK_BYTES(b->decoded, b->again, b->form.n * sizeof *b->again);
    size_t len = b->len;
    unsigned char *kept = malloc(len + 1);
    CHECK(kept);
    memcpy(kept, b->room, len);
    b->form.codec->encode(&b->form, b->room, &b->len, b->g);
    CHECK_INT(len, b->len);
    CHECK_BYTES(kept, b->room, len);
    free(kept);
}

TEST(payloads_may_begin_at_any_address)
{
    for_all(alignment_is_nothing);
}

static void refuses_other_lengths(bench *b, int input)
{
    size_t index;
    double norm2;
    if (input != NORMAL) return;
    encode(b);
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_codec_check(&b->form, b->payload, b->len + 1, 1e18f, &index, &norm2));
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_codec_check(&b->form, b->payload, SIZE_MAX, 1e18f, &index, &norm2));
    if (b->len == 0) return; /* a fragment without floats */
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_codec_check(&b->form, b->payload, b->len - 1, 1e18f, &index, &norm2));
    CHECK_STATUS(DILOCO_EPROTO, dl_codec_check(&b->form, b->payload, 0, 1e18f, &index, &norm2));
}

TEST(another_length_is_refused)
{
    for_all(refuses_other_lengths);
}

/* Random bytes and payloads with a few bits changed: refused, or every value is within bounds. */
static void survives(bench *b, int input)
{
    dl_rng rng;
    dl_rng_init(&rng, (uint64_t)input, DL_STREAM(DL_STREAM_TEST, 8), b->form.n);
    encode(b);
    unsigned char *whole = malloc(b->len + 1);
    CHECK(whole);
    memcpy(whole, b->payload, b->len);
    for (int trial = 0; trial < 20 && b->form.n > 0; trial++) {
        size_t index;
        double norm2;
        memcpy(b->payload, whole, b->len);
        for (size_t i = 0; trial % 4 == 3 && i < b->len; i++)
            b->payload[i] = (unsigned char)dl_rng_u32(&rng);
        for (int flips = 0; flips <= trial; flips++)
            b->payload[dl_rng_u32(&rng) % b->len] ^= (unsigned char)(1 << dl_rng_u32(&rng) % 8);
        diloco_status status = dl_codec_check(&b->form, b->payload, b->len, 1000, &index, &norm2);
        CHECK(status == DILOCO_OK || status == DILOCO_EPROTO || status == DILOCO_ENUMERIC);
        if (status == DILOCO_ENUMERIC) CHECK(index < b->form.n);
        if (status == DILOCO_EPROTO) continue;
        dl_codec_round_trip(&b->form, b->decoded, b->payload, b->len);
        if (status == DILOCO_ENUMERIC)
            CHECK(!(fabsf(b->decoded[index]) <= 1000));
        else
            CHECK_INT(b->form.n, dl_first_bad(b->decoded, b->form.n, 1000));
    }
    free(whole);
}

TEST(untrusted_bytes_are_refused_or_decode_within_the_bound)
{
    for_all(survives);
}

static void names_the_first_too_large(bench *b, int input)
{
    size_t index;
    double norm2;
    if (input != EQUAL || b->form.n == 0 || !b->variant->settles) return;
    encode(b);
    dl_codec_round_trip(&b->form, b->decoded, b->payload, b->len);
    size_t first = dl_first_bad(b->decoded, b->form.n, 0.5f);
    CHECK(first < b->form.n);
    CHECK_STATUS(DILOCO_ENUMERIC,
                 dl_codec_check(&b->form, b->payload, b->len, 0.5f, &index, &norm2));
    CHECK_INT(first, index);
}

TEST(a_value_beyond_the_bound_is_refused_with_its_index)
{
    for_all(names_the_first_too_large);
}

TEST_MAIN(a_payload_encoded_in_parts_is_the_same,
          a_long_vector_is_encoded_by_all_threads_to_the_same_bytes,
          every_codec_of_the_table_has_a_variant,
          a_payload_passes_its_check_and_decodes_to_numbers_without_negative_zeros,
          decoded_values_encode_to_themselves, the_residual_is_never_larger_than_the_encoded_values,
          every_instruction_set_gives_the_same_bytes_and_bits, payloads_may_begin_at_any_address,
          another_length_is_refused, untrusted_bytes_are_refused_or_decode_within_the_bound,
          a_value_beyond_the_bound_is_refused_with_its_index)
