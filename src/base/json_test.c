/* json_test.c - writing, reading, and refused texts. */
#include "base/json.h"

#include "check.h"

static dl_json_value parsed(const char *text)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, text, strlen(text)));
    return value;
}

/* ---- writing */

TEST(containers_get_their_commas)
{
    dl_buf buf;
    dl_json j;
    dl_buf_init(&buf, 1000);
    dl_json_init(&j, &buf);
    dl_json_object(&j, NULL);
    dl_json_i64(&j, "a", INT64_MIN);
    dl_json_array(&j, "b");
    dl_json_u64(&j, NULL, UINT64_MAX);
    dl_json_bool(&j, NULL, true);
    dl_json_object(&j, NULL);
    dl_json_end(&j);
    dl_json_array(&j, NULL);
    dl_json_end(&j);
    dl_json_end(&j);
    dl_json_str(&j, "c", NULL);
    dl_json_bool(&j, "d", false);
    dl_json_strn(&j, "e", "xyz", 2);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_STR("{\"a\":-9223372036854775808,\"b\":[18446744073709551615,true,{},[]],\"c\":null,"
              "\"d\":false,\"e\":\"xy\"}",
              dl_buf_str(&buf));
    dl_buf_deinit(&buf);
}

/* One outermost value written by `put`. */
#define CHECK_WRITTEN(expected, put)                                                               \
    do {                                                                                           \
        dl_buf buf;                                                                                \
        dl_json j;                                                                                 \
        dl_buf_init(&buf, 1000);                                                                   \
        dl_json_init(&j, &buf);                                                                    \
        put;                                                                                       \
        CHECK_OK(dl_json_done(&j));                                                                \
        CHECK_STR(expected, dl_buf_str(&buf));                                                     \
        dl_buf_deinit(&buf);                                                                       \
    } while (0)

TEST(numbers_are_short_and_exact)
{
    CHECK_WRITTEN("0.1", dl_json_f64(&j, NULL, 0.1));
    CHECK_WRITTEN("0.30000000000000004", dl_json_f64(&j, NULL, 0.1 + 0.2));
    CHECK_WRITTEN("0.69999998807907104", dl_json_f64(&j, NULL, (double)0.7f));
    CHECK_WRITTEN("null", dl_json_f64(&j, NULL, NAN));
    CHECK_WRITTEN("null", dl_json_f64(&j, NULL, -INFINITY));
    CHECK_WRITTEN("\"3f333333\"", dl_json_f32_bits(&j, NULL, 0.7f));
    CHECK_WRITTEN("\"00000000\"", dl_json_f32_bits(&j, NULL, 0));
}

TEST(strings_and_keys_are_escaped)
{
    CHECK_WRITTEN("\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\\u001f/\x7f\xC3\xA9\"",
                  dl_json_str(&j, NULL, "a\"b\\c\n\t\r\b\f\x01\x1f/\x7f\xC3\xA9"));
    CHECK_WRITTEN("\"a\\u0000b\"", dl_json_strn(&j, NULL, "a\0b", 3));
    CHECK_WRITTEN("{\"\\\"\":null}",
                  (dl_json_object(&j, NULL), dl_json_null(&j, "\""), dl_json_end(&j)));
}

TEST(the_first_error_sticks)
{
    dl_buf buf;
    dl_json j;
    dl_buf_init(&buf, 4);
    dl_json_init(&j, &buf);
    dl_json_array(&j, NULL);
    dl_json_str(&j, NULL, "too long");
    dl_json_i64(&j, NULL, 1);
    CHECK_STATUS(DILOCO_EPROTO, dl_json_done(&j));
    dl_buf_deinit(&buf);

    dl_buf_init(&buf, 100);
    dl_json_init(&j, &buf);
    dl_json_str(&j, NULL, "not UTF-8: \xFF");
    CHECK_STATUS(DILOCO_EINVAL, dl_json_done(&j));
    CHECK_CONTAINS("byte 11", diloco_error_text());
    dl_buf_deinit(&buf);
}

TEST(the_deepest_nesting_is_written_and_read)
{
    dl_buf buf;
    dl_json j;
    dl_json_value value;
    dl_buf_init(&buf, 1000);
    dl_json_init(&j, &buf);
    for (int d = 0; d < DL_JSON_DEPTH; d++)
        d % 2 ? dl_json_object(&j, NULL) : dl_json_array(&j, d ? "k" : NULL);
    for (int d = 0; d < DL_JSON_DEPTH; d++)
        dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_OK(dl_json_parse(&value, buf.data, buf.len));
    CHECK_INT(DL_JSON_ARRAY, value.type);
    dl_buf_deinit(&buf);
}

