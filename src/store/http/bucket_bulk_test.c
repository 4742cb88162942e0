/* bucket_bulk_test.c - pointers by their bytes, and uploads in parts against a server that
 * follows a script. */
#include "store/http/bucket_bulk.h"

#include "check.h"
#include "http_script.h"
#include "store/store.h"

/* ---- the format of docs/formats.md */

TEST(a_pointer_has_its_fields_where_the_documentation_says)
{
    dl_pointer pointer = {.len = 0x0102030405060708, .id = {0xaa, 0xbb}}, back;
    unsigned char bytes[DL_POINTER_BYTES];
    pointer.digest = dl_hash_bytes("x", 1);
    dl_pointer_write(bytes, &pointer);
    CHECK_BYTES("DLBULKP1\1\0\0\0\200\0\0\0\10\7\6\5\4\3\2\1", bytes, 24);
    CHECK_BYTES(pointer.digest.bytes, bytes + 24, 16);
    CHECK_BYTES("\252\273\0", bytes + 40, 3);
    dl_hash hash = dl_hash_bytes(bytes, 112);
    CHECK_BYTES(hash.bytes, bytes + 112, 16);
    CHECK(dl_pointer_read(&back, bytes, sizeof bytes));
    CHECK(back.len == pointer.len && dl_hash_equal(back.digest, pointer.digest));
    CHECK_BYTES(pointer.id, back.id, DL_POINTER_ID);
}

TEST(bytes_that_differ_in_one_byte_are_no_pointer)
{
    dl_pointer pointer = {.len = 5}, back;
    unsigned char bytes[DL_POINTER_BYTES];
    dl_pointer_write(bytes, &pointer);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 0x10;
        CHECK(!dl_pointer_read(&back, bytes, sizeof bytes));
        bytes[i] ^= 0x10;
    }
    CHECK(!dl_pointer_read(&back, bytes, sizeof bytes - 1));
    for (size_t i = 56; i < 112; i += 55) { /* not zero, though the hash fits: a later version's */
        bytes[i] = 1;
        dl_hash hash = dl_hash_bytes(bytes, 112);
        memcpy(bytes + 112, hash.bytes, 16);
        CHECK(!dl_pointer_read(&back, bytes, sizeof bytes));
        bytes[i] = 0;
    }
}

/* ---- uploads */

#define NONE    "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n"
#define OK      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define PART    "HTTP/1.1 200 OK\r\nETag: \"part\"\r\nContent-Length: 0\r\n\r\n"
#define BODY(n) "HTTP/1.1 200 OK\r\nContent-Length: " n "\r\n\r\n"
#define OPENED                                                                                     \
    BODY("118")                                                                                    \
    "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/a</Key><Size>1</Size>"     \
    "</Contents></ListBucketResult>"
#define BEGUN                                                                                      \
    BODY("89")                                                                                     \
    "<InitiateMultipartUploadResult><UploadId>an/id</UploadId></InitiateMultipartUploadResult>"
#define COMPLETE BODY("32") "<CompleteMultipartUploadResult/>"

static http_script server;
static unsigned char *big; /* 2 parts of a MiB and a bit */
enum { BIG = (2 << 20) + 5 };

static diloco_status create_big(const char *const *responses, size_t n)
{
    char url[256];
    dl_store *store;
    dl_span span = {big, BIG};
    script_start(&server, responses, n);
    snprintf(url, sizeof url, "s3://bucket/p?part_mib=1&parallel=1&endpoint=http://127.0.0.1:%d",
             server.port);
    CHECK_OK(dl_store_open(&store, url, false));
    diloco_status status = dl_store_create(store, "c/1/r0", &span, 1, NULL, DL_NEVER);
    dl_store_close(store);
    return status;
}

static int set_up(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "very/secret", 1);
    unsetenv("AWS_SESSION_TOKEN");
    big = calloc(1, BIG);
    return big ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    script_stop(&server);
    free(big);
    return 0;
}

