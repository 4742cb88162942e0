/* cloud_suite.c - the store suite, and what only big objects show, against a real server.
 *
 *     CLOUD_TEST_URL='s3://bucket?endpoint=http://127.0.0.1:9000' cloud_suite
 *
 * (with CLOUD_TEST_SHORT=1 only the latter; a store of small objects only, etcd, has none.)
 * The scripts of tests/servers start one, make the bucket and set the variables. Each test has
 * a prefix of its own; its leftovers end with the server. */
#include "check.h"
#include "store/http/bucket_bulk.h"
#include "store_suite.h"

#include <unistd.h>

static const char *base; /* scheme://bucket?options */
static int n_made;

/* A new prefix, before the '?'. */
static void make_place(char url[512])
{
    int head = (int)strcspn(base, "?");
    CHECK(snprintf(url, 512, "%.*s/t%d.%ld%s", head, base, n_made++, (long)getpid(), base + head) <
          512);
}

static dl_store *open_place(const char *url)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    return store;
}

static void leave_place(const char *url)
{
    (void)url;
}

static const store_row row_cloud = {"cloud", make_place, open_place, leave_place, true};

/* ---- big objects: with part_mib=5, what is longer than 10 MiB goes by pointer */

enum { BIG = (21 << 20) + 12345 };
#define BIG_TEXT "22032441"

static unsigned char *big_bytes(unsigned seed)
{
    unsigned char *bytes = malloc(BIG);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < BIG; i++)
        bytes[i] = (unsigned char)((i + seed) * 2654435761u >> 13);
    return bytes;
}

static void make_big_place(char url[512])
{
    make_place(url);
    strncat(url, strchr(url, '?') ? "&part_mib=5" : "?part_mib=5", 511 - strlen(url));
}

static diloco_status note_size(void *context, const char *key, size_t len)
{
    return dl_buf_addf(context, "%s %zu\n", key, len);
}

static void check_listing(dl_store *store, const char *expected)
{
    dl_buf out;
    dl_buf_init(&out, 10000);
    CHECK_OK(dl_store_list(store, "", NULL, note_size, &out, DL_NEVER));
    CHECK_STR(expected, out.len ? dl_buf_str(&out) : "");
    dl_buf_deinit(&out);
}

static void check_big(dl_store *store, const char *key, const unsigned char *bytes)
{
    dl_buf buf;
    dl_buf_init(&buf, BIG);
    CHECK_OK(dl_store_get(store, &buf, key, DL_NEVER));
    CHECK_INT(BIG, buf.len);
    CHECK(!memcmp(bytes, buf.data, BIG));
    dl_buf_deinit(&buf);
}

TEST(a_big_object_goes_in_parts_and_shows_as_one)
{
    char url[512];
    bool taken;
    unsigned char *bytes = big_bytes(1), *others = big_bytes(2);
    make_big_place(url);
    dl_store *store = open_place(url), *other = open_place(url);
    dl_span spans[] = {
        {bytes, 7}, {NULL, 0}, {bytes + 7, 9000000}, {bytes + 9000007, BIG - 9000007}};
    dl_span whole = {bytes, BIG}, foreign = {others, BIG};

    store_must_create(store, "c/1/before", "small");
    CHECK(dl_store_vouches(store));
    CHECK_OK(dl_store_create(store, "c/1/r0.0", spans, 4, &taken, DL_NEVER));
    CHECK(!taken);
    /* P8: of each part, and of the publishing request; Azurite confirms no blocks. */
    CHECK_INT(strncmp(url, "az:", 3) != 0, dl_store_vouches(store));
    check_big(other, "c/1/r0.0", bytes);
    check_listing(other, "c/1/before 5\nc/1/r0.0 " BIG_TEXT "\n");
    check_listing(other, "c/1/before 5\nc/1/r0.0 " BIG_TEXT "\n"); /* out of what it remembers */

    CHECK_OK(dl_store_create(other, "c/1/r0.0", &whole, 1, &taken, DL_NEVER));
    CHECK(taken);
    CHECK_STATUS(DILOCO_EEXIST, dl_store_create(other, "c/1/r0.0", &foreign, 1, &taken, DL_NEVER));
    CHECK_OK(dl_store_delete(other, "c/1/r0.0", DL_NEVER));
    check_listing(store, "c/1/before 5\n");
    CHECK_OK(dl_store_put(store, "c/1/r0.0", others, BIG, DL_NEVER)); /* other bytes, same key */
    check_big(other, "c/1/r0.0", others);
    dl_store_close(store);
    dl_store_close(other);
    free(bytes);
    free(others);
}

