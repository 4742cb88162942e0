/* safetensors_test.c - a written file is read back; a wrong one is refused.
 *
 * Blocks "from elsewhere" are put together by hand: header text, then data. */
#include "base/safetensors.h"

#include "check.h"
#include "scratch.h"

#include <fcntl.h>

static const float weights[6] = {1, -2, 3.5f, 0, -0.0f, 6};
static const int64_t counts[1] = {-7};
static const uint8_t flags[3] = {1, 0, 1};

static void example(dl_st_tensor tensors[4])
{
    tensors[0] =
        (dl_st_tensor){.name = "layer.0/w\xC3\xA9", .dtype = "F32", .n_dims = 2, .shape = {2, 3}};
    tensors[1] = (dl_st_tensor){.name = "count", .dtype = "I64"};
    tensors[2] = (dl_st_tensor){.name = "none", .dtype = "F32", .n_dims = 2, .shape = {0, 5}};
    tensors[3] = (dl_st_tensor){.name = "a \"flag\"", .dtype = "BOOL", .n_dims = 1, .shape = {3}};
}

static const dl_st_meta example_meta[] = {{"format", "diloco"}, {"note", "two\nlines"}};

static void check_example(const dl_st *st)
{
    char text[32];
    CHECK_INT(4, st->n);
    CHECK_INT(35, st->data_len);
    const dl_st_tensor *w = dl_st_find(st, "layer.0/w\xC3\xA9"), *c = dl_st_find(st, "count"),
                       *f = dl_st_find(st, "a \"flag\""), *none = dl_st_find(st, "none");
    CHECK(w && c && f && none && !dl_st_find(st, "nothing") && !dl_st_find(st, "__metadata__"));
    CHECK_STR("F32", w->dtype);
    CHECK(w->n_dims == 2 && w->shape[0] == 2 && w->shape[1] == 3);
    CHECK(c->n_dims == 0 && none->begin == none->end);
    CHECK_INT(sizeof weights, w->end - w->begin);
    CHECK_BYTES(weights, st->data + w->begin, sizeof weights);
    CHECK_BYTES(counts, st->data + c->begin, sizeof counts);
    CHECK_BYTES(flags, st->data + f->begin, sizeof flags);
    CHECK_OK(dl_json_read_str(text, sizeof text, st->metadata, "note"));
    CHECK_STR("two\nlines", text);
}

TEST(a_header_and_its_data_in_one_block_are_read_back)
{
    dl_buf block;
    dl_st_tensor tensors[4];
    dl_st st;
    dl_buf_init(&block, 10000);
    example(tensors);
    CHECK_OK(dl_st_header(&block, tensors, 4, example_meta, 2));
    CHECK_INT(0, block.len % 64);
    CHECK_INT(32, tensors[3].begin);
    CHECK_OK(dl_buf_add(&block, weights, sizeof weights));
    CHECK_OK(dl_buf_add(&block, counts, sizeof counts));
    CHECK_OK(dl_buf_add(&block, flags, sizeof flags));
    CHECK_OK(dl_st_open(&st, block.data, block.len));
    check_example(&st);
    dl_st_close(&st);
    CHECK(!st.tensors);
    dl_buf_deinit(&block);
}

TEST(a_file_is_written_whole_and_read_back)
{
    const char *path = scratch_path("a.safetensors");
    dl_st_tensor tensors[4];
    dl_span spans[5] = {{0}, {weights, 24}, {counts, 8}, {NULL, 0}, {flags, 3}};
    dl_buf header;
    dl_map map;
    dl_st st;
    dl_buf_init(&header, 10000);
    example(tensors);
    for (int again = 0; again < 2; again++) /* the header is cleared each time */
        CHECK_OK(dl_st_write(path, &header, spans, tensors, 4, example_meta, 2));
    CHECK_OK(dl_map_open(&map, path));
    CHECK_OK(dl_st_open(&st, map.data, map.len));
    check_example(&st);
    dl_st_close(&st);
    dl_map_close(&map);

    spans[2].len = 7;
    CHECK_STATUS(DILOCO_EINVAL, dl_st_write(path, &header, spans, tensors, 4, NULL, 0));
    CHECK_CONTAINS("count: 7 bytes", diloco_error_text());
    dl_buf_deinit(&header);
}

