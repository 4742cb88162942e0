/* host_port_test.c - which URLs name this machine. */
#include "base/host_port.h"

#include "check.h"

TEST(exact_hosts_of_this_machine_are_loopback)
{
    static const char *const near[] = {
        "http://localhost",       "http://LOCALHOST:80/x",  "http://127.0.0.1:9000/run",
        "https://127.255.3.4?x=", "http://[::1]",           "http://[::1]:80/x",
        "http://u@localhost/",    "http://localhost#there", "http://[0:0:0:0:0:0:0:1]:1",
    };
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        if (!dl_url_is_loopback(near[i]) || !dl_url_is_near(near[i]))
            CHECK_FAIL("%s is not loopback", near[i]);
}

TEST(longer_names_and_other_hosts_are_not_loopback)
{
    static const char *const far[] = {
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example:80",
        "http://127.evil.example/",
        "http://localhost@evil.example",
        "http://127.0.0.1:80@evil/",
        "http://[::1].evil.example",
        "http://[::1",
        "http://[::2]",
        "http://evil/?x=://localhost",
        "http://evil/://127.0.0.1",
        "http://",
        "localhost",
        "http://128.0.0.1",
        "http://a.localhost",
        "http://[localhost]",
        "http://[127.0.0.1]",
        "http://169.254.evil.example",
        "http://localhost\\@evil.example",
    };
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        if (dl_url_is_loopback(far[i]) || dl_url_is_near(far[i])) CHECK_FAIL("%s is near", far[i]);
}

TEST(link_local_addresses_are_near_and_not_loopback)
{
    CHECK(dl_url_is_near("http://169.254.169.254/latest"));
    CHECK(!dl_url_is_loopback("http://169.254.169.254/latest"));
    CHECK(!dl_url_is_near("http://169.253.1.1"));
}

TEST_MAIN(exact_hosts_of_this_machine_are_loopback, longer_names_and_other_hosts_are_not_loopback,
          link_local_addresses_are_near_and_not_loopback)