TEST(bytes_that_look_like_a_pointer_read_back_unchanged)
{
    char url[512];
    unsigned char bytes[DL_POINTER_BYTES];
    dl_pointer pointer = {.len = 5};
    dl_span span = {bytes, sizeof bytes};
    dl_buf buf;
    make_place(url);
    dl_store *store = open_place(url);
    dl_buf_init(&buf, 1000);
    dl_pointer_write(bytes, &pointer);
    CHECK_OK(dl_store_create(store, "a", &span, 1, NULL, DL_NEVER));
    CHECK_OK(dl_store_get(store, &buf, "a", DL_NEVER));
    CHECK_INT(sizeof bytes, buf.len);
    CHECK(!memcmp(bytes, buf.data, sizeof bytes));
    bytes[20] ^= 1; /* no longer a pointer: a small object of that length */
    dl_buf_clear(&buf);
    CHECK_OK(dl_store_create(store, "b", &span, 1, NULL, DL_NEVER));
    CHECK_OK(dl_store_get(store, &buf, "b", DL_NEVER));
    CHECK(buf.len == sizeof bytes && !memcmp(bytes, buf.data, sizeof bytes));
    check_listing(store, "a 128\nb 128\n");
    dl_buf_deinit(&buf);
    dl_store_close(store);
}

TEST(the_probe_finds_one_winner)
{
    char url[512];
    dl_probe probe;
    make_place(url);
    CHECK_OK(
        dl_store_probe(&probe, &(dl_store_address){.url = url}, DL_PROBE_MOST, NULL, DL_NEVER));
    CHECK_INT(1, probe.winners);
    print_message("create %.1f ms, read %.1f ms, write %.0f MB/s, read %.0f MB/s\n",
                  probe.create_ms, probe.read_ms, probe.write_mb_per_s, probe.read_mb_per_s);
    dl_store *store = open_place(url);
    check_listing(store, "");
    dl_store_close(store);
}

TEST(an_empty_store_is_opened_only_to_create)
{
    char url[512];
    dl_store *store;
    make_place(url);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&store, url, false));
    CHECK_CONTAINS("nothing is stored under", diloco_error_text());
    store = open_place(url);
    store_must_create(store, "run.json", "{}");
    dl_store_close(store);
    CHECK_OK(dl_store_open(&store, url, false));
    dl_store_close(store);
}

TEST(a_bucket_that_is_not_there_is_named)
{
    char url[512];
    dl_store *store;
    const char *options = strchr(base, '?'), *bucket = options ? options : base + strlen(base);
    while (bucket[-1] != '/')
        bucket--;
    snprintf(url, sizeof url, "%.*sno-such-bucket%s", (int)(bucket - base), base,
             options ? options : "");
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&store, url, true));
    CHECK_CONTAINS("no-such-bucket: there is no such bucket", diloco_error_text());
}

/* Of a store of small objects. */
TEST(a_name_that_is_too_long_is_refused)
{
    char url[512];
    make_place(url);
    dl_store *store = open_place(url);
    const size_t n = dl_store_max_object(store) + 1;
    void *bytes = calloc(1, n);
    CHECK(bytes != NULL);
    const dl_span spans[] = {{bytes, n - 5}, {bytes, 5}};
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_create(store, "a", spans, 2, NULL, DL_NEVER));
    CHECK_CONTAINS("small objects only", diloco_error_text());
    free(bytes);
    dl_store_close(store);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_big_object_goes_in_parts_and_shows_as_one),
        cmocka_unit_test(bytes_that_look_like_a_pointer_read_back_unchanged),
        cmocka_unit_test(the_probe_finds_one_winner),
        cmocka_unit_test(an_empty_store_is_opened_only_to_create),
        cmocka_unit_test(a_bucket_that_is_not_there_is_named),
    };
    base = getenv("CLOUD_TEST_URL");
    if (!base) {
        fprintf(stderr, "cloud_suite: CLOUD_TEST_URL is not set\n");
        return 2;
    }
    static const struct CMUnitTest small_tests[] = {
        cmocka_unit_test(the_probe_finds_one_winner),
        cmocka_unit_test(an_empty_store_is_opened_only_to_create),
        cmocka_unit_test(a_name_that_is_too_long_is_refused),
    };
    int failed = strncmp(base, "etcd", 4) ? cmocka_run_group_tests(tests, NULL, NULL)
                                          : cmocka_run_group_tests(small_tests, NULL, NULL);
    return getenv("CLOUD_TEST_SHORT") ? failed : failed + store_suite_run(&row_cloud);
}
