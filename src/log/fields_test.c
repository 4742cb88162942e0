/* fields_test.c - the seal finds every flipped bit and every cut, also in members that this
 * version does not know; members are read back or refused by name. */
#include "log/fields.h"

#include "check.h"

static dl_buf sealed(uint64_t version)
{
    dl_buf out;
    dl_json j;
    dl_buf_init(&out, 4096);
    CHECK_OK(dl_buf_add(&out, "before", 6));
    size_t start = out.len;
    dl_json_init(&j, &out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "format", "diloco-test");
    dl_json_u64(&j, "version", version);
    dl_json_str(&j, "unknown", "\xc3\xa9, \"check\":");
    CHECK_OK(dl_sealed_end(&j, start));
    memmove(out.data, out.data + 6, out.len - 6);
    out.len -= 6;
    return out;
}

TEST(a_sealed_object_opens)
{
    dl_buf text = sealed(DL_FORMAT_VERSION), other;
    dl_json_value root;
    dl_json j;
    size_t start;
    CHECK_OK(dl_sealed_open(&root, text.data, text.len, "diloco-test"));
    CHECK_INT(DL_JSON_STRING, dl_json_get(root, "unknown").type);
    CHECK_INT('\n', text.data[text.len - 1]);

    dl_buf_init(&other, 4096);
    dl_sealed_begin(&j, &start, &other, "diloco-test");
    CHECK_OK(dl_sealed_end(&j, start));
    CHECK_OK(dl_sealed_open(&root, other.data, other.len, "diloco-test"));
    dl_buf_deinit(&other);
    dl_buf_deinit(&text);
}

TEST(every_flipped_bit_is_found)
{
    dl_buf text = sealed(DL_FORMAT_VERSION);
    dl_json_value root;
    for (size_t bit = 0; bit < 8 * text.len; bit++) {
        text.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        diloco_status status = dl_sealed_open(&root, text.data, text.len, "diloco-test");
        if (status != DILOCO_EPROTO) CHECK_FAIL("bit %zu: %d", bit, (int)status);
        text.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    dl_buf_deinit(&text);
}

TEST(every_cut_is_found)
{
    dl_buf text = sealed(DL_FORMAT_VERSION);
    dl_json_value root;
    for (size_t len = 0; len < text.len; len++)
        CHECK_STATUS(DILOCO_EPROTO, dl_sealed_open(&root, text.data, len, "diloco-test"));
    dl_buf_deinit(&text);
}

TEST(another_version_is_named)
{
    dl_buf text = sealed(7);
    dl_json_value root;
    CHECK_STATUS(DILOCO_EDIFFERS, dl_sealed_open(&root, text.data, text.len, "diloco-test"));
    CHECK_CONTAINS("version 7", diloco_error_text());
    CHECK_CONTAINS("version 1", diloco_error_text());
    dl_buf_deinit(&text);
}

TEST(another_format_is_named)
{
    dl_buf text = sealed(DL_FORMAT_VERSION);
    dl_json_value root;
    CHECK_STATUS(DILOCO_EPROTO, dl_sealed_open(&root, text.data, text.len, "diloco-entry"));
    CHECK_CONTAINS("diloco-test", diloco_error_text());
    dl_buf_deinit(&text);
}

TEST(a_failed_writer_leaves_the_buffer)
{
    dl_buf out;
    dl_json j;
    size_t start;
    dl_buf_init(&out, 64);
    CHECK_OK(dl_buf_add(&out, "kept", 4));
    dl_sealed_begin(&j, &start, &out, "diloco-test");
    CHECK_STATUS(DILOCO_EPROTO, dl_sealed_end(&j, start)); /* the seal does not fit into 64 */
    CHECK_INT(4, out.len);
    dl_buf_deinit(&out);
}

static dl_json_value parsed(const char *text)
{
    dl_json_value root;
    CHECK_OK(dl_json_parse(&root, text, strlen(text)));
    return root;
}

TEST(members_that_do_not_fit_are_named)
{
    dl_hash hash;
    dl_generation generation;
    char run[DL_HASH_HEX + 1];
    double d;
    float f;
    uint32_t u;
    dl_json_value o =
        parsed("{\"h\":\"12\",\"l\":\"r0.1\",\"run\":\"ABCDEF0123456789abcdef0123456789\","
               "\"d\":null,\"f\":\"7f800000\",\"u\":9,\"s\":\"text\"}");
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_hash(&hash, o, "h"));
    CHECK_CONTAINS("\"h\"", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_generation(&generation, o, "l"));
    CHECK_CONTAINS("\"l\"", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_run(run, o));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_finite_bits(&f, o, "f"));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_u32(&u, o, "u", 8));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_f64_or_nan(&d, o, "s"));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_f64_or_nan(&d, o, "absent"));
    CHECK_OK(dl_json_read_f64_or_nan(&d, o, "d"));
    CHECK(isnan(d));
    CHECK_OK(dl_json_read_u32(&u, o, "u", 9));
    CHECK_INT(9, u);
}

TEST_MAIN(a_sealed_object_opens, every_flipped_bit_is_found, every_cut_is_found,
          another_version_is_named, another_format_is_named, a_failed_writer_leaves_the_buffer,
          members_that_do_not_fit_are_named)
