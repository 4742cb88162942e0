/* checksum_test.c - the checksums against their published check values (the CRC catalogue's value
 * of "123456789"; FIPS 180 of "abc"), in one piece and in pieces that straddle eight bytes. */
#include "hub/checksum.h"

#include "check.h"

#include <stdio.h>

static void check_value(const char *name, const char *text, const char *want)
{
    const size_t len = strlen(text);
    for (size_t piece = 1; piece <= len; piece++) {
        char got[DL_CHECKSUM_TEXT];
        dl_checksum c;
        CHECK(dl_checksum_find(name) != NULL);
        CHECK_OK(dl_checksum_begin(&c, dl_checksum_find(name)));
        for (size_t at = 0; at < len; at += piece)
            dl_checksum_add(&c, text + at, len - at < piece ? len - at : piece);
        dl_checksum_end(&c, got);
        dl_checksum_deinit(&c);
        CHECK_STR(want, got);
    }
}

TEST(checksums_have_their_published_values)
{
    check_value("x-amz-checksum-crc32", "123456789", "y/Q5Jg==");       /* cbf43926 */
    check_value("X-Amz-Checksum-CRC32C", "123456789", "4waSgw==");      /* e3069283 */
    check_value("ChecksumCRC64NVME", "123456789", "rosUhgp5mIg=");      /* ae8b14860a799888 */
    check_value("ChecksumSHA1", "abc", "qZk+NkcGgWq6PiVxeFDCbJzQ2J0="); /* a9993e36… */
    check_value("x-amz-checksum-sha256", "abc", "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    check_value("x-amz-checksum-crc32", "The quick brown fox jumps over the lazy dog", "QU+jOQ==");
}

TEST(an_unknown_checksum_is_not_found)
{
    CHECK(dl_checksum_find("x-amz-checksum-xxhash64") == NULL);
    CHECK(dl_checksum_find("x-amz-checksum-algorithm") == NULL);
    CHECK(dl_checksum_find("") == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_have_their_published_values),
        cmocka_unit_test(an_unknown_checksum_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