/* ---- reading */

TEST(every_type_is_recognised_as_the_outermost_value)
{
    CHECK_INT(DL_JSON_NULL, parsed(" null ").type);
    CHECK_INT(DL_JSON_BOOL, parsed("false").type);
    CHECK_INT(DL_JSON_NUMBER, parsed("\t-0.5e-3\r\n").type);
    CHECK_INT(DL_JSON_STRING, parsed("\"\"").type);
    CHECK_INT(DL_JSON_ARRAY, parsed("[ ]").type);
    CHECK_INT(DL_JSON_OBJECT, parsed("{ }").type);
    double x;
    dl_json_value v;
    CHECK_OK(dl_json_parse(&v, "123", 2)); /* ends where the text does, not after */
    CHECK_OK(dl_json_as_f64(&x, v));
    CHECK_NEAR(12, x, 0);
}

TEST(a_walk_meets_all_in_order)
{
    dl_json_value v = parsed("{ \"a\" : 1 , \"b\":[ [ \"]\" , \"\\\"\" ], {\"x\":{}} ,null] }");
    CHECK_INT(2, dl_json_count(v));
    dl_json_iter it = dl_json_each(v);
    CHECK(dl_json_next(&it) && dl_json_is(it.key, "a") && it.index == 0);
    CHECK(dl_json_next(&it) && dl_json_is(it.key, "b") && it.index == 1);
    CHECK_INT(DL_JSON_ARRAY, it.value.type);
    dl_json_type types[] = {DL_JSON_ARRAY, DL_JSON_OBJECT, DL_JSON_NULL};
    for (dl_json_iter e = dl_json_each(it.value); dl_json_next(&e);) {
        CHECK_INT(types[e.index], e.value.type);
        CHECK_INT(DL_JSON_MISSING, e.key.type);
    }
    CHECK_INT(3, dl_json_count(it.value));
    CHECK(!dl_json_next(&it) && !dl_json_next(&it));
    CHECK_INT(0, dl_json_count(parsed("\"[1]\"")));
    CHECK_INT(0, dl_json_count((dl_json_value){0}));
}

TEST(members_are_found_also_by_escaped_keys)
{
    dl_json_value v = parsed("{\"a\":{\"b\":1},\"\\u0062\":2,\"\\ud83d\\ude00\":3,\"ab\":4}");
    uint64_t u;
    CHECK_OK(dl_json_read_u64(&u, v, "b", 9));
    CHECK_INT(2, u);
    CHECK_OK(dl_json_read_u64(&u, v, "\xF0\x9F\x98\x80", 9));
    CHECK_INT(3, u);
    CHECK_INT(DL_JSON_MISSING, dl_json_get(v, "c").type);
    CHECK_INT(DL_JSON_MISSING, dl_json_get(v, "").type);
    CHECK_INT(DL_JSON_MISSING, dl_json_get(parsed("[1]"), "a").type);
    CHECK(!dl_json_is(parsed("\"a\\u0000b\""), "a"));
    CHECK(!dl_json_is(parsed("1"), "1"));
}

TEST(an_index_finds_what_a_walk_finds)
{
    static const char *const keys[] = {"", "a", "b", "\\", "c\"d", "e", "ab", "none"};
    const dl_json_value o = parsed("{\"a\": 1, \"b\":[{\"e\":2}], \"c\\\"d\":\"x\", "
                                   "\"\\u0065\": 3, \"\\\\\": null, \"\": {}}");
    dl_json_index index;
    const dl_json_value with = dl_json_indexed(&index, o);
    CHECK(with.index == &index);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const dl_json_value a = dl_json_get(o, keys[i]), b = dl_json_get(with, keys[i]);
        CHECK(a.at == b.at && a.end == b.end && a.type == b.type);
        CHECK((a.type == DL_JSON_MISSING) == (i >= 6));
    }
    CHECK(dl_json_indexed(&index, dl_json_get(o, "b")).index == NULL); /* an array */
    CHECK_INT(2, (dl_json_get(parsed("{\"a\\u0000\":1,\"a\":2}"), "a").at[0] - '0'));
}

/* A short string is walked, and a longer one searched. */
TEST(a_string_of_any_length_ends_at_its_quote)
{
    for (size_t n = 0; n < 40; n++)
        for (size_t escaped = 0; escaped <= n; escaped++) {
            char text[64] = "{\"";
            size_t len = 2;
            for (size_t i = 0; i < n; i++) {
                if (i == escaped) text[len++] = '\\';
                text[len++] = i == escaped ? '"' : 'a';
            }
            len += (size_t)snprintf(text + len, sizeof text - len, "\":7}");
            dl_json_iter it = dl_json_each(parsed(text));
            CHECK(dl_json_next(&it) && it.key.end == text + len - 3 && *it.value.at == '7');
            CHECK(!dl_json_next(&it));
        }
}

