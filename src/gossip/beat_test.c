/* beat_test.c - a heartbeat reads back, a damaged one does not, and an address is an address. */
#include "gossip/beat.h"

#include "check.h"

static dl_beat example(void)
{
    return (dl_beat){.run = "0123456789abcdef0123456789abcdef",
                     .life = {.replica = "r3", .generation = 2},
                     .id = "00000000000000000000000000000007",
                     .address = "https://a.example:8800",
                     .contributed = 12,
                     .state = 11,
                     .stepped = 10,
                     .ignored = 1,
                     .step = 600,
                     .divergence = 0.5,
                     .done = true};
}

TEST(what_was_written_reads_back)
{
    const dl_beat b = example();
    dl_beat back;
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    CHECK_OK(dl_beat_write(&text, &b));
    CHECK_OK(dl_beat_read(&back, text.data, text.len));
    CHECK_STR(b.address, back.address);
    CHECK_STR("r3", back.life.replica);
    CHECK_INT(12, back.contributed);
    CHECK_INT(1, back.ignored);
    CHECK(back.done && back.divergence == 0.5);
    dl_buf_deinit(&text);
}

TEST(one_flipped_byte_anywhere_is_refused_and_nothing_is_written)
{
    const dl_beat b = example();
    dl_beat back = {.step = 42};
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    CHECK_OK(dl_beat_write(&text, &b));
    for (size_t i = 0; i + 1 < text.len; i++) {
        text.data[i] ^= 1;
        CHECK(dl_beat_read(&back, text.data, text.len) != DILOCO_OK);
        text.data[i] ^= 1;
    }
    for (size_t len = 0; len + 1 < text.len; len++)
        CHECK(dl_beat_read(&back, text.data, len) != DILOCO_OK);
    CHECK_INT(42, back.step);
    dl_buf_deinit(&text);
}

TEST(a_heartbeat_with_an_address_that_is_none_is_refused)
{
    dl_beat b = example(), back;
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    snprintf(b.address, sizeof b.address, "file:///etc/passwd");
    CHECK_OK(dl_beat_write(&text, &b));
    CHECK_STATUS(DILOCO_EPROTO, dl_beat_read(&back, text.data, text.len));
    dl_buf_deinit(&text);
}

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

TEST(what_is_no_address_is_refused)
{
    static const char *const bad[] = {"",           "host",  "host:",   "host:0", "host:65536",
                                      ":80",        "-a:80", "a b:80",  "u@h:80", "h:80/other",
                                      "ftp://h:80", "h:8x",  "[::1:80", "h\n:80", "http://h:80?"};
    char out[DL_ADDRESS_MAX + 1];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STATUS(DILOCO_EINVAL, dl_peer_address(out, bad[i], false));
}

TEST_MAIN(what_was_written_reads_back, one_flipped_byte_anywhere_is_refused_and_nothing_is_written,
          a_heartbeat_with_an_address_that_is_none_is_refused,
          an_address_gets_the_scheme_that_is_spoken, what_is_no_address_is_refused)