TEST(parts_are_uploaded_first_and_a_pointer_publishes_them)
{
    static const char *const responses[] = {OPENED, NONE, BEGUN, PART, PART, PART, COMPLETE, OK};
    CHECK_OK(create_big(responses, 8));
    CHECK_INT(8, server.n_requests);
    CHECK_CONTAINS("GET /bucket/p/c/1/r0 ", server.requests[1]); /* free? */
    CHECK_CONTAINS("POST /bucket/p/.b/c/1/r0/", server.requests[2]);
    CHECK_CONTAINS("?uploads= ", server.requests[2]);
    CHECK_CONTAINS("?partNumber=1&uploadId=an%2Fid ", server.requests[3]);
    CHECK_CONTAINS("Content-Length: 1048576\r\n", server.requests[3]);
    CHECK_CONTAINS("?partNumber=3&uploadId=an%2Fid ", server.requests[5]);
    CHECK_CONTAINS("Content-Length: 5\r\n", server.requests[5]);
    CHECK_CONTAINS("<Part><PartNumber>3</PartNumber><ETag>\"part\"</ETag></Part>",
                   server.requests[6]);
    CHECK(!strstr(server.requests[6], "If-None-Match")); /* completing publishes nothing */
    CHECK_CONTAINS("PUT /bucket/p/c/1/r0 ", server.requests[7]);
    CHECK_CONTAINS("\r\nIf-None-Match: *\r\n", server.requests[7]);
    CHECK_CONTAINS("Content-Length: 128\r\n", server.requests[7]);
}

TEST(parts_that_did_not_arrive_before_credentials_expired_are_sent_with_new_ones)
{
    static const char *const responses[] = {
        OPENED,
        NONE,
        BEGUN,
        PART,
        "HTTP/1.1 400 Bad\r\nContent-Length: 40\r\n\r\n<Error><Code>ExpiredToken</Code></Error>",
        PART,
        PART,
        COMPLETE,
        OK};
    CHECK_OK(create_big(responses, 9));
    CHECK_INT(9, server.n_requests);
    CHECK_CONTAINS("?partNumber=1&", server.requests[3]);
    CHECK_CONTAINS("?partNumber=2&", server.requests[4]);
    CHECK_CONTAINS("?partNumber=2&", server.requests[5]);
    CHECK_CONTAINS("Content-Length: 1048576\r\n", server.requests[5]);
    CHECK_CONTAINS("?partNumber=3&", server.requests[6]);
    CHECK_CONTAINS("<Part><PartNumber>3</PartNumber><ETag>\"part\"</ETag></Part>",
                   server.requests[7]);
}

/* ---- stores that show halves */

static dl_store *open_halves(const char *const *responses, size_t n)
{
    char url[256];
    dl_store *store;
    script_start(&server, responses, n);
    snprintf(url, sizeof url, "s3://bucket/p?halves=yes&endpoint=http://127.0.0.1:%d", server.port);
    CHECK_OK(dl_store_open(&store, url, false));
    return store;
}

TEST(where_halves_show_everything_that_is_created_is_published_by_a_pointer)
{
    static const char *const responses[] = {OPENED, NONE, OK, OK, OK};
    const dl_span span = {"hello", 5};
    dl_store *store = open_halves(responses, 5);
    CHECK_OK(dl_store_create(store, "log/1", &span, 1, NULL, DL_NEVER));
    CHECK_CONTAINS("PUT /bucket/p/.b/log/1/", server.requests[2]);
    CHECK_CONTAINS("hello", server.requests[2]);
    CHECK_CONTAINS("PUT /bucket/p/log/1 ", server.requests[3]);
    CHECK_CONTAINS("\r\nIf-None-Match: *\r\n", server.requests[3]);
    CHECK_CONTAINS("DLBULKP1", server.requests[3]);
    CHECK_OK(dl_store_put(store, "hb/1", "beat", 4, DL_NEVER)); /* replaces: as it is */
    CHECK_CONTAINS("PUT /bucket/p/hb/1 ", server.requests[4]);
    CHECK_CONTAINS("beat", server.requests[4]);
    dl_store_close(store);
}

