/* zstd_text_test.c - texts come back, and what is no frame is refused before memory is taken. */
#include "log/zstd_text.h"

#include "check.h"

#include <string.h>

enum { ROOM = 1 << 20 };

TEST(unpacked_text_is_appended)
{
    static char text[200000];
    static const size_t lengths[] = {0, 1, 1000, sizeof text};
    dl_zipper *z;
    dl_span frame;
    dl_buf out;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "{\"event\":\"step\",\"loss\":1.25}\n"[i % 29];
    dl_buf_init(&out, ROOM);
    CHECK_OK(dl_zipper_create(&z, 1000));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        dl_buf_clear(&out);
        CHECK_OK(dl_buf_add(&out, "before", 6));
        CHECK_OK(dl_zip(z, &frame, text, lengths[i]));
        CHECK_OK(dl_unzip(&out, frame.data, frame.len));
        CHECK_INT(6 + lengths[i], out.len);
        CHECK_BYTES("before", out.data, 6);
        CHECK(!memcmp(text, out.data + 6, lengths[i]));
    }
    CHECK(frame.len < sizeof text / 100);
    dl_zipper_destroy(z);
    dl_buf_deinit(&out);
}

TEST(invalid_or_long_frame_is_refused_and_adds_nothing)
{
    static char text[5000];
    dl_zipper *z;
    dl_span frame;
    dl_buf out;
    unsigned char copy[5000];
    CHECK_OK(dl_zipper_create(&z, 1000));
    CHECK_OK(dl_zip(z, &frame, text, sizeof text));
    dl_buf_init(&out, sizeof text - 1);
    CHECK_STATUS(DILOCO_EPROTO, dl_unzip(&out, frame.data, frame.len)); /* one byte too long */
    dl_buf_deinit(&out);
    dl_buf_init(&out, ROOM);
    CHECK_STATUS(DILOCO_EPROTO, dl_unzip(&out, "{\"event\":\"x\"}\n", 14));
    for (size_t n = 0; n < frame.len; n++)
        CHECK_STATUS(DILOCO_EPROTO, dl_unzip(&out, frame.data, n));
    memcpy(copy, frame.data, frame.len);
    copy[frame.len - 1] ^= 0x10;
    const diloco_status damaged = dl_unzip(&out, copy, frame.len);
    CHECK(damaged == DILOCO_EPROTO || damaged == DILOCO_OK); /* zstd's frames have no digest */
    CHECK_INT(damaged ? 0 : sizeof text, out.len);
    dl_zipper_destroy(z);
    dl_buf_deinit(&out);
}

TEST_MAIN(unpacked_text_is_appended, invalid_or_long_frame_is_refused_and_adds_nothing)
