/* f32_test.c - the exact codec: bytes as they are, negative zeros made positive, a stranger's
 * payload refused with the element it is refused for. */
#include "codec/codec.h"

#include "check.h"

enum { N = 2 * DL_BLOCK + 100 };
static float g[N];

static const dl_codec *f32(void)
{
    const dl_codec *codec = dl_codec_find("f32");
    CHECK(codec);
    for (size_t i = 0; i < N; i++)
        g[i] = (float)i * 0.25f - 1000;
    return codec;
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

TEST(a_payload_is_the_vector_and_decodes_to_it)
{
    static unsigned char payload[4 * N + 1];
    static float out[DL_BLOCK];
    const dl_codec *codec = f32();
    CHECK(!codec->lossy);
    CHECK_INT(4 * N, codec->bound(N));
    for (size_t shift = 0; shift < 2; shift++) { /* aligned, and not */
        size_t len, index;
        double norm2;
        codec->encode(payload + shift, &len, g, N);
        CHECK_INT(4 * N, len);
        CHECK_BYTES(g, payload + shift, len);
        CHECK_OK(codec->check(payload + shift, len, N, INFINITY, &index, &norm2));
        CHECK(norm2 == dl_norm2(g, N));
        for (size_t first = 0; first < N; first += DL_BLOCK) {
            size_t n = dl_size_min(DL_BLOCK, N - first);
            codec->decode(out, payload + shift, len, N, first, n);
            CHECK_BYTES(g + first, out, n * sizeof *out);
        }
    }
}

TEST(no_negative_zero_enters)
{
    float zeros[] = {-0.0f, 0.0f, -1e-45f}, out[3];
    unsigned char payload[12];
    size_t len;
    const dl_codec *codec = f32();
    codec->encode(payload, &len, zeros, 3);
    CHECK_INT(0, payload[3]);
    memcpy(payload, zeros, sizeof zeros); /* a stranger's */
    codec->decode(out, payload, 12, 3, 0, 3);
    CHECK(!signbit(out[0]) && !signbit(out[1]) && out[2] == -1e-45f);
}

TEST(a_view_is_the_payload_where_it_is_aligned)
{
    static _Alignas(float) unsigned char payload[4 * N + 1];
    const dl_codec *codec = f32();
    CHECK((const void *)codec->view(payload, DL_BLOCK) == payload + 4 * DL_BLOCK);
    CHECK(!codec->view(payload + 1, 0));
}

TEST(a_payload_of_another_length_is_refused)
{
    unsigned char payload[16] = {0};
    size_t index;
    double norm2;
    const dl_codec *codec = f32();
    static const size_t lengths[] = {0, 11, 13, 16};
    for (int i = 0; i < 4; i++)
        CHECK_STATUS(DILOCO_EPROTO, codec->check(payload, lengths[i], 3, INFINITY, &index, &norm2));
    CHECK_STATUS(DILOCO_EPROTO, codec->check(payload, 4, ((size_t)1 << 62) + 1, INFINITY, &index,
                                             &norm2)); /* 4 n overflows to 4 */
    CHECK_OK(codec->check(payload, 12, 3, INFINITY, &index, &norm2));
    CHECK(norm2 == 0);
}

TEST(what_is_not_finite_or_beyond_the_bound_is_refused_with_its_index)
{
    static unsigned char payload[4 * N];
    size_t len, index;
    double norm2;
    const dl_codec *codec = f32();
    static const float bad[] = {NAN, INFINITY, -INFINITY, 20000};
    static const size_t places[] = {0, DL_BLOCK - 1, DL_BLOCK, N - 1};
    for (int p = 0; p < 4; p++)
        for (int k = 0; k < 4; k++) {
            float was = g[places[p]];
            g[places[p]] = bad[k];
            codec->encode(payload, &len, g, N);
            g[places[p]] = was;
            CHECK_STATUS(DILOCO_ENUMERIC, codec->check(payload, len, N, 10000, &index, &norm2));
            CHECK_INT(places[p], index);
        }
}

TEST_MAIN(the_table_finds_by_name_and_ends, a_payload_is_the_vector_and_decodes_to_it,
          no_negative_zero_enters, a_view_is_the_payload_where_it_is_aligned,
          a_payload_of_another_length_is_refused,
          what_is_not_finite_or_beyond_the_bound_is_refused_with_its_index)