TEST(half_a_pointer_is_nothing_yet)
{
    static const char *const responses[] = {OPENED, BODY("0"), BODY("3") "DLB",
                                            BODY("20") "DLBULKP1\1------------", BODY("4") "beat"};
    dl_buf out;
    dl_store *store = open_halves(responses, 5);
    dl_buf_init(&out, 100);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &out, "log/1", DL_NEVER));
        CHECK_CONTAINS("not in s3://bucket/p yet", diloco_error_text());
    }
    CHECK_OK(dl_store_get(store, &out, "hb/1", DL_NEVER));
    CHECK_BYTES("beat", out.data, 4);
    dl_store_close(store);
    dl_buf_deinit(&out);
}

/* A writer was killed while it sent the pointer. Readers see nothing there, so a later writer has
 * to be able to create the name. s3rver answers no range of an empty object. */
TEST(half_a_pointer_of_a_dead_writer_is_replaced)
{
    static const char *const halves[] = {BODY("0"), BODY("3") "DLB",
                                         BODY("20") "DLBULKP1\1-----------"};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        const char *const responses[] = {OPENED, halves[i], OK, OK};
        const dl_span span = {"hello", 5};
        bool taken;
        if (i > 0) script_stop(&server);
        dl_store *store = open_halves(responses, 4);
        CHECK_OK(dl_store_create(store, "log/1", &span, 1, &taken, DL_NEVER));
        CHECK(!taken);
        CHECK(!strstr(server.requests[1], "\r\nRange:"));
        CHECK_CONTAINS("PUT /bucket/p/log/1 ", server.requests[3]);
        dl_store_close(store);
    }
}

static diloco_status note_listed(void *context, const char *key, size_t len)
{
    CHECK_STR("c/2", key);
    CHECK_INT(9, len);
    ++*(int *)context;
    return DILOCO_OK;
}

TEST(a_listing_shows_no_half_of_a_pointer)
{
    static const char page[] =
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/c/1</Key><Size>9</Size>"
        "</Contents><Contents><Key>p/c/2</Key><Size>9</Size></Contents></ListBucketResult>";
    static char listed[512];
    const char *const responses[] = {OPENED, listed, BODY("9") "DLBULKP1\1", BODY("9") "not so it"};
    int n = 0;
    snprintf(listed, sizeof listed, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             sizeof page - 1, page);
    dl_store *store = open_halves(responses, 4);
    CHECK_OK(dl_store_list(store, "c/", NULL, note_listed, &n, DL_NEVER));
    CHECK_INT(1, n);
    dl_store_close(store);
}

/* Write an answer with a pointer to an object of 5 bytes, for http_script.h. */
static void answer_pointer(char out[512], char id)
{
    static const char head[] = "HTTP/1.1 206 P\r\nContent-Range: bytes 0-127/128\r\n"
                               "Content-Length: 128\r\n\r\n";
    const dl_pointer pointer = {
        .len = 5, .digest = dl_digest_bytes("hello", 5), .id = {(unsigned char)id}};
    const int n = snprintf(out, 512, "=%04zu%s", sizeof head - 1 + DL_POINTER_BYTES, head);
    dl_pointer_write((unsigned char *)out + n, &pointer);
}

static dl_store *open_script(const char *const *responses, size_t n)
{
    char url[256];
    dl_store *store;
    script_start(&server, responses, n);
    snprintf(url, sizeof url, "s3://bucket/p?endpoint=http://127.0.0.1:%d", server.port);
    CHECK_OK(dl_store_open(&store, url, false));
    return store;
}

/* The pointer is created after its object and removed before it. So a pointer that stays is junk or
 * damage. If it counted as absent, no reader would have it and no writer could create its name. */
