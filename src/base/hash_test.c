/* hash_test.c - the tree digest against its definition in hash.h.
 *
 * XXH3-128 of nothing is the published 99aa06d3014798d86001c324468d497f (xxHash's
 * specification, "XXH3", and its test vectors). */
#include "base/hash.h"

#include "check.h"

static unsigned char *some_bytes(size_t n)
{
    unsigned char *bytes = malloc(n + 1);
    CHECK(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    return bytes;
}

static dl_hash digest_by_definition(const unsigned char *data, size_t n)
{
    dl_hash leaves[8];
    size_t n_leaves = 0;
    for (size_t at = 0; at < n; at += DL_LEAF_BYTES)
        leaves[n_leaves++] = dl_hash_bytes(data + at, dl_size_min(DL_LEAF_BYTES, n - at));
    return dl_digest_leaves(leaves, n_leaves);
}

TEST(the_hash_of_nothing_is_the_published_one)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, dl_hash_bytes("", 0));
    CHECK_STR("99aa06d3014798d86001c324468d497f", hex);
    dl_hash_to_hex(hex, dl_digest_bytes("", 0));
    CHECK_STR("99aa06d3014798d86001c324468d497f", hex);
}

TEST(the_digest_is_the_hash_of_its_leaves_hashes)
{
    const size_t sizes[] = {1,
                            DL_LEAF_BYTES - 1,
                            DL_LEAF_BYTES,
                            DL_LEAF_BYTES + 1,
                            3 * DL_LEAF_BYTES,
                            3 * DL_LEAF_BYTES + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *data = some_bytes(sizes[i]);
        CHECK(dl_hash_equal(digest_by_definition(data, sizes[i]), dl_digest_bytes(data, sizes[i])));
        free(data);
    }
}

TEST(a_stream_in_pieces_gives_the_same_digest)
{
    size_t n = 2 * DL_LEAF_BYTES + 777, piece = 1;
    unsigned char *data = some_bytes(n);
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    for (size_t at = 0; at < n; piece = piece * 3 + 1) {
        size_t now = dl_size_min(piece, n - at);
        dl_digest_add(&stream, data + at, now);
        dl_digest_add(&stream, NULL, 0);
        at += now;
    }
    CHECK(dl_hash_equal(dl_digest_bytes(data, n), dl_digest_end(&stream)));
    free(data);
}

TEST(one_changed_bit_changes_the_digest)
{
    size_t n = DL_LEAF_BYTES + 10;
    unsigned char *data = some_bytes(n);
    dl_hash before = dl_digest_bytes(data, n);
    data[DL_LEAF_BYTES + 3] ^= 1;
    CHECK(!dl_hash_equal(before, dl_digest_bytes(data, n)));
    free(data);
}

TEST(hex_round_trips_and_bad_hex_is_refused)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash hash = dl_hash_bytes("abc", 3), back;
    dl_hash_to_hex(hex, hash);
    CHECK(dl_hash_from_hex(&back, hex, strlen(hex)));
    CHECK(dl_hash_equal(hash, back));
    CHECK(!dl_hash_is_zero(hash));
    CHECK(dl_hash_from_hex(&back, "00000000000000000000000000000000", 32));
    CHECK(dl_hash_is_zero(back));
    CHECK(dl_hash_from_hex(&back, "000000000000000000000000000000af", 32));
    CHECK_INT(0xAF, back.bytes[15]);
    CHECK(!dl_hash_from_hex(&back, "000000000000000000000000000000aF", 32));
    CHECK(!dl_hash_from_hex(&back, hex, 31));
    CHECK(!dl_hash_from_hex(&back, hex, 33));
    hex[7] = 'g';
    CHECK(!dl_hash_from_hex(&back, hex, 32));
}

/* Equal hashes of a hundred pairs of keys would be a chance of 100 / 2^64. */
TEST(another_seed_gives_another_hash)
{
    char key[32];
    for (int i = 0; i < 100; i++) {
        const size_t len = (size_t)snprintf(key, sizeof key, "c/0000000007/r%d.0000", i);
        CHECK(dl_hash_seeded(key, len, 1) == dl_hash_seeded(key, len, 1));
        CHECK(dl_hash_seeded(key, len, 1) != dl_hash_seeded(key, len, 2));
    }
}

TEST_MAIN(the_hash_of_nothing_is_the_published_one, the_digest_is_the_hash_of_its_leaves_hashes,
          a_stream_in_pieces_gives_the_same_digest, one_changed_bit_changes_the_digest,
          hex_round_trips_and_bad_hex_is_refused, another_seed_gives_another_hash)
