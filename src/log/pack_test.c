/* pack_test.c - packing in place and back, and what an untrusted peer may write. */
#include "log/pack.h"

#include "base/rng.h"
#include "check.h"

enum { MOST = 2 * DL_PACK_PIECE + 1001, GAP = 12 };

/* Bytes in groups of four of which the last hardly changes, as in small floats; seed 0: noise. */
static void fill(unsigned char *p, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 10), 0);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = dl_rng_u32(&rng);
        p[i] = (unsigned char)(seed && i % 4 == 3 ? 60 + bits % 3 : bits);
    }
}

static const size_t lengths[] = {
    0, 1, 3, 4, 4097, DL_PACK_PIECE - 1, DL_PACK_PIECE, DL_PACK_PIECE + 1, MOST};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

TEST(packing_and_unpacking_in_place_restore_the_bytes)
{
    static unsigned char want[MOST], buffer[GAP + MOST];
    dl_packer *packer;
    CHECK_OK(dl_packer_create(&packer));
    for (size_t k = 0; k < N_LENGTHS; k++)
        for (size_t width = 1; width <= 4; width++)
            for (uint64_t seed = 0; seed < 2; seed++) {
                const size_t n = lengths[k];
                CHECK(dl_pack_gap(n) <= GAP);
                fill(want, n, seed);
                memcpy(buffer + GAP, want, n);
                const size_t packed = dl_pack(packer, buffer, GAP, n, width);
                CHECK(packed <= n + dl_pack_gap(n));
                if (seed && width == 4 && n > 4000) CHECK(packed < n * 9 / 10);
                memmove(buffer + GAP + n - packed, buffer, packed);
                CHECK_OK(dl_pack_open(packer, buffer, n, buffer + GAP + n - packed, packed, width));
                CHECK_BYTES(want, buffer, n);
            }
    dl_packer_destroy(packer);
}

TEST(the_same_payload_packs_to_the_same_bytes)
{
    static unsigned char first[GAP + MOST], again[GAP + MOST];
    dl_packer *packer;
    CHECK_OK(dl_packer_create(&packer));
    fill(first + GAP, MOST, 1);
    memcpy(again, first, sizeof again);
    const size_t packed = dl_pack(packer, first, GAP, MOST, 4);
    CHECK_INT(packed, dl_pack(packer, again, GAP, MOST, 4));
    CHECK_BYTES(first, again, packed);
    dl_packer_destroy(packer);
}

static void refused(dl_packer *packer, const unsigned char *packed, size_t packed_len, size_t len,
                    const char *part)
{
    unsigned char *exact = malloc(packed_len + 1), *out = malloc(len + 1);
    CHECK(exact && out);
    memcpy(exact, packed, packed_len);
    CHECK_STATUS(DILOCO_EPROTO, dl_pack_open(packer, out, len, exact, packed_len, 4));
    CHECK_CONTAINS(part, diloco_error_text());
    free(exact), free(out);
}

TEST(wrong_lengths_are_refused)
{
    enum { N = 8000 };
    static unsigned char buffer[4 + N];
    dl_packer *packer;
    CHECK_OK(dl_packer_create(&packer));
    fill(buffer + 4, N, 1);
    const size_t packed = dl_pack(packer, buffer, 4, N, 4);
    CHECK(packed < N);
    refused(packer, buffer, packed - 1, N, "no possible length");
    refused(packer, buffer, packed + 1, N, "after the last");
    refused(packer, buffer, packed, N - 1, "compressed piece");
    refused(packer, buffer, packed, N + 1, "8000 bytes, not 8001");
    refused(packer, buffer, 3, N, "no possible length");
    refused(packer, buffer, 0, N, "no possible length");
    refused(packer, buffer, packed, 0, "after the last");
    buffer[0] = buffer[1] = buffer[2] = buffer[3] = 0;
    refused(packer, buffer, packed, N, "no possible length");
    buffer[3] = 0xff;
    refused(packer, buffer, packed, N, "no possible length");
    dl_packer_destroy(packer);
}

/* A frame claims a length beyond its limit: nothing is written past len. */
TEST(frame_beyond_its_length_is_refused)
{
    static unsigned char buffer[4 + DL_PACK_PIECE];
    dl_packer *packer;
    CHECK_OK(dl_packer_create(&packer));
    memset(buffer, 0, sizeof buffer);
    const size_t packed = dl_pack(packer, buffer, 4, DL_PACK_PIECE, 1);
    CHECK(packed < 100);
    refused(packer, buffer, packed, 1000, "compressed piece");
    dl_packer_destroy(packer);
}

TEST(changed_bytes_are_refused_or_give_other_bytes_of_the_same_length)
{
    enum { N = 3000 };
    static unsigned char buffer[4 + N], broken[4 + N], out[N + 1];
    dl_packer *packer;
    dl_rng rng;
    dl_rng_init(&rng, 2, DL_STREAM(DL_STREAM_TEST, 11), 0);
    CHECK_OK(dl_packer_create(&packer));
    fill(buffer + 4, N, 1);
    const size_t packed = dl_pack(packer, buffer, 4, N, 4);
    for (int trial = 0; trial < 2000; trial++) {
        memcpy(broken, buffer, packed);
        for (int flips = 0; flips <= trial % 5; flips++)
            broken[dl_rng_u32(&rng) % packed] ^= (unsigned char)(1 << dl_rng_u32(&rng) % 8);
        out[N] = 77;
        const diloco_status status = dl_pack_open(packer, out, N, broken, packed, 4);
        CHECK(status == DILOCO_OK || status == DILOCO_EPROTO);
        CHECK_INT(77, out[N]);
    }
    dl_packer_destroy(packer);
}

TEST_MAIN(packing_and_unpacking_in_place_restore_the_bytes,
          the_same_payload_packs_to_the_same_bytes, wrong_lengths_are_refused,
          frame_beyond_its_length_is_refused,
          changed_bytes_are_refused_or_give_other_bytes_of_the_same_length)