TEST(an_object_of_more_members_than_an_index_has_is_walked)
{
    dl_buf buf;
    dl_json j;
    dl_json_index index;
    dl_buf_init(&buf, 10000);
    dl_json_init(&j, &buf);
    dl_json_object(&j, NULL);
    for (int i = 0; i <= DL_JSON_INDEX_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        dl_json_i64(&j, key, i);
    }
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    const dl_json_value o = dl_json_indexed(&index, parsed(dl_buf_str(&buf)));
    CHECK(o.index == NULL);
    CHECK(dl_json_get(o, "k48").type == DL_JSON_NUMBER);
    dl_buf_deinit(&buf);
}

TEST(strings_are_decoded)
{
    char text[32] = "as before";
    CHECK_OK(dl_json_as_str(text, sizeof text,
                            parsed("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\xC3\xA9\"")));
    CHECK_STR("\"\\/\b\f\n\r\t\xC3\xA9\xF0\x9F\x98\x80\xC3\xA9", text);
    CHECK_OK(dl_json_as_str(text, 4, parsed("\"abc\"")));
    CHECK_STR("abc", text);
    CHECK_STATUS(DILOCO_EPROTO, dl_json_as_str(text, 4, parsed("\"abcd\"")));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_as_str(text, 4, parsed("\"a\\u0000\"")));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_as_str(text, 4, parsed("1")));
    CHECK_STR("abc", text);
}

TEST(typed_reading_accepts_values_that_fit)
{
    dl_json_value v = parsed("{\"i\":-5,\"u\":18446744073709551615,\"x\":2.5e-1,\"f\":\"3f333333\","
                             "\"t\":true,\"n\":false,\"s\":\"text\"}");
    int64_t i;
    uint64_t u;
    double x;
    float f;
    bool t, n;
    char s[5];
    CHECK_OK(dl_json_read_i64(&i, v, "i", -5, 0));
    CHECK_OK(dl_json_read_u64(&u, v, "u", UINT64_MAX));
    CHECK_OK(dl_json_read_f64(&x, v, "x"));
    CHECK_OK(dl_json_read_f32_bits(&f, v, "f"));
    CHECK_OK(dl_json_read_bool(&t, v, "t"));
    CHECK_OK(dl_json_read_bool(&n, v, "n"));
    CHECK_OK(dl_json_read_str(s, sizeof s, v, "s"));
    CHECK(i == -5 && u == UINT64_MAX && x == 0.25 && f == 0.7f && t && !n);
    CHECK_STR("text", s);
}

/* The error of `call` names the key and says `part`. */
#define CHECK_REFUSED(part, key, call)                                                             \
    do {                                                                                           \
        CHECK_STATUS(DILOCO_EPROTO, call);                                                         \
        CHECK_CONTAINS("\"" key "\"", diloco_error_text());                                        \
        CHECK_CONTAINS(part, diloco_error_text());                                                 \
    } while (0)

TEST(typed_reading_refuses_and_names_the_key)
{
    dl_json_value v = parsed("{\"i\":7,\"x\":1.5,\"big\":1e999,\"s\":\"text\",\"f\":\"3F333333\","
                             "\"null\":null}");
    int64_t i = 1;
    uint64_t u = 1;
    double x = 1;
    float f = 1;
    bool b = true;
    char s[4] = "old";
    CHECK_REFUSED("missing", "no", dl_json_read_i64(&i, v, "no", 0, 9));
    CHECK_REFUSED("from 0 to 6", "i", dl_json_read_i64(&i, v, "i", 0, 6));
    CHECK_REFUSED("from 8", "i", dl_json_read_i64(&i, v, "i", 8, 9));
    CHECK_REFUSED("1.5", "x", dl_json_read_i64(&i, v, "x", 0, 9));
    CHECK_REFUSED("a string", "s", dl_json_read_u64(&u, v, "s", 9));
    CHECK_REFUSED("to 6", "i", dl_json_read_u64(&u, v, "i", 6));
    CHECK_REFUSED("too large", "big", dl_json_read_f64(&x, v, "big"));
    CHECK_REFUSED("null", "null", dl_json_read_f64(&x, v, "null"));
    CHECK_REFUSED("hex", "f", dl_json_read_f32_bits(&f, v, "f"));
    CHECK_REFUSED("hex", "s", dl_json_read_f32_bits(&f, v, "s"));
    CHECK_REFUSED("a number", "i", dl_json_read_bool(&b, v, "i"));
    CHECK_REFUSED("4 bytes", "s", dl_json_read_str(s, sizeof s, v, "s"));
    CHECK_REFUSED("missing", "i", dl_json_read_i64(&i, (dl_json_value){0}, "i", 0, 9));
    CHECK(i == 1 && u == 1 && x == 1 && f == 1 && b);
    CHECK_STR("old", s);
}