TEST(a_pointer_to_an_object_that_does_not_exist_is_damage_unless_it_is_gone_too)
{
    static char pointer[512];
    const char *const responses[] = {OPENED, pointer, NONE, pointer, pointer, NONE, NONE};
    dl_buf out;
    answer_pointer(pointer, 1);
    dl_store *store = open_script(responses, 7);
    dl_buf_init(&out, 100);
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &out, "c/1/r0", DL_NEVER));
    CHECK_CONTAINS("c/1/r0 in s3://bucket/p", diloco_error_text());
    CHECK_CONTAINS("GET /bucket/p/.b/c/1/r0/01", server.requests[2]);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &out, "c/1/r0", DL_NEVER));
    CHECK_INT(7, server.n_requests);
    dl_store_close(store);
    dl_buf_deinit(&out);
}

/* Readers may take an absent object for final. */
TEST(an_object_that_is_replaced_while_it_is_read_is_not_absent)
{
    static char pointer[512], another[512];
    const char *const responses[] = {OPENED,          pointer,           NONE,    another,
                                     another,         BODY("5") "hello", pointer, NONE,
                                     BODY("3") "new", BODY("3") "new"};
    dl_buf out;
    answer_pointer(pointer, 1);
    answer_pointer(another, 2);
    dl_store *store = open_script(responses, 10);
    dl_buf_init(&out, 100);
    CHECK_OK(dl_store_get(store, &out, "c/1/r0", DL_NEVER));
    CHECK_STR("hello", dl_buf_str(&out));
    dl_buf_clear(&out);
    CHECK_OK(dl_store_get(store, &out, "c/1/r0", DL_NEVER));
    CHECK_STR("new", dl_buf_str(&out));
    dl_store_close(store);
    dl_buf_deinit(&out);
}

TEST(an_object_that_is_replaced_at_every_read_can_be_read_later)
{
    static char pointer[512], another[512];
    const char *const responses[] = {OPENED,  pointer, NONE,    another, another, NONE,   pointer,
                                     pointer, NONE,    another, another, NONE,    pointer};
    dl_buf out;
    answer_pointer(pointer, 1);
    answer_pointer(another, 2);
    dl_store *store = open_script(responses, 13);
    dl_buf_init(&out, 100);
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_get(store, &out, "c/1/r0", DL_NEVER));
    CHECK_INT(13, server.n_requests);
    dl_store_close(store);
    dl_buf_deinit(&out);
}

/* For a replica that has read an entry as unreadable, that is final. So a pointer there must not
 * become readable once its object exists. Without the rule there are two more requests here. */
TEST(p7_a_pointer_at_the_name_of_an_entry_is_junk_whether_or_not_its_object_exists)
{
    static char pointer[512];
    const char *const responses[] = {OPENED, pointer};
    unsigned char expected[DL_POINTER_BYTES];
    dl_buf out;
    answer_pointer(pointer, 1);
    memcpy(expected, strstr(pointer, "\r\n\r\n") + 4, sizeof expected);
    dl_store *store = open_script(responses, 2);
    dl_buf_init(&out, 200);
    CHECK_OK(dl_store_get(store, &out, "log/0000000001.json", DL_NEVER));
    CHECK_INT(sizeof expected, out.len);
    CHECK_BYTES(expected, out.data, sizeof expected);
    CHECK_INT(2, server.n_requests);
    dl_store_close(store);
    dl_buf_deinit(&out);
}

/* An entry may have 4 MiB, and part_mib=1 makes all of more than 2 MiB big objects. */
TEST(an_entry_of_any_length_is_stored_without_a_pointer)
{
    const dl_bucket b = {.part_bytes = 1 << 20}, halves = {.part_bytes = 1 << 20, .halves = true};
    const dl_span span = {"", BIG}; /* only its length counts */
    CHECK(dl_bulk_is(&b, "c/1/r0", &span, 1));
    CHECK(!dl_bulk_is(&b, "log/0000000001.json", &span, 1));
    CHECK(dl_bulk_is(&halves, "log/0000000001.json", &span, 1));
}

