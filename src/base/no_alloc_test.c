/* no_alloc_test.c - calls whose headers promise to take nothing from the heap, because a
 * sync and a training step make them. */
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/thread.h"

#include "check.h"
#include "count_alloc.h"
#include "scratch.h"

/* Run `work` once to reserve what it grows, then count during a second time. */
static void check_no_alloc(void (*work)(void *context), void *context)
{
    if (!count_alloc_works()) skip();
    work(context);
    size_t before = count_alloc();
    work(context);
    CHECK_INT(before, count_alloc());
}

static void write_file(void *path)
{
    dl_span spans[] = {{"two ", 4}, {"spans", 5}};
    CHECK_OK(dl_file_write(path, spans, 2));
}

TEST(a_file_is_written_without_allocating)
{
    check_no_alloc(write_file, scratch_path("file"));
}

static void write_and_read_json(void *context)
{
    dl_buf *buf = context;
    dl_json j;
    dl_json_value value;
    double x;
    char text[16];
    dl_buf_clear(buf);
    dl_json_init(&j, buf);
    dl_json_object(&j, NULL);
    dl_json_f64(&j, "x", 0.1 + 0.2);
    dl_json_str(&j, "s", "\"quoted\"\n");
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_OK(dl_json_parse(&value, buf->data, buf->len));
    CHECK_OK(dl_json_read_f64(&x, value, "x"));
    CHECK_OK(dl_json_read_str(text, sizeof text, value, "s"));
    CHECK_STATUS(DILOCO_EPROTO, dl_json_read_f64(&x, value, "s"));
}

TEST(json_is_written_and_read_without_allocating)
{
    dl_buf buf;
    dl_buf_init(&buf, 1000);
    check_no_alloc(write_and_read_json, &buf);
    dl_buf_deinit(&buf);
}

static void write_safetensors(void *context)
{
    dl_buf *header = context;
    dl_st_tensor tensor = {.name = "x", .dtype = "F32", .n_dims = 1, .shape = {2}};
    dl_st_meta meta = {"key", "value"};
    dl_buf_clear(header);
    CHECK_OK(dl_st_header(header, &tensor, 1, &meta, 1));
}

TEST(a_safetensors_header_is_written_without_allocating)
{
    dl_buf header;
    dl_buf_init(&header, 1000);
    check_no_alloc(write_safetensors, &header);
    dl_buf_deinit(&header);
}

static void hash_in_pieces(void *bytes)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    for (int i = 0; i < 3; i++)
        dl_digest_add(&stream, bytes, DL_LEAF_BYTES / 2);
    dl_digest_end(&stream);
}

TEST(a_digest_is_taken_without_allocating)
{
    static char bytes[DL_LEAF_BYTES / 2];
    check_no_alloc(hash_in_pieces, bytes);
}

static void count_part(void *context, int part, int n_parts)
{
    int *parts = context;
    parts[part] += n_parts;
}

static void run_pool(void *pool)
{
    int parts[3] = {0};
    dl_pool_run(pool, count_part, parts);
    CHECK_INT(3, parts[2]);
}

TEST(a_pool_runs_without_allocating)
{
    dl_pool *pool;
    CHECK_OK(dl_pool_create(&pool, 3));
    check_no_alloc(run_pool, pool);
    dl_pool_destroy(pool);
}

TEST_MAIN(a_file_is_written_without_allocating, json_is_written_and_read_without_allocating,
          a_safetensors_header_is_written_without_allocating, a_digest_is_taken_without_allocating,
          a_pool_runs_without_allocating)