static void check_bad(const char *text, size_t len, const char *part)
{
    dl_json_value v;
    char *copy = malloc(len ? len : 1); /* so that a sanitizer sees a step too far */
    CHECK(copy);
    memcpy(copy, text, len);
    diloco_status status = dl_json_parse(&v, copy, len);
    free(copy);
    if (status != DILOCO_EPROTO) CHECK_FAIL("accepted: %s", text);
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_INT(DL_JSON_MISSING, v.type);
}

TEST(text_that_is_not_json_is_refused)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"", "ends"},
        {"  ", "ends"},
        {"nul", "value"},
        {"nulll", "follows"},
        {"1 2", "follows"},
        {"01", "follows"},
        {"+1", "value"},
        {"-", "value"},
        {"1.", "value"},
        {".5", "value"},
        {"1e", "value"},
        {"NaN", "value"},
        {"[1,]", "value"},
        {"[1 2]", ", or ]"},
        {"[", "ends"},
        {"[1", ", or ]"},
        {"{\"a\"}", ":"},
        {"{\"a\":1,}", "key"},
        {"{1:2}", "key"},
        {"{", "key"},
        {"{\"a\":1", ", or }"},
        {"{\"a\":", "ends"},
        {"\"a", "ends"},
        {"\"\\", "ends"},
        {"\"\\x\"", "escape"},
        {"\"\\u12g4\"", "hex"},
        {"\"\\u12", "hex"},
        {"\"a\nb\"", "control"},
        {"\"\\ud800\"", "sur"},
        {"\"\\udc00\"", "sur"},
        {"\"\xFF\"", "UTF"},
        {"\"\xC3", "UTF"},
        {"// x\n1", "value"},
        {"\xEF\xBB\xBF{}", "val"},
        {"\"\\ud800\\u0041\"", "surrogate"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(bad[i].text, strlen(bad[i].text), bad[i].part);
    check_bad("[1,\0002]", 6, "value");
}

TEST(an_error_has_its_line_and_column)
{
    check_bad("{\"a\": 1,\n  \"b\": tru }", 21, "line 2, column 8");
}

TEST(every_truncation_of_a_good_text_is_refused)
{
    const char *text = "{\"a\":[1,2.5e3,{\"\\u00e9\":null}],\"\xC3\xA9\":\"\\ud83d\\ude00\"}";
    for (size_t len = 0; len < strlen(text); len++)
        check_bad(text, len, "line 1");
    parsed(text);
}

TEST(nesting_is_limited)
{
    char deep[2 * (DL_JSON_DEPTH + 1) + 1] = {0};
    memset(deep, '[', DL_JSON_DEPTH + 1);
    memset(deep + DL_JSON_DEPTH + 1, ']', DL_JSON_DEPTH + 1);
    check_bad(deep, strlen(deep), "deep");
}

TEST(a_key_twice_is_refused_also_when_escaped)
{
    check_bad("{\"a\":1,\"b\":2,\"a\":3}", 19, "column 14: this key");
    check_bad("{\"a\":1,\"\\u0061\":2}", 18, "this key");
    check_bad("[{\"x\":{\"\":1,\"\":2}}]", 19, "this key");
    parsed("{\"a\":{\"a\":{\"a\":1}},\"A\":[{\"a\":1},{\"a\":1}]}");
}

/* An object of n members; `last` is the last one's key. */
static void write_members(dl_buf *buf, size_t n, const char *last)
{
    CHECK_OK(dl_buf_addf(buf, "{"));
    for (size_t i = 0; i + 1 < n; i++)
        CHECK_OK(dl_buf_addf(buf, "\"key %zu\":%zu,", i, i));
    CHECK_OK(dl_buf_addf(buf, "\"%s\":0}", last));
}