TEST(sto_12_a_long_object_is_uploaded_in_parts_within_the_limits_of_s3)
{
    static const size_t lengths[] = {(16 << 20) + 1, 2000000000, 4000000000, (size_t)5 << 40};
    const dl_bucket b = {.part_bytes = 8 << 20};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const dl_span span = {NULL, lengths[i]};
        dl_bucket_cut cut = {0};
        CHECK(dl_bulk_is(&b, "c/1/r0", &span, 1));
        dl_bucket_cut_up(&cut, &b, &span, 1, 10000);
        CHECK(cut.n_parts > 1 && cut.n_parts <= 10000);
        CHECK(cut.part_bytes >= 5 << 20 && cut.part_bytes <= (size_t)5 << 30);
        CHECK((cut.n_parts - 1) * cut.part_bytes < lengths[i]);
        CHECK(cut.n_parts * cut.part_bytes >= lengths[i]);
    }
}

TEST(an_error_inside_a_200_completion_is_read)
{
    static const char *const responses[] = {OPENED,
                                            NONE,
                                            BEGUN,
                                            PART,
                                            PART,
                                            PART,
                                            BODY("41") "<Error><Code>InternalError</Code></Error>",
                                            BODY("39") "<Error><Code>InvalidPart</Code></Error>",
                                            OK};
    CHECK_STATUS(DILOCO_EPROTO, create_big(responses, 9));
    CHECK_CONTAINS("InvalidPart", diloco_error_text());
    CHECK_CONTAINS("DELETE /bucket/p/.b/c/1/r0/", server.requests[8]); /* nothing is left over */
    CHECK_CONTAINS("?uploadId=an%2Fid ", server.requests[8]);
}

TEST(a_completion_whose_answer_was_lost_is_seen_by_its_object)
{
    static const char *const responses[] = {
        OPENED,
        NONE,
        BEGUN,
        PART,
        PART,
        PART,
        "HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 No\r\nContent-Length: 40\r\n\r\n<Error><Code>NoSuchUpload</Code></Error>",
        "HTTP/1.1 200 OK\r\nContent-Length: 2097157\r\n\r\n",
        OK};
    CHECK_OK(create_big(responses, 10));
    CHECK_CONTAINS("HEAD /bucket/p/.b/c/1/r0/", server.requests[8]);
}

