/* buf_test.c - growth, the maximum, and the zero byte after the content. */
#include "base/buf.h"

#include "check.h"

TEST(added_bytes_are_in_the_buffer)
{
    dl_buf buf;
    dl_buf_init(&buf, 10000);
    for (int i = 0; i < 1000; i++)
        CHECK_OK(dl_buf_addf(&buf, "%d,", i % 10));
    CHECK_OK(dl_buf_add(&buf, "end", 3));
    CHECK_INT(2003, buf.len);
    CHECK_BYTES("0,1,2,", buf.data, 6);
    CHECK_BYTES("9,end", buf.data + 1998, 5);
    dl_buf_deinit(&buf);
    CHECK(!buf.data);
}

TEST(it_grows_to_its_maximum_and_not_beyond)
{
    char bytes[200] = {0};
    dl_buf buf;
    dl_buf_init(&buf, 200);
    CHECK_OK(dl_buf_add(&buf, bytes, 150));
    CHECK_STATUS(DILOCO_EPROTO, dl_buf_add(&buf, bytes, 51));
    CHECK_CONTAINS("200", diloco_error_text());
    CHECK_INT(150, buf.len);
    CHECK_STATUS(DILOCO_EPROTO, dl_buf_addf(&buf, "%51d", 1));
    CHECK_INT(150, buf.len);
    CHECK_STATUS(DILOCO_EPROTO, dl_buf_add(&buf, bytes, SIZE_MAX));
    CHECK_STATUS(DILOCO_EPROTO, dl_buf_reserve(&buf, 201));
    CHECK_OK(dl_buf_addf(&buf, "%50d", 1));
    CHECK_INT(200, buf.len);
    CHECK(buf.cap <= buf.max);
    CHECK_INT(200, strlen(dl_buf_str(&buf) + 150) + 150); /* also when it is full */
    dl_buf_deinit(&buf);
}

TEST(memory_that_cannot_be_had_leaves_it_as_it_was)
{
    dl_buf buf;
    dl_buf_init(&buf, SIZE_MAX / 2);
    CHECK_OK(dl_buf_add(&buf, "abc", 3));
    CHECK_STATUS(DILOCO_ENOMEM, dl_buf_reserve(&buf, SIZE_MAX / 2));
    CHECK_STR("abc", dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

TEST(reserved_memory_is_not_taken_again)
{
    dl_buf buf;
    dl_buf_init(&buf, 1 << 20);
    CHECK_OK(dl_buf_reserve(&buf, 5000));
    const unsigned char *at = buf.data;
    for (int i = 0; i < 500; i++)
        CHECK_OK(dl_buf_add(&buf, "0123456789", 10));
    CHECK(buf.data == at);
    dl_buf_clear(&buf);
    CHECK(buf.data == at && buf.len == 0 && buf.cap >= 5000);
    dl_buf_deinit(&buf);
}

TEST(an_empty_buffer_is_an_empty_string)
{
    dl_buf buf;
    dl_buf_init(&buf, 1);
    CHECK_OK(dl_buf_add(&buf, NULL, 0));
    CHECK_STR("", dl_buf_str(&buf));
    CHECK_INT(0, buf.len);
    dl_buf_deinit(&buf);
}

TEST_MAIN(added_bytes_are_in_the_buffer, it_grows_to_its_maximum_and_not_beyond,
          memory_that_cannot_be_had_leaves_it_as_it_was, reserved_memory_is_not_taken_again,
          an_empty_buffer_is_an_empty_string)