TEST(many_keys_are_distinguished_and_too_many_refused)
{
    dl_buf buf;
    dl_json_value v;
    dl_buf_init(&buf, 16 << 20);
    write_members(&buf, 5000, "last");
    CHECK_OK(dl_json_parse(&v, buf.data, buf.len));
    CHECK_INT(5000, dl_json_count(v));
    dl_buf_clear(&buf);
    write_members(&buf, 5000, "key 17");
    check_bad((const char *)buf.data, buf.len, "this key");
    dl_buf_clear(&buf);
    write_members(&buf, DL_JSON_MEMBERS, "last");
    CHECK_OK(dl_json_parse(&v, buf.data, buf.len));
    dl_buf_clear(&buf);
    write_members(&buf, DL_JSON_MEMBERS + 1, "last");
    check_bad((const char *)buf.data, buf.len, "too many members");
    dl_buf_deinit(&buf);
}

TEST(objects_nested_to_be_slow_are_refused)
{
    dl_buf buf;
    dl_buf_init(&buf, 32 << 20);
    for (int level = 0; level < 30; level++) {
        CHECK_OK(dl_buf_addf(&buf, "{"));
        for (size_t i = 0; i < 48000; i++)
            CHECK_OK(dl_buf_addf(&buf, "\"%zu\":0,", i));
        CHECK_OK(dl_buf_addf(&buf, "\"in\":"));
    }
    CHECK_OK(dl_buf_addf(&buf, "0}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}"));
    check_bad((const char *)buf.data, buf.len, "nested objects");
    dl_buf_deinit(&buf);
}

/* FNV-1a as json_parse.c has it, of five letters of 64. */
static uint32_t hash_of(uint32_t number, char key[6])
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    uint32_t hash = 2166136261u;
    for (int d = 0; d < 5; d++) {
        key[d] = letters[number >> 6 * (4 - d) & 63];
        hash = (hash ^ (unsigned char)key[d]) * 16777619u;
    }
    key[5] = 0;
    return hash ^ hash >> 15;
}

TEST(keys_made_to_collide_are_refused)
{
    enum { N_KEYS = 2500, N_SLOTS = 4 * N_KEYS };
    dl_buf buf;
    char key[6];
    dl_buf_init(&buf, 1 << 20);
    CHECK_OK(dl_buf_addf(&buf, "{\"first\":0"));
    size_t n = 1;
    for (uint32_t i = 0; n < N_KEYS; i++) {
        if (hash_of(i, key) % N_SLOTS != 7) continue;
        CHECK_OK(dl_buf_addf(&buf, ",\"%s\":0", key));
        n++;
    }
    CHECK_OK(dl_buf_addf(&buf, "}"));
    check_bad((const char *)buf.data, buf.len, "too many members");
    dl_buf_deinit(&buf);
}

TEST(a_string_ends_at_the_quote_after_an_even_number_of_backslashes)
{
    static const char text[] = "{\"a\\\\\":\"\\\\\",\"b\":\"\\\"\",\"c\":[\"\\\\\\\"]\",\"\"],\"\":"
                               "\"\\\\\\\\\",\"d\":7}";
    dl_json_value v;
    uint64_t d = 0;
    CHECK_OK(dl_json_parse(&v, text, sizeof text - 1));
    CHECK_INT(5, dl_json_count(v));
    CHECK(dl_json_is(dl_json_get(v, "a\\"), "\\"));
    CHECK(dl_json_is(dl_json_get(v, "b"), "\""));
    CHECK_INT(2, dl_json_count(dl_json_get(v, "c")));
    CHECK(dl_json_is(dl_json_get(v, ""), "\\\\"));
    CHECK_OK(dl_json_read_u64(&d, v, "d", 9));
    CHECK_INT(7, d);
}

TEST_MAIN(an_index_finds_what_a_walk_finds, a_string_of_any_length_ends_at_its_quote,
          an_object_of_more_members_than_an_index_has_is_walked,
          a_string_ends_at_the_quote_after_an_even_number_of_backslashes,
          containers_get_their_commas, numbers_are_short_and_exact, strings_and_keys_are_escaped,
          the_first_error_sticks, the_deepest_nesting_is_written_and_read,
          every_type_is_recognised_as_the_outermost_value, a_walk_meets_all_in_order,
          members_are_found_also_by_escaped_keys, strings_are_decoded,
          typed_reading_accepts_values_that_fit, typed_reading_refuses_and_names_the_key,
          text_that_is_not_json_is_refused, an_error_has_its_line_and_column,
          every_truncation_of_a_good_text_is_refused, nesting_is_limited,
          a_key_twice_is_refused_also_when_escaped,
          many_keys_are_distinguished_and_too_many_refused, objects_nested_to_be_slow_are_refused,
          keys_made_to_collide_are_refused)
