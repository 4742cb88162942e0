/* bytes_test.c - plain and packed files give the same bytes; damage of every kind is an error, and
 * takes no memory that the file's own claim asks for. */
#include "data/bytes.h"

#include "check.h"
#include "scratch.h"

#include <zlib.h>

enum { N = 5000, ROOM = 8000 };
static unsigned char plain[N], packed[ROOM];

static size_t pack(void)
{
    z_stream z = {.next_in = plain, .avail_in = N, .next_out = packed, .avail_out = ROOM};
    for (size_t i = 0; i < N; i++)
        plain[i] = (unsigned char)(i * i / 7);
    CHECK_INT(Z_OK, deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY));
    CHECK_INT(Z_STREAM_END, deflate(&z, Z_FINISH));
    deflateEnd(&z);
    return ROOM - z.avail_out;
}

TEST(plain_and_packed_files_give_the_same)
{
    dl_bytes a, b;
    size_t len = pack();
    CHECK_OK(dl_bytes_open(&a, scratch_write("plain", plain, N)));
    CHECK_OK(dl_bytes_open(&b, scratch_write("packed.gz", packed, len)));
    CHECK(a.len == N && b.len == N && a.owned == NULL && b.owned != NULL);
    CHECK_BYTES(plain, a.data, N);
    CHECK_BYTES(plain, b.data, N);
    dl_bytes_close(&a), dl_bytes_close(&b);
    CHECK_OK(dl_bytes_open(&a, scratch_write("empty", "", 0)));
    CHECK_INT(0, a.len);
    dl_bytes_close(&a);
}

static void check_damaged(size_t len, const char *text)
{
    dl_bytes b;
    CHECK_STATUS(DILOCO_EPROTO, dl_bytes_open(&b, scratch_write("damaged.gz", packed, len)));
    CHECK_CONTAINS("damaged.gz: ", diloco_error_text());
    CHECK_CONTAINS(text, diloco_error_text());
    CHECK(b.owned == NULL && b.map.data == NULL);
}

TEST(a_packed_file_cut_short_anywhere_is_refused)
{
    size_t len = pack();
    for (size_t n = 2; n < 18; n++)
        check_damaged(n, "too few");
    for (size_t n = 18; n < len; n += 7)
        check_damaged(n, "");
    check_damaged(len - 1, "");
}

TEST(a_changed_byte_is_noticed)
{
    size_t len = pack();
    packed[len / 2] ^= 16;
    check_damaged(len, "cut short or damaged");
    pack();
    packed[len - 8] ^= 1; /* the checksum */
    check_damaged(len, "incorrect data check");
}

TEST(a_length_that_cannot_be_true_is_not_believed)
{
    size_t len = pack();
    memset(packed + len - 4, 0xff, 4);
    check_damaged(len, "it claims 4294967295 bytes");
    pack();
    packed[len - 4] ^= 1; /* possible, and false */
    check_damaged(len, "");
}

TEST(bytes_after_the_end_are_refused)
{
    size_t len = pack();
    memmove(packed + len + 4, packed + len - 4, 4); /* the length where it is looked for */
    check_damaged(len + 8, "8 bytes follow");
}

TEST(a_missing_file_is_missing)
{
    dl_bytes b;
    CHECK_STATUS(DILOCO_ENOENT, dl_bytes_open(&b, scratch_path("nowhere")));
}

TEST_MAIN(plain_and_packed_files_give_the_same, a_packed_file_cut_short_anywhere_is_refused,
          a_changed_byte_is_noticed, a_length_that_cannot_be_true_is_not_believed,
          bytes_after_the_end_are_refused, a_missing_file_is_missing)
