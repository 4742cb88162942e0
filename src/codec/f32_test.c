/* f32_test.c - the exact codec: bytes as they are, negative zeros made positive, an untrusted
 * peer's payload refused with the element it is refused for. */
#include "codec/codec.h"

#include "check.h"

enum { N = 2 * DL_BLOCK + 100 };
static float g[N];

/* The form of n elements in one tensor. */
static dl_codec_form form_of(size_t n)
{
    static dl_config config;
    diloco_tensor tensor = {.name = "w", .n_dims = 1, .shape = {n}};
    dl_manifest manifest;
    dl_codec_form form;
    dl_config_init(&config);
    CHECK_OK(dl_manifest_init(&manifest, &tensor, 1, false));
    CHECK_OK(dl_codec_form_init(&form, &config, &manifest, 0));
    dl_manifest_deinit(&manifest);
    for (size_t i = 0; i < N; i++)
        g[i] = (float)i * 0.25f - 1000;
    return form;
}

TEST(the_table_finds_by_name_and_ends)
{
    CHECK(dl_codec_find("f32") == dl_codec_at(0));
    CHECK(!dl_codec_find("F32"));
    size_t n = 0;
    while (dl_codec_at(n))
        n++;
    CHECK(n >= 1 && !dl_codec_at(n + 1));
}

TEST(a_codec_that_is_not_there_has_no_form)
{
    static dl_config config;
    diloco_tensor tensor = {.name = "w", .n_dims = 1, .shape = {3}};
    dl_manifest manifest;
    dl_codec_form form;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "codec", "f23", "test"));
    CHECK_OK(dl_manifest_init(&manifest, &tensor, 1, false));
    CHECK_STATUS(DILOCO_EINVAL, dl_codec_form_init(&form, &config, &manifest, 0));
    CHECK(!form.tensors && !form.codec);
    dl_manifest_deinit(&manifest);
}

TEST(a_form_lists_the_tensors_of_its_fragment_trained_first)
{
    static dl_config config;
    static const diloco_tensor tensors[] = {
        {"frozen", NULL, DILOCO_F32, DILOCO_FROZEN, 1, {5}, 0},
        {"other", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {50}, 1},
        {"matrix", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {4, 7}, 0},
        {"count", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {9}, 0},
        {"kernel", NULL, DILOCO_F32, DILOCO_PARAMETER, 3, {3, 2, 5}, 0},
        {"scalar", NULL, DILOCO_F32, DILOCO_PARAMETER, 0, {0}, 0},
    };
    static const dl_codec_tensor want[] = {
        {0, 28, 4, 7, 0, 0}, {28, 30, 3, 10, 0, 0}, {58, 1, 1, 1, 0, 0}, {59, 5, 1, 5, 0, 0}};
    dl_manifest manifest;
    dl_codec_form form;
    dl_config_init(&config);
    CHECK_OK(dl_manifest_init(&manifest, tensors, 6, false));
    CHECK_OK(dl_codec_form_init(&form, &config, &manifest, 0));
    CHECK_INT(4, form.n_tensors);
    CHECK_INT(64, form.n);
    CHECK_BYTES(want, form.tensors, sizeof want);
    for (size_t i = 0; i < form.n; i++) {
        const dl_codec_tensor *t = dl_codec_tensor_of(&form, i);
        CHECK(i >= t->begin && i < t->begin + t->count);
    }
    dl_codec_form_deinit(&form);
    dl_manifest_deinit(&manifest);
}

TEST(a_payload_is_the_vector_and_decodes_to_it)
{
    static unsigned char payload[4 * N + 1];
    static float out[N];
    dl_codec_form form = form_of(N);
    CHECK(!form.codec->lossy);
    CHECK_INT(4 * N, form.bound);
    for (size_t shift = 0; shift < 2; shift++) { /* aligned, and not */
        size_t len, index;
        double norm2;
        form.codec->encode(&form, payload + shift, &len, g);
        CHECK_INT(4 * N, len);
        CHECK_BYTES(g, payload + shift, len);
        CHECK_OK(dl_codec_check(&form, payload + shift, len, INFINITY, &index, &norm2));
        CHECK(norm2 == dl_norm2(g, N));
        dl_codec_round_trip(&form, out, payload + shift, len);
        CHECK_BYTES(g, out, sizeof g);
    }
    dl_codec_form_deinit(&form);
}

TEST(no_negative_zero_enters)
{
    float zeros[] = {-0.0f, 0.0f, -1e-45f}, out[3];
    unsigned char payload[12];
    size_t len;
    dl_codec_form form = form_of(3);
    form.codec->encode(&form, payload, &len, zeros);
    CHECK_INT(0, payload[3]);
    memcpy(payload, zeros, sizeof zeros); /* an untrusted peer's */
    form.codec->decode(&form, out, payload, 12, 0, 3);
    CHECK(!signbit(out[0]) && !signbit(out[1]) && out[2] == -1e-45f);
    dl_codec_form_deinit(&form);
}

TEST(a_view_is_the_payload_where_it_is_aligned)
{
    static _Alignas(float) unsigned char payload[4 * N + 1];
    const dl_codec *codec = dl_codec_find("f32");
    CHECK((const void *)codec->view(payload, DL_BLOCK) == payload + 4 * DL_BLOCK);
    CHECK(!codec->view(payload + 1, 0));
}

TEST(a_payload_of_another_length_is_refused)
{
    unsigned char payload[16] = {0};
    size_t index;
    double norm2;
    dl_codec_form form = form_of(3);
    static const size_t lengths[] = {0, 11, 13, 16, SIZE_MAX};
    for (int i = 0; i < 5; i++)
        CHECK_STATUS(DILOCO_EPROTO,
                     dl_codec_check(&form, payload, lengths[i], INFINITY, &index, &norm2));
    CHECK_OK(dl_codec_check(&form, payload, 12, INFINITY, &index, &norm2));
    CHECK(norm2 == 0);
    dl_codec_form_deinit(&form);
}

TEST(values_not_finite_or_beyond_the_bound_are_refused_with_their_index)
{
    static unsigned char payload[4 * N];
    size_t len, index;
    double norm2;
    dl_codec_form form = form_of(N);
    static const float bad[] = {NAN, INFINITY, -INFINITY, 20000};
    static const size_t places[] = {0, DL_BLOCK - 1, DL_BLOCK, N - 1};
    for (int p = 0; p < 4; p++)
        for (int k = 0; k < 4; k++) {
            float was = g[places[p]];
            g[places[p]] = bad[k];
            form.codec->encode(&form, payload, &len, g);
            g[places[p]] = was;
            CHECK_STATUS(DILOCO_ENUMERIC,
                         dl_codec_check(&form, payload, len, 10000, &index, &norm2));
            CHECK_INT(places[p], index);
        }
    dl_codec_form_deinit(&form);
}

TEST_MAIN(the_table_finds_by_name_and_ends, a_codec_that_is_not_there_has_no_form,
          a_form_lists_the_tensors_of_its_fragment_trained_first,
          a_payload_is_the_vector_and_decodes_to_it, no_negative_zero_enters,
          a_view_is_the_payload_where_it_is_aligned, a_payload_of_another_length_is_refused,
          values_not_finite_or_beyond_the_bound_are_refused_with_their_index)
