/* target_test.c - valid and invalid targets of a request. */
#include "hub/target.h"

#include "check.h"

static dl_target t;

TEST(a_target_is_a_path_and_parameters_decoded)
{
    CHECK_OK(dl_target_parse(&t, "/run/c/1?list-type=2&prefix=a%2Fb+c&uploads&x=&=y"));
    CHECK_STR("/run/c/1", t.path);
    CHECK_INT(5, t.n_params);
    CHECK_STR("2", dl_target_param(&t, "list-type"));
    CHECK_STR("a/b c", dl_target_param(&t, "prefix"));
    CHECK_STR("", dl_target_param(&t, "uploads"));
    CHECK(dl_target_has(&t, "x"));
    CHECK(!dl_target_has(&t, "y"));
    CHECK_OK(dl_target_parse(&t, "/%2e%2e/a+b"));
    CHECK_STR("/../a+b", t.path); /* a '+' is a '+' in a path; whether ".." is a key, others say */
    CHECK_OK(dl_target_parse(&t, "/a?b=%c3%a4"));
    CHECK_STR("\xc3\xa4", dl_target_param(&t, "b"));
    CHECK_OK(dl_target_parse(&t, "/?"));
    CHECK_INT(0, t.n_params);
}

TEST(an_invalid_target_is_refused)
{
    const char *bad[] = {"",      "*",         "run/a",   "http://host/a", "/a%00b",
                         "/a%0",  "/a%zz",     "/a%0a",   "/a?b=%",        "/a?%00=c",
                         "/a\tb", "/a?b=\x7f", "/%c3%a4", "/\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(DILOCO_EPROTO, dl_target_parse(&t, bad[i]));

    char many[4 * DL_TARGET_PARAMS + 16] = "/?";
    for (int i = 0; i < DL_TARGET_PARAMS; i++)
        strcat(many, "a=b&");
    CHECK_OK(dl_target_parse(&t, many));
    strcat(many, "a");
    CHECK_STATUS(DILOCO_EPROTO, dl_target_parse(&t, many));

    char longest[DL_TARGET_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    longest[DL_TARGET_MAX] = '\0';
    CHECK_OK(dl_target_parse(&t, longest));
    longest[DL_TARGET_MAX] = 'a';
    longest[DL_TARGET_MAX + 1] = '\0';
    CHECK_STATUS(DILOCO_EPROTO, dl_target_parse(&t, longest));
}

static void check_range(dl_range expected, uint64_t begin, uint64_t n, const char *header,
                        uint64_t len)
{
    uint64_t b, k;
    CHECK_INT(expected, dl_range_parse(&b, &k, header, len));
    if (expected == DL_RANGE_BEYOND) return;
    CHECK_INT(begin, b);
    CHECK_INT(n, k);
}

TEST(a_range_is_one_piece_of_the_object)
{
    check_range(DL_RANGE_NONE, 0, 10, NULL, 10);
    check_range(DL_RANGE_PART, 0, 10, "bytes=0-", 10);
    check_range(DL_RANGE_PART, 3, 4, "bytes=3-6", 10);
    check_range(DL_RANGE_PART, 9, 1, "bytes=9-9", 10);
    check_range(DL_RANGE_PART, 3, 7, "bytes=3-99999999999999", 10);
    check_range(DL_RANGE_PART, 7, 3, "bytes=-3", 10);
    check_range(DL_RANGE_PART, 0, 10, "bytes=-30", 10);
    check_range(DL_RANGE_BEYOND, 0, 0, "bytes=10-", 10);
    check_range(DL_RANGE_BEYOND, 0, 0, "bytes=-0", 10);
    check_range(DL_RANGE_BEYOND, 0, 0, "bytes=0-", 0);
    const char *none[] = {"bytes=",        "bytes=-",
                          "bytes=5-4",     "bytes=a-b",
                          "bytes=0-1,3-4", "bytes=-1-2",
                          "bytes= 0-1",    "byte=0-1",
                          "0-1",           "bytes=01-2",
                          "bytes=1",       "bytes=+1-+2",
                          "bytes=0x0-1",   "bytes=99999999999999999999-"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        check_range(DL_RANGE_NONE, 0, 10, none[i], 10);
}

TEST_MAIN(a_target_is_a_path_and_parameters_decoded, an_invalid_target_is_refused,
          a_range_is_one_piece_of_the_object)