TEST(no_tensors_are_a_file_too)
{
    dl_buf block;
    dl_st st;
    dl_buf_init(&block, 1000);
    CHECK_OK(dl_st_header(&block, NULL, 0, NULL, 0));
    CHECK_OK(dl_st_open(&st, block.data, block.len));
    CHECK(st.n == 0 && st.data_len == 0 && st.metadata.type == DL_JSON_MISSING);
    dl_st_close(&st);
    dl_buf_deinit(&block);
}

static void check_unwritable(dl_st_tensor t, diloco_status status, const char *part)
{
    dl_st_tensor two[2] = {{.name = "x", .dtype = "F32"}, t};
    dl_buf out;
    dl_buf_init(&out, 500);
    CHECK_OK(dl_buf_add(&out, "before", 6));
    CHECK_STATUS(status, dl_st_header(&out, two, 2, NULL, 0));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_STR("before", dl_buf_str(&out));
    dl_buf_deinit(&out);
}

TEST(tensors_that_cannot_be_read_back_are_not_written)
{
    char long_name[600];
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    check_unwritable((dl_st_tensor){.name = "a", .dtype = "F31"}, DILOCO_EINVAL, "F31");
    check_unwritable((dl_st_tensor){.name = "a", .dtype = "F32", .n_dims = 9}, DILOCO_EINVAL,
                     "9 dim");
    check_unwritable((dl_st_tensor){.name = "a", .dtype = "F32", .n_dims = -1}, DILOCO_EINVAL,
                     "dim");
    check_unwritable(
        (dl_st_tensor){.name = "a", .dtype = "F32", .n_dims = 1, .shape = {SIZE_MAX / 2}},
        DILOCO_EINVAL, "overflow");
    check_unwritable((dl_st_tensor){.name = "a", .dtype = "U8", .n_dims = 1, .shape = {SIZE_MAX}},
                     DILOCO_EINVAL, "overflow");
    check_unwritable((dl_st_tensor){.name = "__metadata__", .dtype = "F32"}, DILOCO_EINVAL,
                     "called");
    check_unwritable((dl_st_tensor){.name = "x", .dtype = "F32"}, DILOCO_EINVAL, "this key");
    check_unwritable((dl_st_tensor){.name = "\xFF", .dtype = "F32"}, DILOCO_EINVAL, "UTF-8");
    check_unwritable((dl_st_tensor){.name = long_name, .dtype = "F32"}, DILOCO_EPROTO, "500");
}

/* ---- blocks from elsewhere */

/* The header's text after its length, then n_data zero bytes; free() it. */
static unsigned char *block_of(const char *header, size_t n_data, size_t *len)
{
    size_t n = strlen(header);
    unsigned char *b = calloc(8 + n + n_data, 1);
    CHECK(b);
    b[0] = (unsigned char)n;
    b[1] = (unsigned char)(n >> 8);
    memcpy(b + 8, header, n);
    *len = 8 + n + n_data;
    return b;
}