TEST(a_part_that_fails_ends_the_upload_and_aborts_it)
{
    static const char *const responses[] = {
        OPENED, NONE, BEGUN, PART, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", OK};
    CHECK_STATUS(DILOCO_EIO, create_big(responses, 6));
    CHECK_CONTAINS("DELETE /bucket/p/.b/c/1/r0/", server.requests[5]);
    CHECK_INT(6, server.n_requests);
}

TEST(the_loser_of_a_race_removes_its_upload)
{
    static const char *const responses[] = {
        OPENED,
        NONE,
        BEGUN,
        PART,
        PART,
        PART,
        COMPLETE,
        "HTTP/1.1 412 Taken\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 206 P\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nother",
        OK,
        "HTTP/1.1 206 P\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nother"};
    CHECK_STATUS(DILOCO_EEXIST, create_big(responses, 11));
    CHECK_CONTAINS("GET /bucket/p/c/1/r0 ", server.requests[8]);
    CHECK_CONTAINS("DELETE /bucket/p/.b/c/1/r0/", server.requests[9]);
}

/* ---- leftovers */

TEST(an_open_removes_uploads_that_no_replica_published_for_a_day)
{
    static const char day[] = "Date: Tue, 03 Jan 2040 00:00:00 GMT\r\n";
    static const char uploads[] =
        "<ListMultipartUploadsResult><Upload><Key>p/.b/c/1/r0/00</Key><UploadId>old</UploadId>"
        "<Initiated>2040-01-01T12:00:00.000Z</Initiated></Upload><Upload><Key>p/.b/c/1/r1/00</Key>"
        "<UploadId>new</UploadId><Initiated>2040-01-02T12:00:00.000Z</Initiated></Upload>"
        "</ListMultipartUploadsResult>";
    static const char parts[] =
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/.b/c/2/r0/aa</Key>"
        "<Size>9</Size><LastModified>2040-01-01T12:00:00.000Z</LastModified></Contents><Contents>"
        "<Key>p/.b/c/2/r1/bb</Key><Size>9</Size><LastModified>2040-01-02T12:00:00.000Z"
        "</LastModified></Contents></ListBucketResult>";
    static const char more[] =
        "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>p/.b/c/1/r0/aa</Key>"
        "<Size>9</Size><LastModified>2040-01-02T12:00:00.000Z</LastModified></Contents>"
        "</ListBucketResult>";
    char first[1024], second[1024], third[1024], url[256];
    dl_store *store;
    snprintf(third, sizeof third, "HTTP/1.1 200 OK\r\n%sContent-Length: %zu\r\n\r\n%s", day,
             strlen(more), more);
    snprintf(first, sizeof first, "HTTP/1.1 200 OK\r\n%sContent-Length: %zu\r\n\r\n%s", day,
             strlen(uploads), uploads);
    snprintf(second, sizeof second, "HTTP/1.1 200 OK\r\n%sContent-Length: %zu\r\n\r\n%s", day,
             strlen(parts), parts);
    const char *const responses[] = {OPENED, first, OK, third, second, NONE, OK};
    script_start(&server, responses, 7);
    snprintf(url, sizeof url, "s3://bucket/p?endpoint=http://127.0.0.1:%d", server.port);
    CHECK_OK(dl_store_open(&store, url, true));
    dl_store_close(store);
    CHECK_INT(7, server.n_requests);
    CHECK_CONTAINS("DELETE /bucket/p/.b/c/1/r0/00?uploadId=old ", server.requests[2]);
    CHECK_CONTAINS("start-after=p%2F.b%2Fc%2F1%2Fr0%2Faa ", server.requests[4]);
    CHECK_CONTAINS("GET /bucket/p/c/2/r0 ", server.requests[5]); /* is it published? */
    CHECK_CONTAINS("DELETE /bucket/p/.b/c/2/r0/aa ", server.requests[6]);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pointer_has_its_fields_where_the_documentation_says),
        cmocka_unit_test(bytes_that_differ_in_one_byte_are_no_pointer),
        ONE(parts_are_uploaded_first_and_a_pointer_publishes_them),
        ONE(parts_that_did_not_arrive_before_credentials_expired_are_sent_with_new_ones),
        ONE(where_halves_show_everything_that_is_created_is_published_by_a_pointer),
        ONE(half_a_pointer_is_nothing_yet),
        ONE(half_a_pointer_of_a_dead_writer_is_replaced),
        ONE(a_listing_shows_no_half_of_a_pointer),
        ONE(a_pointer_to_an_object_that_does_not_exist_is_damage_unless_it_is_gone_too),
        ONE(an_object_that_is_replaced_while_it_is_read_is_not_absent),
        ONE(an_object_that_is_replaced_at_every_read_can_be_read_later),
        ONE(p7_a_pointer_at_the_name_of_an_entry_is_junk_whether_or_not_its_object_exists),
        cmocka_unit_test(an_entry_of_any_length_is_stored_without_a_pointer),
        cmocka_unit_test(sto_12_a_long_object_is_uploaded_in_parts_within_the_limits_of_s3),
        ONE(an_error_inside_a_200_completion_is_read),
        ONE(a_completion_whose_answer_was_lost_is_seen_by_its_object),
        ONE(a_part_that_fails_ends_the_upload_and_aborts_it),
        ONE(the_loser_of_a_race_removes_its_upload),
        ONE(an_open_removes_uploads_that_no_replica_published_for_a_day),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
