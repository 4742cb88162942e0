/* peer_address_test.c - an address is an address, and nothing else is one. */
#include "base/peer_address.h"

#include "check.h"

TEST(an_address_gets_the_scheme_that_is_spoken)
{
    char out[DL_ADDRESS_MAX + 1];
    CHECK_OK(dl_peer_address(out, "10.0.0.1:80", false));
    CHECK_STR("http://10.0.0.1:80", out);
    CHECK_OK(dl_peer_address(out, "a-b.example:8800", true));
    CHECK_STR("https://a-b.example:8800", out);
    CHECK_OK(dl_peer_address(out, "http://[::1]:9/run", true));
    CHECK_STR("http://[::1]:9", out);
}

TEST(an_invalid_address_is_refused)
{
    static const char *const bad[] = {"",           "host",  "host:",   "host:0", "host:65536",
                                      ":80",        "-a:80", "a b:80",  "u@h:80", "h:80/other",
                                      "ftp://h:80", "h:8x",  "[::1:80", "h\n:80", "http://h:80?"};
    char out[DL_ADDRESS_MAX + 1];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STATUS(DILOCO_EINVAL, dl_peer_address(out, bad[i], false));
}

TEST_MAIN(an_address_gets_the_scheme_that_is_spoken, an_invalid_address_is_refused)