static void check_refused(const char *header, size_t n_data, const char *part)
{
    dl_st st;
    size_t len;
    unsigned char *block = block_of(header, n_data, &len);
    if (dl_st_open(&st, block, len) != DILOCO_EPROTO) CHECK_FAIL("accepted: %s", header);
    CHECK_CONTAINS("safetensors: ", diloco_error_text());
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(!st.tensors && !st.arena.base);
    free(block);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

TEST(other_types_in_any_order_are_listed_by_place)
{
    dl_st st;
    size_t len;
    unsigned char *block =
        block_of("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[3,7],\"more\":[1]},"
                 "\"a\":{\"data_offsets\":[0,3],\"shape\":[3,1,1,1,1,1,1,1],\"dtype\":\"U8\"},"
                 "\"e\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[3,3]}}   ",
                 7, &len);
    CHECK_OK(dl_st_open(&st, block, len));
    CHECK_INT(3, st.n);
    CHECK_STR("a", st.tensors[0].name);
    CHECK_STR("e", st.tensors[1].name);
    CHECK_STR("b", st.tensors[2].name);
    CHECK_STR("BF16", st.tensors[2].dtype);
    dl_st_close(&st);
    free(block);
}

TEST(every_type_has_its_size)
{
    CHECK_INT(4, dl_st_dtype_size("F32"));
    CHECK_INT(8, dl_st_dtype_size("I64"));
    CHECK_INT(1, dl_st_dtype_size("BOOL"));
    CHECK_INT(2, dl_st_dtype_size("BF16"));
    CHECK_INT(2, dl_st_dtype_size("F16"));
    CHECK_INT(0, dl_st_dtype_size("f32"));
    CHECK_INT(0, dl_st_dtype_size(""));
}

TEST(a_length_that_does_not_fit_is_refused)
{
    dl_st st;
    unsigned char b[16] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    for (size_t len = 0; len < 8; len++)
        CHECK_STATUS(DILOCO_EPROTO, dl_st_open(&st, len ? b : NULL, len));
    CHECK_CONTAINS("cannot hold a header", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, dl_st_open(&st, b, sizeof b));
    CHECK_CONTAINS("9 bytes does not fit", diloco_error_text());
    b[0] = 0;
    CHECK_STATUS(DILOCO_EPROTO, dl_st_open(&st, b, sizeof b));
    CHECK_CONTAINS("begin with {", diloco_error_text());
    memset(b, 0xFF, 8);
    CHECK_STATUS(DILOCO_EPROTO, dl_st_open(&st, b, sizeof b));

    dl_map big; /* a file that is long enough, but whose header is longer than may be */
    const char *path = scratch_path("long_header");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    size_t n = DL_ST_HEADER_MAX + 1;
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(n >> 8 * i);
    CHECK_OK(dl_fd_write(fd, &(dl_span){b, 8}, 1, path));
    CHECK_INT(0, ftruncate(fd, DL_ST_HEADER_MAX + 1000)); /* a hole: takes no room */
    close(fd);
    CHECK_OK(dl_map_open(&big, path));
    CHECK_STATUS(DILOCO_EPROTO, dl_st_open(&st, big.data, big.len));
    CHECK_CONTAINS("100000001", diloco_error_text());
    dl_map_close(&big);
}

TEST(a_header_that_is_not_as_it_should_be_is_refused)
{
    check_refused("[]", 0, "begin with {");
    check_refused(" {}", 0, "begin with {");
    check_refused("{\"t\":1}", 0, "tensor t: it is not an object");
    check_refused("{\"t\":", 0, "JSON");
    check_refused("{\"t\":{}}", 0, "\"dtype\" is missing");
    check_refused("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__");
    check_refused("{\"__metadata__\":[]}", 0, "__metadata__");
    check_refused("{\"a\\u0000\":{}}", 0, "zero byte");
    check_refused(ONE("\"F31\"", "[]", "[0,4]"), 4, "F31");
    check_refused(ONE("\"a name that is far too long\"", "[]", "[0,4]"), 4, "dtype");
    check_refused(ONE("4", "[]", "[0,4]"), 4, "dtype");
    check_refused(ONE("\"F32\"", "4", "[0,4]"), 4, "shape");
    check_refused(ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "shape");
    check_refused(ONE("\"F32\"", "[-1]", "[0,4]"), 4, "-1");
    check_refused(ONE("\"F32\"", "[1.0]", "[0,4]"), 4, "1.0");
    check_refused(ONE("\"F32\"", "[]", "[0]"), 4, "data_offsets");
    check_refused(ONE("\"F32\"", "[]", "[0,4,8]"), 4, "data_offsets");
    check_refused(ONE("\"F32\"", "[]", "[4,0]"), 4, "data_offsets");
    check_refused(ONE("\"F32\"", "[2]", "[0,4]"), 4, "shape");
    check_refused(ONE("\"F32\"", "[4611686018427387905,4]", "[0,16]"), 16, "shape");
}

#define TWO(x, y)                                                                                  \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" x "},"                              \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" y "}}"

TEST(holes_overlaps_and_missing_data_are_refused)
{
    check_refused(TWO("[0,2]", "[3,5]"), 5, "begins at 3");
    check_refused(TWO("[0,2]", "[1,3]"), 3, "begins at 1");
    check_refused(TWO("[0,2]", "[0,2]"), 2, "begins at 0");
    check_refused(TWO("[1,3]", "[3,5]"), 5, "begins at 1");
    check_refused(TWO("[0,2]", "[2,4]"), 5, "end at 4 of 5");
    check_refused(TWO("[0,2]", "[2,4]"), 3, "end at 4 of 3");
    check_refused(TWO("[0,2]", "[18446744073709551613,18446744073709551615]"), 4, "begins at");
}

TEST_MAIN(a_header_and_its_data_in_one_block_are_read_back, a_file_is_written_whole_and_read_back,
          no_tensors_are_a_file_too, tensors_that_cannot_be_read_back_are_not_written,
          other_types_in_any_order_are_listed_by_place, every_type_has_its_size,
          a_length_that_does_not_fit_is_refused, a_header_that_is_not_as_it_should_be_is_refused,
          holes_overlaps_and_missing_data_are_refused)
